package headwater

import java.util.concurrent.TimeUnit

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
      minRowsPerTrigger.map(ReadLimit.minRows(_, TimeUnit.NANOSECONDS.toMillis(maxTriggerDelay)))
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
    options.optional("durability")(oneOf("memory")) // there is no other yet
    val read = BufferedOptions(
      bufferBytes = options.optional("bufferBytes")(bytes).getOrElse(64L << 20),
      bufferRows = options.optional("bufferRows")(wholeNumber(1)).getOrElse(Long.MaxValue),
      maxRowsPerTrigger = options.optional("maxRowsPerTrigger")(wholeNumber(1)),
      maxBytesPerTrigger = options.optional("maxBytesPerTrigger")(bytes),
      minRowsPerTrigger = options.optional("minRowsPerTrigger")(wholeNumber(1)),
      maxTriggerDelay = options.optional("maxTriggerDelay")(duration).getOrElse(TimeUnit.MINUTES.toNanos(15)),
      availableNowWait =
        options.optional("availableNowWait")(duration).getOrElse(TimeUnit.SECONDS.toNanos(10)),
      failOnDataLoss = options.optional("failOnDataLoss")(boolean).getOrElse(true)
    )
    for (min <- read.minRowsPerTrigger; max <- read.maxRowsPerTrigger if min > max)
      throw new InvalidOptionException(
        s"Option 'minRowsPerTrigger' is '$min', it must not be above 'maxRowsPerTrigger', which is '$max'."
      )
    read
  }
}
