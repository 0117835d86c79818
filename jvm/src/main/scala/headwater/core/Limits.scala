package headwater.core

import java.util.concurrent.TimeUnit

import headwater.InvalidOptionException
import org.apache.spark.sql.connector.read.streaming.{
  CompositeReadLimit,
  ReadLimit,
  ReadMaxBytes,
  ReadMaxRows,
  ReadMinRows
}

/** How much one batch may take, and what it should wait for, as set by options. */
private[headwater] final case class Limits(
    maxRowsPerTrigger: Option[Long],
    maxBytesPerTrigger: Option[Long],
    minRowsPerTrigger: Option[Long],
    maxTriggerDelay: Long
) {

  /** As Spark carries them: it hands them back with each `latestOffset`. */
  def readLimit: ReadLimit = {
    val limits = maxRowsPerTrigger.map(ReadLimit.maxRows) ++ maxBytesPerTrigger.map(ReadLimit.maxBytes) ++
      minRowsPerTrigger.map(ReadLimit.minRows(_, TimeUnit.NANOSECONDS.toMillis(maxTriggerDelay)))
    limits.toSeq match {
      case Seq() => ReadLimit.allAvailable()
      case Seq(one) => one
      case several => ReadLimit.compositeLimit(several.toArray)
    }
  }
}

private[headwater] object Limits {
  val names: Seq[String] =
    Seq("maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger", "maxTriggerDelay")

  def read(options: SourceOptions): Limits = {
    import SourceOptions._
    val read = Limits(
      maxRowsPerTrigger = options.optional("maxRowsPerTrigger")(wholeNumber(1)),
      maxBytesPerTrigger = options.optional("maxBytesPerTrigger")(bytes),
      minRowsPerTrigger = options.optional("minRowsPerTrigger")(wholeNumber(1)),
      maxTriggerDelay = options.optional("maxTriggerDelay")(duration).getOrElse(TimeUnit.MINUTES.toNanos(15))
    )
    for (min <- read.minRowsPerTrigger; max <- read.maxRowsPerTrigger if min > max)
      throw new InvalidOptionException(
        s"Option 'minRowsPerTrigger' is '$min', it must not be above 'maxRowsPerTrigger', which is '$max'."
      )
    read
  }
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
