package headwater.alpha

/** When which row of a steady stream is due. All times are of one monotonic clock, in nanoseconds.
  *
  * A feed that was held up, by its own work or by a busy machine, makes up for it. A feed that was blocked, because nobody
  * took its rows, does not: that would be a burst for a reader who is behind already.
  */
private[headwater] final class Pacer(rowsPerSecond: Long, start: Long) {
  import Pacer._
  require(
    0 < rowsPerSecond && rowsPerSecond <= Second,
    s"rowsPerSecond $rowsPerSecond"
  ) // or the products overflow

  // Rows given since `origin`, which follows the clock by whole seconds to keep the numbers small.
  private[this] var origin = start
  private[this] var done = 0L

  /** How many rows are due at `now` that were not given. */
  def due(now: Long): Long = {
    val seconds = (now - origin) / Second
    origin += seconds * Second
    done -= seconds * rowsPerSecond
    math.max(0L, (now - origin) * rowsPerSecond / Second - done)
  }

  /** When the next row is due. */
  def nextAt: Long = origin + ((done + 1) * Second + rowsPerSecond - 1) / rowsPerSecond

  /** @param took how long the giving took: more than a moment, and the feed was blocked */
  def gave(rows: Long, took: Long): Unit = {
    done += rows
    if (took > Moment) origin += took
  }
}

private[headwater] object Pacer {
  private val Second = 1000000000L
  private val Moment = 1000000L
}
