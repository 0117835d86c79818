package headwater.partition

import java.util.concurrent.{CompletableFuture, TimeUnit, TimeoutException}
import javax.annotation.concurrent.GuardedBy

import scala.util.control.NonFatal

import headwater.FeedFailedException
import headwater.core.Positions
import org.apache.spark.internal.Logging

/** Plans where a batch ends in each partition.
  *
  * If every offset is a row, this is arithmetic. If offsets have gaps, only the author's code knows how far a
  * number of rows reaches. It is asked ahead, while the previous batch runs, so that the response is there in
  * time; if it is not, the batch starts a little later.
  *
  * @param maxConsecutiveErrors
  *   how many times in a row the author's code may fail
  */
private[headwater] final class BatchPlanner(
    watch: PartitionWatch,
    source: String,
    hasGaps: Boolean,
    maxConsecutiveErrors: Long,
    nanoTime: () => Long
) extends Logging {
  import BatchPlanner._

  @GuardedBy("this") private[this] var turn = 0
  @GuardedBy("this") private[this] var request: Option[EndsRequest] = None
  @GuardedBy("this") private[this] var failures = 0L
  @GuardedBy("this") private[this] var notBefore = 0L

  /** The end of the batch that begins at `start`; None if it is not known yet.
    *
    * @param waiting
    *   how many offsets wait in each partition
    */
  def endOfBatch(start: Positions, waiting: Map[String, Long], maxRows: Long): Option[Positions] = {
    val all = start.updated(waiting.map { case (partition, rows) =>
      partition -> (start.at(partition) + rows)
    })
    if (waiting.values.map(BigInt(_)).sum <= maxRows) Some(all)
    else if (!hasGaps)
      Some(start.updated(shares(start, waiting, maxRows).map { case (p, rows) => p -> (start.at(p) + rows) }))
    else {
      val ends = requestedEnd(start, waiting, maxRows)
      ends.foreach(end => sendRequest(end, waitingAfter(end, all), maxRows))
      ends
    }
  }

  private def requestedEnd(start: Positions, waiting: Map[String, Long], maxRows: Long): Option[Positions] = {
    val isPaused = synchronized(failures > 0 && nanoTime() < notBefore)
    val response = if (isPaused) None else awaitResponse(start, waiting, maxRows)
    response.map { ends =>
      synchronized {
        this.request = None
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

  private def awaitResponse(
      start: Positions,
      waiting: Map[String, Long],
      maxRows: Long
  ): Option[Map[String, Long]] = {
    val sentAhead = synchronized(request).filter(_.isFor(start, maxRows))
    try sentAhead.getOrElse(sendRequest(start, waiting, maxRows)).await(AnswerMillis)
    catch { case NonFatal(e) => failed(e) }
  }

  /** The request is repeated after a pause. */
  private def failed(e: Throwable): None.type = {
    val (count, pause) = synchronized {
      request = None
      failures += 1
      val pause = math.min(LongestPauseNanos, FirstPauseNanos << math.min(failures - 1, 10))
      notBefore = nanoTime() + pause
      (failures, pause)
    }
    if (count > maxConsecutiveErrors)
      throw new FeedFailedException(s"Source '$source' failed: ${e.getMessage}", e)
    logWarning(s"source '$source' failed, and is asked again in ${pause / 1000000} ms: ${e.getMessage}")
    None
  }

  private def sendRequest(start: Positions, waiting: Map[String, Long], maxRows: Long): EndsRequest = {
    val wanted = shares(start, waiting, maxRows).filter { case (_, rows) => rows > 0 }
    val request = new EndsRequest(
      start,
      maxRows,
      if (wanted.isEmpty) CompletableFuture.completedFuture(Map.empty)
      else watch.after(wanted.map { case (partition, rows) => partition -> ((start.at(partition), rows)) })
    )
    synchronized { this.request = Some(request) }
    request
  }

  private def shares(start: Positions, waiting: Map[String, Long], maxRows: Long): Map[String, Long] = {
    val partitions = start.at.keysIterator.filter(waiting.contains).toVector
    // With gaps the number of offsets says little about rows, so no partition counts for more than a whole batch.
    def waitingIn(partition: String): Long =
      if (hasGaps) math.min(waiting(partition), maxRows) else waiting(partition)
    val current = synchronized {
      turn = if (turn == Int.MaxValue) 0 else turn + 1
      turn
    }
    val first = if (partitions.isEmpty) 0 else current % partitions.size
    partitions.zip(Shares.of(partitions.map(waitingIn), maxRows, first)).toMap
  }

  private def waitingAfter(end: Positions, all: Positions): Map[String, Long] =
    all.at.collect {
      case (partition, last) if last > end.at(partition) => partition -> (last - end.at(partition))
    }
}

private object BatchPlanner {

  /** For a response that was not requested ahead. */
  private val AnswerMillis = 1000L

  private val FirstPauseNanos = 500000000L
  private val LongestPauseNanos = 30000000000L

  private final class EndsRequest(
      start: Positions,
      maxRows: Long,
      future: CompletableFuture[Map[String, Long]]
  ) {
    def isFor(where: Positions, rows: Long): Boolean =
      start == where && maxRows == rows

    def await(millis: Long): Option[Map[String, Long]] =
      try Some(future.get(millis, TimeUnit.MILLISECONDS))
      catch {
        case _: TimeoutException => None
        case e: java.util.concurrent.ExecutionException => throw e.getCause
      }
  }
}
