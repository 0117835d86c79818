package headwater.log

import java.io.{Closeable, FileNotFoundException}
import java.net.URI
import java.nio.file.{NoSuchFileException, Paths}

import headwater.DataLossException
import headwater.core.{ArrowRows, Slice, StoredRows}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

/** Loads slices into memory in a task, one Arrow batch at a time. Every checksum is verified.
  *
  * @param conf
  *   for Hadoop file systems
  * @param onDamage
  *   called with the error and the damaged rows, numbered within their frame; throws, or returns to skip them
  * @param endIfCancelled
  *   called when a file is gone: ends a task whose query was stopped, and returns otherwise
  */
final class StoredSlices(
    slices: Iterator[Slice],
    conf: () => Configuration,
    onDamage: (DamagedException, Range) => Unit,
    endIfCancelled: () => Unit = () => ()
) extends Iterator[Slice]
    with Closeable {

  private[this] var file: Option[SegmentFile] = None
  private[this] var inBlock: Iterator[Slice] = Iterator.empty

  override def hasNext: Boolean = {
    while (!inBlock.hasNext && slices.hasNext) inBlock = load(slices.next())
    inBlock.hasNext
  }

  override def next(): Slice = {
    if (!hasNext) throw new NoSuchElementException("no more slices")
    inBlock.next()
  }

  override def close(): Unit = {
    file.foreach(_.close())
    file = None
  }

  private def load(slice: Slice): Iterator[Slice] = slice.rows match {
    case _: ArrowRows => Iterator.single(slice)
    case stored: StoredRows => frames(open(stored), stored, slice)
  }

  private def frames(segment: SegmentFile, stored: StoredRows, wanted: Slice): Iterator[Slice] =
    new Iterator[Option[Slice]] {
      private[this] val end = stored.position + stored.length
      private[this] var position = stored.position
      private[this] var row = 0 // the first row of the next frame, within the block

      override def hasNext: Boolean = position < end && row < wanted.until

      override def next(): Option[Slice] = {
        val at = position
        segment.frameAt(at) match {
          case Some(frame) =>
            position += frame.length
            val first = row
            if (frame.isRows) row += frame.rows
            val from = math.max(wanted.from - first, 0)
            val until = math.min(wanted.until - first, frame.rows)
            if (frame.isRows && from < until)
              attempt(from until until)(
                Slice(rows(segment, frame, at), from, until, wanted.seq - wanted.from + first + from)
              )
            else None
          case None =>
            position = end
            attempt(math.max(row, wanted.from) until wanted.until) {
              throw new DamagedException(s"${segment.path} is damaged at byte $at: no frame stands there")
            }
        }
      }
    }.flatten

  private def attempt(wanted: Range)(slice: => Slice): Option[Slice] =
    try Some(slice)
    catch {
      case e: DamagedException =>
        onDamage(e, wanted)
        None
    }

  private def rows(segment: SegmentFile, frame: Frame, position: Long): ArrowRows =
    ArrowRows(
      frame.rows,
      segment.payload(frame, position),
      Some(segment.header.arrowSchema),
      frame.shard,
      frame.arrived
    )

  /** A segment that is still being written was shorter when it was opened. */
  private def open(stored: StoredRows): SegmentFile = {
    val end = stored.position + stored.length
    file
      .filter(known => known.path == stored.segment && end <= known.length)
      .getOrElse(reopen(stored.segment))
  }

  private def reopen(path: String): SegmentFile = {
    close()
    val opened =
      try new SegmentFile(path, StoredSlices.read(path, conf))
      catch {
        case _: NoSuchFileException | _: FileNotFoundException =>
          endIfCancelled()
          throw new DataLossException(
            s"$path is not there. Its rows were committed and dropped, or this machine does not see the folder: a " +
              "checkpoint must be on a file system that driver and executors share. With the option durability=memory " +
              "rows travel in the tasks."
          )
      }
    file = Some(opened)
    opened
  }
}

private object StoredSlices {
  private def read(path: String, conf: () => Configuration): LogFiles.In =
    if (path.startsWith("file:")) LocalFiles.open(Paths.get(URI.create(path)))
    else HadoopFiles.open(new Path(path), conf())
}
