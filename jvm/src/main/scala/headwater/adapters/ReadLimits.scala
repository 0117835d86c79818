package headwater.adapters

import java.util.concurrent.TimeUnit

import headwater.core.{Admission, Limits}
import org.apache.spark.sql.connector.read.streaming.{
  CompositeReadLimit,
  ReadLimit,
  ReadMaxBytes,
  ReadMaxRows,
  ReadMinRows
}

/** Our limits as Spark's `ReadLimit`, and back. */
private[headwater] object ReadLimits {

  /** Spark passes this back with each `latestOffset`. */
  def of(limits: Limits): ReadLimit = {
    val all = limits.maxRowsPerTrigger.map(ReadLimit.maxRows) ++
      limits.maxBytesPerTrigger.map(ReadLimit.maxBytes) ++
      limits.minRowsPerTrigger.map(
        ReadLimit.minRows(_, TimeUnit.NANOSECONDS.toMillis(limits.maxTriggerDelay))
      )
    all.toSeq match {
      case Seq() => ReadLimit.allAvailable()
      case Seq(one) => one
      case several => ReadLimit.compositeLimit(several.toArray)
    }
  }

  def admission(limit: ReadLimit): Admission = add(Admission(), limit)

  private def add(admission: Admission, limit: ReadLimit): Admission = limit match {
    case all: CompositeReadLimit => all.getReadLimits.foldLeft(admission)(add)
    case max: ReadMaxRows => admission.copy(maxRows = max.maxRows)
    case max: ReadMaxBytes => admission.copy(maxBytes = max.maxBytes)
    case min: ReadMinRows =>
      admission.copy(
        minRows = min.minRows,
        maxDelayNanos = TimeUnit.MILLISECONDS.toNanos(min.maxTriggerDelayMs)
      )
    case _ => admission // ReadAllAvailable: Trigger.Once asks for it, whatever limits we have
  }
}
