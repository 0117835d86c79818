package headwater.log

import java.io.{Closeable, IOException}
import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.mutable

import headwater.core.{ArrowRows, ArrowSchema, Cursor, RowGroup, StoredRows}
import headwater.log.LogScan.{Block, Segment}
import headwater.log.SegmentLog.quietly

/** Writes sync groups into segments, and tracks the segments. Not thread-safe.
  *
  * A sync group is durable when [[write]] returns. If it throws, its bytes in the file count for nothing, and
  * [[abandon]] must be called before the next one.
  *
  * The manifest records how far the log goes: with the first sync group of each segment, and at the end. A start
  * then notices when the newest segment is gone.
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
  private[this] var current: Option[(LogFiles.Out, FrameFormat.V2)] = None
  private[this] var isUnsynced = false // nothing in the current segment is durable yet
  private[this] var position = 0L
  private[this] var number = 0L
  private[this] var nextSeq = scan.next
  private[this] var recordedNext = manifest.next
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
    val (out, format) = current.getOrElse(begin(group))
    val frames = new Group(out, format, segmentList.last.name)
    if (commit > committedSeq)
      frames.put(Frame.commit(format, commit, isFirst = true) -> Array.emptyByteArray)
    group.foreach(frames.put)
    sync(out)
    if (isUnsynced) record(frames.seq)
    isUnsynced = false
    position = frames.position
    nextSeq = frames.seq
    committedSeq = math.max(committedSeq, commit)
    cursors ++= SegmentWriter.cursorsOf(group)
    segmentList(segmentList.length - 1) = segmentList.last.copy(last = nextSeq - 1, bytes = position)
    frames.blocks
  }

  /** The next sync group goes into a new segment. What was not synced is cut off, and uses no space. */
  def abandon(): Unit = {
    if (!isUnsynced) current.foreach { case (out, _) => quietly(out.truncate(position)) }
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

  override def close(): Unit = {
    end()
    if (number > 0) quietly(record(nextSeq))
  }

  /** Writes the frames of one sync group. */
  private final class Group(out: LogFiles.Out, format: FrameFormat.V2, segment: String) {
    private[this] val path = files.pathOf(segment)
    private[this] val done = Vector.newBuilder[StoredRows]
    private[this] var block = Block.none
    private[this] var isFirst = true
    var position: Long = SegmentWriter.this.position
    var seq: Long = nextSeq

    def blocks: Vector[StoredRows] = (done ++= block.rows).result()

    def put(rowGroup: RowGroup): Unit = {
      val note = rowGroup.cursor.fold(Array.emptyByteArray)(_.json.getBytes(UTF_8))
      def shardOf(batch: ArrowRows) = rowGroup.cursor.fold(batch.shard)(_.shard)
      if (rowGroup.rows.isEmpty)
        put(
          rows(
            Codec.None,
            rowGroup.cursor.fold(0)(_.shard),
            0,
            0,
            Array.emptyByteArray,
            0,
            note,
            hasMore = false
          )
        )
      else
        rowGroup.rows.zipWithIndex.foreach { case (batch, i) =>
          val hasMore = i < rowGroup.rows.length - 1
          val payload = settings.codec.compress(batch.bytes)
          val frameNote = if (hasMore) Array.emptyByteArray else note
          val rawBytes = batch.bytes.length
          put(
            rows(
              settings.codec,
              shardOf(batch),
              batch.count,
              batch.arrived,
              payload,
              rawBytes,
              frameNote,
              hasMore
            )
          )
        }
    }

    def put(framed: (Frame, Array[Byte])): Unit = {
      val (frame, payload) = framed
      out.write(format.header(frame, position))
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
        shard: Int,
        count: Int,
        arrived: Long,
        payload: Array[Byte],
        rawBytes: Int,
        note: Array[Byte],
        hasMore: Boolean
    ): (Frame, Array[Byte]) = {
      val crc = Frame.crcOf(payload, 0, payload.length)
      Frame(
        format,
        Frame.RowsKind,
        codec,
        isFirst,
        hasMore,
        shard,
        count,
        seq,
        arrived,
        payload.length,
        rawBytes,
        crc,
        note
      ) -> payload
    }
  }

  private def begin(group: Vector[RowGroup]): (LogFiles.Out, FrameFormat.V2) = {
    val header = SegmentHeader(
      SegmentHeader.Version,
      manifest.source,
      manifest.run,
      manifest.epoch,
      number,
      nextSeq,
      group.iterator.flatMap(_.rows).nextOption().fold(0L)(_.arrived),
      manifest.key,
      arrowSchema,
      cursors
    )
    val bytes = header.bytes
    val out = files.create(header.name)
    val segment = (out, new FrameFormat.V2(header.key, header.epoch, header.number))
    number += 1
    isUnsynced = true
    current = Some(segment)
    position = bytes.length
    segmentList += Segment(header.name, nextSeq, nextSeq - 1, position)
    out.write(bytes)
    segment
  }

  /** Records in the manifest that all rows before `next` are durable. Where a manifest cannot be replaced, only the next
    * start records it.
    */
  private def record(next: Long): Unit = if (files.canAppend && next > recordedNext) {
    files.writeAtomically(manifest.name, manifest.copy(next = next).json.getBytes(UTF_8))
    recordedNext = next
  }

  private def end(): Unit = {
    current.foreach { case (out, _) => quietly(out.close()) } // what was durable stays durable
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
