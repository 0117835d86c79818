package headwater.core

import headwater.InvalidOptionException

/** The limits of one batch, as set by options. */
private[headwater] final case class Limits(
    maxRowsPerTrigger: Option[Long],
    maxBytesPerTrigger: Option[Long],
    minRowsPerTrigger: Option[Long],
    maxTriggerDelay: Long
)

private[headwater] object Limits {
  def read(options: SourceOptions): Limits = {
    val parsed = Limits(
      maxRowsPerTrigger = options.find[Long]("maxRowsPerTrigger"),
      maxBytesPerTrigger = options.find[Long]("maxBytesPerTrigger"),
      minRowsPerTrigger = options.find[Long]("minRowsPerTrigger"),
      maxTriggerDelay = options.get[Long]("maxTriggerDelay")
    )
    for (min <- parsed.minRowsPerTrigger; max <- parsed.maxRowsPerTrigger if min > max)
      throw new InvalidOptionException(
        s"Option 'minRowsPerTrigger' is '$min', it must not be above 'maxRowsPerTrigger', which is '$max'."
      )
    parsed
  }
}

/** The limits of one batch, as an adapter asks for them. Without values: everything that is available. */
private[headwater] final case class Admission(
    maxRows: Long = Long.MaxValue,
    maxBytes: Long = Long.MaxValue,
    minRows: Long = 0,
    maxDelayNanos: Long = 0
)
