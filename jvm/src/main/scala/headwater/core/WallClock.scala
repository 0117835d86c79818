package headwater.core

import java.time.Instant
import java.time.temporal.ChronoUnit

private[headwater] object WallClock {

  /** Microseconds since the epoch. */
  val micros: () => Long = () => ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now())
}
