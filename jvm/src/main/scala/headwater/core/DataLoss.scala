package headwater.core

import java.util.concurrent.atomic.AtomicLong

import headwater.DataLossException
import org.apache.spark.internal.Logging

/** Reports lost rows: as an exception, or as a warning where `failOnDataLoss` is false. */
private[headwater] final class DataLoss(source: String, failOnDataLoss: Boolean) extends Logging {
  private[this] val lostRows = new AtomicLong

  /** Rows skipped so far. */
  def rows: Long = lostRows.get

  /** Reports the loss of the rows in `(after, upTo]`. */
  def report(after: Long, upTo: Long, reason: String): Unit = {
    val message = s"Source '$source' lost the rows ${after + 1} to $upTo: $reason."
    if (failOnDataLoss)
      throw new DataLossException(
        s"$message Set the option failOnDataLoss to false to continue without them."
      )
    logWarning(s"$message Continuing without them, since failOnDataLoss is false.")
    lostRows.addAndGet(upTo - after)
  }
}
