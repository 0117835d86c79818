package headwater.log

import java.io.{Closeable, IOException}

import scala.collection.mutable

import headwater.core.{ArrowSchema, Cursor, RowGroup, StoredRows}
import headwater.log.LogScan.{Block, Segment}
import headwater.log.SegmentLog.quietly

/** Writes sync groups into segments, and tracks the segments. Not thread-safe.
  *
  * A sync group is durable when [[write]] returns. If it throws, its bytes in the file count for nothing, and
  * [[abandon]] must be called before the next one.
  */
private[log] final class SegmentWriter(
    files: LogFiles,
    manifest: Manifest,
    scan: LogScan,
    arrowSchema: ArrowSchema,
    settings: SegmentLog.Settings
) extends Closeable {
  private[this] val segmentList = mutable.ArrayDeque.from(scan.segments)
  private[this] var cursors = scan.cursors
  private[this] var current: Option[LogFiles.Out] = None
  private[this] var isUnsynced = false // nothing in the current segment is durable yet
  private[this] var position = 0L
  private[this] var number = 0L
  private[this] var nextSeq = scan.next
  private[this] var committedSeq = scan.commits.maxOption.getOrElse(-1L)

  /** The oldest first. */
  def segments: Iterator[Segment] = segmentList.iterator

  /** The newest commit that was written. */
  def committed: Long = committedSeq

  /** @param commit
    *   the newest commit; written if it has not been
    * @return
    *   where the rows are
    */
  def write(group: Vector[RowGroup], commit: Long): Vector[StoredRows] = {
    if (position >= settings.segmentBytes || !files.canAppend) end()
    val out = current.getOrElse(begin())
    val frames = new Group(out, segmentList.last.name)
    if (commit > committedSeq) frames.put(Frame.commit(commit, isFirst = true) -> Array.emptyByteArray)
    group.foreach(frames.put)
    sync(out)
    isUnsynced = false
    position = frames.position
    nextSeq = frames.seq
    committedSeq = math.max(committedSeq, commit)
    cursors ++= SegmentWriter.cursorsOf(group)
    segmentList(segmentList.length - 1) = segmentList.last.copy(last = nextSeq - 1, bytes = position)
    frames.blocks
  }

  /** The next sync group goes into a new segment. */
  def abandon(): Unit = {
    end()
    if (isUnsynced) quietly(files.delete(segmentList.removeLast().name))
    isUnsynced = false
  }

  /** Deletes the oldest segment, if it is not the only one and `condition` holds for it. */
  def dropFirst(condition: Segment => Boolean): Boolean = {
    val isDropped = segmentList.length > 1 && condition(segmentList.head)
    if (isDropped) quietly(files.delete(segmentList.removeHead().name))
    isDropped
  }

  override def close(): Unit = end()

  /** Writes the frames of one sync group. */
  private final class Group(out: LogFiles.Out, segment: String) {
    private[this] val path = files.pathOf(segment)
    private[this] val done = Vector.newBuilder[StoredRows]
    private[this] var block = Block.none
    private[this] var isFirst = true
    var position: Long = SegmentWriter.this.position
    var seq: Long = nextSeq

    def blocks: Vector[StoredRows] = (done ++= block.rows).result()

    def put(rowGroup: RowGroup): Unit = {
      val note = rowGroup.cursor.fold(Array.emptyByteArray)(Frame.Note.write)
      if (rowGroup.rows.isEmpty) put(rows(Codec.None, 0, Array.emptyByteArray, 0, note, hasMore = false))
      else
        rowGroup.rows.zipWithIndex.foreach { case (batch, i) =>
          val hasMore = i < rowGroup.rows.length - 1
          val payload = settings.codec.compress(batch.bytes)
          val frameNote = if (hasMore) Array.emptyByteArray else note
          put(rows(settings.codec, batch.count, payload, batch.bytes.length, frameNote, hasMore))
        }
    }

    def put(framed: (Frame, Array[Byte])): Unit = {
      val (frame, payload) = framed
      out.write(frame.header)
      if (payload.nonEmpty) out.write(payload)
      if (frame.rows > 0) {
        if (!block.fits(frame)) {
          done ++= block.rows
          block = Block.none
        }
        block = block.add(path, position, frame)
      }
      if (frame.isRows) seq = frame.next
      position += frame.length
      isFirst = false
    }

    private def rows(
        codec: Codec,
        count: Int,
        payload: Array[Byte],
        rawBytes: Int,
        note: Array[Byte],
        hasMore: Boolean
    ): (Frame, Array[Byte]) = {
      val crc = Frame.crcOf(payload, 0, payload.length)
      Frame(
        Frame.RowsKind,
        codec,
        isFirst,
        hasMore,
        count,
        seq,
        payload.length,
        rawBytes,
        crc,
        note
      ) -> payload
    }
  }

  private def begin(): LogFiles.Out = {
    val header =
      SegmentHeader(manifest.source, manifest.run, manifest.epoch, number, nextSeq, arrowSchema, cursors)
    val out = files.create(header.name)
    number += 1
    isUnsynced = true
    current = Some(out)
    val bytes = header.bytes
    position = bytes.length
    segmentList += Segment(header.name, nextSeq, nextSeq - 1, position)
    out.write(bytes)
    out
  }

  private def end(): Unit = {
    current.foreach(out => quietly(out.close())) // what was durable stays durable
    current = None
    position = 0
  }

  /** A failed sync may have dropped dirty pages, so it is never retried. */
  private def sync(out: LogFiles.Out): Unit =
    try out.sync()
    catch {
      case e: IOException =>
        throw new LogFailedException(
          s"${files.pathOf(segmentList.last.name)} could not be synced: ${e.getMessage}",
          e
        )
    }
}

private[log] object SegmentWriter {

  /** The last cursor of each shard. */
  def cursorsOf(group: Vector[RowGroup]): Map[Int, String] =
    group.flatMap(_.cursor).map { case Cursor(shard, json) => shard -> json }.toMap
}
