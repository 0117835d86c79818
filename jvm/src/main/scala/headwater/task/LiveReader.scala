package headwater.task

import scala.collection.mutable
import scala.concurrent.duration._

import headwater.core.{ArrowRows, LiveRows, Slice}
import org.apache.spark.TaskContext
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.vectorized.ColumnarBatch
import org.apache.spark.util.SerializableConfiguration

/** Reads the rows of one shard in a task, as they arrive.
  *
  * @param start
  *   the seq after which to begin
  * @param reader
  *   loads rows that are in files
  */
final class LiveReader private[headwater] (
    live: LiveRows,
    shard: Int,
    start: Long,
    arrowSchema: Array[Byte],
    metadata: MetadataColumn,
    reader: TaskReader,
    hadoop: Option[Broadcast[SerializableConfiguration]]
) {
  import LiveReader._

  private[this] val fetched = mutable.Queue.empty[Slice]
  private[this] var fetchedUpTo = start
  private[this] var slice: Slice = _
  private[this] val ofShard: Iterator[Slice] =
    reader.open(new Fetched(fetched), hadoop, TaskContext.get()).filter(isOfShard).map { next =>
      slice = next
      next
    }
  private[this] val batches = new SliceColumns(arrowSchema, ofShard, Some(metadata))
  private[this] var batch: ColumnarBatch = _
  private[this] var row = -1
  private[this] var handedOn = start

  /** All rows of the shard up to this seq were handed on. */
  def position: Long = handedOn

  /** Goes to the next row; false if none arrived in time. */
  def next(timeoutMillis: Long): Boolean = {
    val deadline = timeoutMillis.millis.fromNow
    var found = advance()
    while (!found && deadline.hasTimeLeft()) {
      val arrived = live.await(shard, handedOn, deadline.timeLeft.min(MaxWait))
      fetched ++= arrived.slices
      fetchedUpTo = arrived.end
      found = advance()
    }
    found
  }

  def get: InternalRow = batch.getRow(row)

  /** When the row arrived, in milliseconds since the epoch; 0 if that is not known. */
  def arrivedMillis: Long = slice.rows match {
    case rows: ArrowRows => rows.arrived / 1000
    case _ => 0
  }

  private def advance(): Boolean = {
    row += 1
    while ((batch == null || row >= batch.numRows) && batches.hasNext) {
      batch = batches.next()
      row = 0
    }
    val found = batch != null && row < batch.numRows
    if (found) handedOn = slice.seq + row
    else {
      batch = null
      row = -1
      handedOn = fetchedUpTo
    }
    found
  }

  private def isOfShard(slice: Slice): Boolean = slice.rows match {
    case rows: ArrowRows => rows.shard == shard
    case _ => true
  }
}

private object LiveReader {

  /** A feed may fail while nothing arrives. */
  private val MaxWait = 100.millis

  /** Has a next slice whenever one was fetched, also after it had none. */
  private final class Fetched(queue: mutable.Queue[Slice]) extends Iterator[Slice] {
    override def hasNext: Boolean = queue.nonEmpty
    override def next(): Slice = queue.dequeue()
  }
}
