package headwater.alpha

/** When the rows of a steady stream are due. All times are in nanoseconds, of one monotonic clock.
  *
  * A feed that was delayed, by its own work or by a busy machine, catches up. A feed that was blocked because
  * nobody took its rows does not: that would send a burst to a reader that is already behind.
  */
private[headwater] final class Pacer(rowsPerSecond: Long, start: Long) {
  import Pacer._
  require(
    0 < rowsPerSecond && rowsPerSecond <= Second,
    s"rowsPerSecond $rowsPerSecond"
  ) // otherwise the products overflow

  // Rows since `origin`, which follows the clock in whole seconds to keep the numbers small.
  private[this] var origin = start
  private[this] var produced = 0L

  /** How many rows are due at `now` and were not produced. */
  def due(now: Long): Long = {
    val seconds = (now - origin) / Second
    origin += seconds * Second
    produced -= seconds * rowsPerSecond
    math.max(0L, (now - origin) * rowsPerSecond / Second - produced)
  }

  /** When the next row is due. */
  def nextAt: Long = origin + ((produced + 1) * Second + rowsPerSecond - 1) / rowsPerSecond

  /** @param took how long `append` took: above a millisecond, the feed was blocked */
  def added(rows: Long, took: Long): Unit = {
    produced += rows
    if (took > Moment) origin += took
  }
}

private[headwater] object Pacer {
  private val Second = 1000000000L
  private val Moment = 1000000L
}
