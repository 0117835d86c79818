package headwater

import org.apache.spark.sql.connector.read.streaming.ReadLimit

/** What can be set for every source that runs on a feed and a buffer. Durations are in nanoseconds. */
private[headwater] final case class BufferedOptions(
    bufferBytes: Long,
    bufferRows: Long,
    maxRowsPerTrigger: Option[Long],
    maxBytesPerTrigger: Option[Long],
    minRowsPerTrigger: Option[Long],
    maxTriggerDelay: Long,
    availableNowWait: Long,
    failOnDataLoss: Boolean
) {

  /** The limits as Spark carries them: it hands them back with each `latestOffset`. */
  def readLimit: ReadLimit = {
    val limits = maxRowsPerTrigger.map(ReadLimit.maxRows) ++ maxBytesPerTrigger.map(ReadLimit.maxBytes) ++
      minRowsPerTrigger.map(ReadLimit.minRows(_, maxTriggerDelay / 1000000))
    limits.toSeq match {
      case Seq() => ReadLimit.allAvailable()
      case Seq(one) => one
      case several => ReadLimit.compositeLimit(several.toArray)
    }
  }
}

private[headwater] object BufferedOptions {
  val names: Seq[String] = Seq(
    "durability",
    "bufferBytes",
    "bufferRows",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "minRowsPerTrigger",
    "maxTriggerDelay",
    "availableNowWait",
    "failOnDataLoss"
  )

  def read(options: SourceOptions): BufferedOptions = {
    import SourceOptions._
    options.optional("durability", "memory")(oneOf("memory"))
    val limits = BufferedOptions(
      bufferBytes = options.optional("bufferBytes", 64L << 20)(bytes),
      bufferRows = options.optional("bufferRows", Long.MaxValue)(wholeNumber(1)),
      maxRowsPerTrigger = options.optional("maxRowsPerTrigger", Option.empty[Long])(some(wholeNumber(1))),
      maxBytesPerTrigger = options.optional("maxBytesPerTrigger", Option.empty[Long])(some(bytes)),
      minRowsPerTrigger = options.optional("minRowsPerTrigger", Option.empty[Long])(some(wholeNumber(1))),
      maxTriggerDelay = options.optional("maxTriggerDelay", minutes(15))(duration),
      availableNowWait = options.optional("availableNowWait", seconds(10))(duration),
      failOnDataLoss = options.optional("failOnDataLoss", true)(boolean)
    )
    for (min <- limits.minRowsPerTrigger; max <- limits.maxRowsPerTrigger if min > max)
      throw new InvalidOptionException(
        s"Option 'minRowsPerTrigger' is '$min', it must not be above 'maxRowsPerTrigger', which is '$max'."
      )
    limits
  }

  private def some[T](read: SourceOptions.Reader[T]): SourceOptions.Reader[Option[T]] =
    SourceOptions.Reader(read.allowed)(text => read.parse(text).map(Some(_)))

  private def seconds(n: Long): Long = n * 1000000000L
  private def minutes(n: Long): Long = seconds(60 * n)
}
