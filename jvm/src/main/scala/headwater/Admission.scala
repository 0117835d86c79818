package headwater

import org.apache.spark.sql.connector.read.streaming.{
  CompositeReadLimit,
  ReadLimit,
  ReadMaxBytes,
  ReadMaxRows,
  ReadMinRows
}

/** How much one batch may take, and how much it should wait for: Spark's [[ReadLimit]], taken apart. */
private[headwater] final case class Admission(
    maxRows: Long = Long.MaxValue,
    maxBytes: Long = Long.MaxValue,
    minRows: Long = 0,
    maxDelayNanos: Long = 0
)

private[headwater] object Admission {

  def of(limit: ReadLimit): Admission = add(Admission(), limit)

  private def add(to: Admission, limit: ReadLimit): Admission = limit match {
    case all: CompositeReadLimit => all.getReadLimits.foldLeft(to)(add)
    case max: ReadMaxRows => to.copy(maxRows = max.maxRows)
    case max: ReadMaxBytes => to.copy(maxBytes = max.maxBytes)
    case min: ReadMinRows => to.copy(minRows = min.minRows, maxDelayNanos = min.maxTriggerDelayMs * 1000000)
    case _ => to // all that is available: Trigger.Once asks for that whatever our own limits are
  }
}
