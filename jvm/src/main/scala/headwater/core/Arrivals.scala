package headwater.core

import java.util.concurrent.TimeUnit.SECONDS

/** When rows arrive, and how many. Not thread-safe: its owner has a lock.
  *
  * Rates are averages over the last ten seconds. Rows are counted in slots of one second: the current slot, which has
  * only begun, and the nine before it. In the first second after the start they are what that second has so far.
  *
  * @param nanoTime
  *   a monotonic clock
  * @param currentTimeMillis
  *   the time of day
  */
private[headwater] final class Arrivals(
    nanoTime: () => Long,
    currentTimeMillis: () => Long = () => System.currentTimeMillis()
) {
  import Arrivals._

  private[this] val start = nanoTime()
  private[this] val rowCounts = new Array[Long](Slots)
  private[this] val byteCounts = new Array[Long](Slots)
  private[this] var slot = 0L
  private[this] var lastAt: Option[Long] = None

  def add(rows: Long, bytes: Long): Unit = {
    advance()
    rowCounts((slot % Slots).toInt) += rows
    byteCounts((slot % Slots).toInt) += bytes
    lastAt = Some(currentTimeMillis())
  }

  def status: Status = {
    advance()
    val elapsed = nanoTime() - start
    val covered = math.max(Slot, math.min(elapsed, (Slots - 1) * Slot + elapsed % Slot))
    def perSecond(counts: Array[Long]): Double = counts.sum.toDouble * Slot / covered
    Status(lastAt, perSecond(rowCounts), perSecond(byteCounts))
  }

  private def advance(): Unit = {
    val now = (nanoTime() - start) / Slot
    val passed = math.min(now - slot, Slots.toLong)
    (1L to passed).foreach { i =>
      rowCounts(((slot + i) % Slots).toInt) = 0
      byteCounts(((slot + i) % Slots).toInt) = 0
    }
    slot = math.max(slot, now)
  }
}

private[headwater] object Arrivals {
  private val Slots = 10
  private val Slot = SECONDS.toNanos(1)

  /** @param lastAt when the last row arrived, in milliseconds since 1970; None before the first */
  final case class Status(lastAt: Option[Long], rowsPerSecond: Double, bytesPerSecond: Double)

  val NoRows: Status = Status(None, 0, 0)
}
