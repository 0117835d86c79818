package headwater.log

import java.io.{Closeable, IOException}

import scala.collection.mutable

import headwater.core.{ArrowSchema, Cursor, RowGroup, StoredRows}
import headwater.log.LogScan.{Block, Segment}
import headwater.log.SegmentLog.quietly

/** Writes groups of parcels into segments, and knows which segments there are. Used by one thread.
  *
  * A group is durable when [[write]] returns. When it throws, what it has left in its file counts for nothing, and
  * [[abandon]] must be called before the next one.
  */
private[log] final class SegmentWriter(
    files: LogFiles,
    manifest: Manifest,
    scan: LogScan,
    arrowSchema: ArrowSchema,
    settings: SegmentLog.Settings
) extends Closeable {
  private[this] val known = mutable.ArrayDeque.from(scan.segments)
  private[this] var cursors = scan.cursors
  private[this] var current: Option[LogFiles.Out] = None
  private[this] var isFresh = false // nothing of it is durable yet
  private[this] var position = 0L
  private[this] var number = 0L
  private[this] var nextSeq = scan.next
  private[this] var told = scan.commits.maxOption.getOrElse(-1L)

  /** The oldest first. */
  def segments: Iterator[Segment] = known.iterator

  /** The newest commit that was written. */
  def committed: Long = told

  /** @param commit
    *   the newest there is; written if it has not been
    * @return
    *   where the rows are
    */
  def write(group: Vector[RowGroup], commit: Long): Vector[StoredRows] = {
    if (position >= settings.segmentBytes || !files.canAppend) end()
    val out = current.getOrElse(begin())
    val frames = new Group(out, known.last.name)
    if (commit > told) frames.put(Frame.commit(commit, isFirst = true) -> Array.emptyByteArray)
    group.foreach(frames.put)
    sync(out)
    isFresh = false
    position = frames.position
    nextSeq = frames.seq
    told = math.max(told, commit)
    cursors ++= SegmentWriter.cursorsOf(group)
    known(known.length - 1) = known.last.copy(last = nextSeq - 1, bytes = position)
    frames.blocks
  }

  /** What comes goes into a new segment. */
  def abandon(): Unit = {
    end()
    if (isFresh) quietly(files.delete(known.removeLast().name))
    isFresh = false
  }

  /** The oldest segment goes, if it is not the only one and `condition` holds for it. */
  def dropFirst(condition: Segment => Boolean): Boolean = {
    val goes = known.length > 1 && condition(known.head)
    if (goes) quietly(files.delete(known.removeHead().name))
    goes
  }

  override def close(): Unit = end()

  /** The frames of one group, as they are written. */
  private final class Group(out: LogFiles.Out, segment: String) {
    private[this] val path = files.pathOf(segment)
    private[this] val done = Vector.newBuilder[StoredRows]
    private[this] var block = Block.none
    private[this] var isFirst = true
    var position: Long = SegmentWriter.this.position
    var seq: Long = nextSeq

    def blocks: Vector[StoredRows] = (done ++= block.rows).result()

    def put(parcel: RowGroup): Unit = {
      val note = parcel.cursor.fold(Array.emptyByteArray)(Frame.Note.write)
      if (parcel.rows.isEmpty) put(rows(Codec.None, 0, Array.emptyByteArray, 0, note, hasMore = false))
      else
        parcel.rows.zipWithIndex.foreach { case (batch, i) =>
          val hasMore = i < parcel.rows.length - 1
          val payload = settings.codec.compress(batch.bytes)
          val noted = if (hasMore) Array.emptyByteArray else note
          put(rows(settings.codec, batch.count, payload, batch.bytes.length, noted, hasMore))
        }
    }

    def put(framed: (Frame, Array[Byte])): Unit = {
      val (frame, payload) = framed
      out.write(frame.head)
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
    isFresh = true
    current = Some(out)
    val bytes = header.bytes
    position = bytes.length
    known += Segment(header.name, nextSeq, nextSeq - 1, position)
    out.write(bytes)
    out
  }

  private def end(): Unit = {
    current.foreach(out => quietly(out.close())) // what was durable stays so
    current = None
    position = 0
  }

  /** A sync that failed may have dropped what it should have written: it is never tried again. */
  private def sync(out: LogFiles.Out): Unit =
    try out.sync()
    catch {
      case e: IOException =>
        throw new LogFailedException(
          s"${files.pathOf(known.last.name)} could not be synced: ${e.getMessage}",
          e
        )
    }
}

private[log] object SegmentWriter {

  /** The last one of each shard. */
  def cursorsOf(group: Vector[RowGroup]): Map[Int, String] =
    group.flatMap(_.cursor).map { case Cursor(shard, json) => shard -> json }.toMap
}
