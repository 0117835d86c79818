package headwater.buffer

import javax.annotation.concurrent.GuardedBy

import scala.concurrent.duration.FiniteDuration

import headwater.core.{ArrivedRows, DataLoss, Durability, LiveBatches, Position, Store}

/** The rows of a buffer as they arrive: one reader for each shard hands them on.
  *
  * Readers are at different rows when a batch ends, and the end of the batch is the lowest of these. What was handed on
  * beyond it is remembered here, so that the next batch does not repeat it. After a restart it comes again.
  *
  * Rows in memory are dropped once all readers have handed them on: a batch may take minutes, and Spark does not run a
  * task of real-time mode again.
  *
  * @param seqOf
  *   the seq of the last row before a position
  * @param positionOf
  *   the position after a row
  * @param onBatch
  *   called with the number of rows of each batch
  */
private[buffer] final class LiveBuffer(
    store: Store,
    shards: Int,
    seqOf: Position => Long,
    positionOf: Long => Position,
    failure: () => Option[Throwable],
    dataLoss: DataLoss,
    onBatch: Long => Unit
) extends LiveBatches {
  import LiveBuffer._

  private[this] val buffer = store.buffer
  @GuardedBy("this") private[this] val handedOn = Array.fill(shards)(BeforeFirst)
  @GuardedBy("this") private[this] val fetched = Array.fill(shards)(BeforeFirst)
  @GuardedBy("this") private[this] var batchStart = BeforeFirst

  override def begin(start: Position): IndexedSeq[Long] = synchronized {
    batchStart = seqOf(start)
    handedOn.indices.foreach { shard =>
      handedOn(shard) = math.max(batchStart, handedOn(shard))
      fetched(shard) = handedOn(shard)
    }
    handedOn.toVector
  }

  override def end(positions: IndexedSeq[Long]): Position = {
    val rows = synchronized {
      positions.copyToArray(handedOn)
      positions.min - batchStart
    }
    onBatch(rows)
    positionOf(positions.min)
  }

  override def await(shard: Int, after: Long, timeout: FiniteDuration): ArrivedRows = {
    val done = synchronized {
      handedOn(shard) = after
      handedOn.min
    }
    if (store.durability == Durability.Memory && done >= buffer.firstNotDropped) buffer.commit(done)
    if (buffer.awaitBeyond(after, timeout.toNanos) == after) nothing(after)
    else {
      val end = buffer.endWithin(after, Long.MaxValue, MaxBytes)
      val window = buffer.read(after, end)
      if (window.goneUpTo > after)
        dataLoss.report(after, window.goneUpTo, "they were dropped when a later batch was committed")
      window.lost.foreach(rows => dataLoss.report(rows.first - 1, rows.last, rows.why))
      buffer.take(synchronized {
        fetched(shard) = end
        fetched.min
      })
      ArrivedRows(window.slices, end)
    }
  }

  private def nothing(after: Long): ArrivedRows = {
    // Read before the latest row: rows that the feed appended before it failed are handed on first.
    failure().filter(_ => buffer.latest == after).foreach(throw _)
    if (buffer.isClosed)
      Thread.sleep(ClosedMillis) // the query is being stopped, and its tasks are cancelled soon
    ArrivedRows(Nil, after)
  }
}

private object LiveBuffer {
  private val BeforeFirst = -1L

  /** The most that a reader fetches at once, and so what it holds in memory. */
  private val MaxBytes = 1L << 20

  private val ClosedMillis = 10L
}
