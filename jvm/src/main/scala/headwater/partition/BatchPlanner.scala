package headwater.partition

import java.util.concurrent.{CompletableFuture, TimeUnit, TimeoutException}
import javax.annotation.concurrent.GuardedBy

import scala.util.control.NonFatal

import headwater.FeedFailedException
import headwater.core.Positions
import org.apache.spark.internal.Logging

/** BatchPlanner off what one batch may take of what waits in the partitions.
  *
  * Where every offset is a row, that is arithmetic. Offsets may have gaps, and then only the author knows how far so many
  * rows go. That is asked ahead, while the batch before is running, so that the answer is there when it is needed; if it is
  * not, the batch comes a little later.
  *
  * @param patience
  *   how often in a row the author's code may fail
  */
private[headwater] final class BatchPlanner(
    watch: PartitionWatch,
    source: String,
    hasGaps: Boolean,
    patience: Long,
    nanoTime: () => Long
) extends Logging {
  import BatchPlanner._

  @GuardedBy("this") private[this] var turn = 0
  @GuardedBy("this") private[this] var asked: Option[Asked] = None
  @GuardedBy("this") private[this] var failures = 0L
  @GuardedBy("this") private[this] var notBefore = 0L

  /** @return
    *   where the batch ends; None: it is not known yet
    */
  def from(start: Positions, waiting: Map[String, Long], maxRows: Long): Option[Positions] = {
    val all = start.updated(waiting.map { case (partition, rows) =>
      partition -> (start.at(partition) + rows)
    })
    if (waiting.values.map(BigInt(_)).sum <= maxRows) Some(all)
    else if (!hasGaps)
      Some(start.updated(shares(start, waiting, maxRows).map { case (p, rows) => p -> (start.at(p) + rows) }))
    else {
      val ends = answer(start, waiting, maxRows)
      ends.foreach(end => ask(end, waitingAfter(end, all), maxRows))
      ends
    }
  }

  private def answer(start: Positions, waiting: Map[String, Long], maxRows: Long): Option[Positions] = {
    val isPause = synchronized(failures > 0 && nanoTime() < notBefore)
    val answered = if (isPause) None else askedFor(start, waiting, maxRows)
    answered.map { ends =>
      synchronized {
        this.asked = None
        failures = 0
      }
      start.updated(ends.map { case (partition, end) =>
        val (first, last) = (start.at(partition), start.at(partition) + waiting.getOrElse(partition, 0L))
        if (end < first)
          throw new FeedFailedException(s"after('$partition', $first, …) gave $end, which lies before $first")
        partition -> math.min(end, math.max(last, first))
      })
    }
  }

  private def askedFor(
      start: Positions,
      waiting: Map[String, Long],
      maxRows: Long
  ): Option[Map[String, Long]] = {
    val ahead = synchronized(asked).filter(_.isFor(start, maxRows))
    try ahead.getOrElse(ask(start, waiting, maxRows)).answer(AnswerMillis)
    catch { case NonFatal(e) => failed(e) }
  }

  /** It is asked again after a pause. */
  private def failed(e: Throwable): None.type = {
    val (count, pause) = synchronized {
      asked = None
      failures += 1
      val pause = math.min(LongestPauseNanos, FirstPauseNanos << math.min(failures - 1, 10))
      notBefore = nanoTime() + pause
      (failures, pause)
    }
    if (count > patience) throw new FeedFailedException(s"Source '$source' failed: ${e.getMessage}", e)
    logWarning(s"source '$source' failed, and is asked again in ${pause / 1000000} ms: ${e.getMessage}")
    None
  }

  private def ask(start: Positions, waiting: Map[String, Long], maxRows: Long): Asked = {
    val wanted = shares(start, waiting, maxRows).filter { case (_, rows) => rows > 0 }
    val asked = new Asked(
      start,
      maxRows,
      if (wanted.isEmpty) CompletableFuture.completedFuture(Map.empty)
      else watch.after(wanted.map { case (partition, rows) => partition -> ((start.at(partition), rows)) })
    )
    synchronized { this.asked = Some(asked) }
    asked
  }

  private def shares(start: Positions, waiting: Map[String, Long], maxRows: Long): Map[String, Long] = {
    val partitions = start.at.keysIterator.filter(waiting.contains).toVector
    // With gaps the number of offsets says little of that of rows, so none counts for more than a whole batch.
    def weight(partition: String): Long =
      if (hasGaps) math.min(waiting(partition), maxRows) else waiting(partition)
    val now = synchronized {
      turn = if (turn == Int.MaxValue) 0 else turn + 1
      turn
    }
    val first = if (partitions.isEmpty) 0 else now % partitions.size
    partitions.zip(Shares.of(partitions.map(weight), maxRows, first)).toMap
  }

  private def waitingAfter(end: Positions, all: Positions): Map[String, Long] =
    all.at.collect {
      case (partition, last) if last > end.at(partition) => partition -> (last - end.at(partition))
    }
}

private object BatchPlanner {

  /** For an answer that was not asked ahead. */
  private val AnswerMillis = 1000L

  private val FirstPauseNanos = 500000000L
  private val LongestPauseNanos = 30000000000L

  private final class Asked(start: Positions, maxRows: Long, future: CompletableFuture[Map[String, Long]]) {
    def isFor(where: Positions, rows: Long): Boolean =
      start == where && maxRows == rows

    def answer(millis: Long): Option[Map[String, Long]] =
      try Some(future.get(millis, TimeUnit.MILLISECONDS))
      catch {
        case _: TimeoutException => None
        case e: java.util.concurrent.ExecutionException => throw e.getCause
      }
  }
}
