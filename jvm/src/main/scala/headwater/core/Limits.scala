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

/** The limits of one batch, as set by options. */
private[headwater] final case class Limits(
    maxRowsPerTrigger: Option[Long],
    maxBytesPerTrigger: Option[Long],
    minRowsPerTrigger: Option[Long],
    maxTriggerDelay: Long
) {

  /** As a Spark `ReadLimit`. Spark passes it back with each `latestOffset`. */
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
    val parsed = Limits(
      maxRowsPerTrigger = options.optional("maxRowsPerTrigger")(integer(1)),
      maxBytesPerTrigger = options.optional("maxBytesPerTrigger")(bytes),
      minRowsPerTrigger = options.optional("minRowsPerTrigger")(integer(1)),
      maxTriggerDelay = options.optional("maxTriggerDelay")(duration).getOrElse(TimeUnit.MINUTES.toNanos(15))
    )
    for (min <- parsed.minRowsPerTrigger; max <- parsed.maxRowsPerTrigger if min > max)
      throw new InvalidOptionException(
        s"Option 'minRowsPerTrigger' is '$min', it must not be above 'maxRowsPerTrigger', which is '$max'."
      )
    parsed
  }
}

/** The limits of one batch, as Spark asks for them: a [[ReadLimit]] by its parts. */
private[headwater] final case class Admission(
    maxRows: Long = Long.MaxValue,
    maxBytes: Long = Long.MaxValue,
    minRows: Long = 0,
    maxDelayNanos: Long = 0
)

private[headwater] object Admission {

  def of(limit: ReadLimit): Admission = add(Admission(), limit)

  private def add(admission: Admission, limit: ReadLimit): Admission = limit match {
    case all: CompositeReadLimit => all.getReadLimits.foldLeft(admission)(add)
    case max: ReadMaxRows => admission.copy(maxRows = max.maxRows)
    case max: ReadMaxBytes => admission.copy(maxBytes = max.maxBytes)
    case min: ReadMinRows =>
      admission.copy(minRows = min.minRows, maxDelayNanos = min.maxTriggerDelayMs * 1000000)
    case _ => admission // ReadAllAvailable: Trigger.Once asks for it, whatever limits we have
  }
}
