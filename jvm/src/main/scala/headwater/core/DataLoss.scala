package headwater.core

import java.util.concurrent.atomic.AtomicLong

import headwater.DataLossException
import org.apache.spark.internal.Logging

/** Says which rows are lost: as an error, or as a warning where the user has said that the query should go on. */
private[headwater] final class DataLoss(source: String, failOnDataLoss: Boolean) extends Logging {
  private[this] val counted = new AtomicLong

  /** How many rows were gone without. */
  def rows: Long = counted.get

  /** The rows behind `after`, up to and with `upTo`. */
  def report(after: Long, upTo: Long, why: String): Unit = {
    val what = s"Source '$source' lost the rows ${after + 1} to $upTo: $why."
    if (failOnDataLoss)
      throw new DataLossException(s"$what Set the option failOnDataLoss to false to go on without them.")
    logWarning(s"$what Going on without them, as failOnDataLoss is false.")
    counted.addAndGet(upTo - after)
  }
}
