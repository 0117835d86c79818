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
    failOnDataLoss: Boolean,
    durability: Durability,
    logBytes: Long,
    logCompression: String,
    logRetainBatches: Option[Int],
    logRetainBytes: Long
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
    "failOnDataLoss",
    "logBytes",
    "logCompression",
    "logRetainBatches",
    "logRetainBytes"
  )

  private val ofMemory = Seq("bufferBytes", "bufferRows")
  private val ofLog = Seq("logBytes", "logCompression", "logRetainBatches", "logRetainBytes")

  def read(options: SourceOptions, durability: Durability): BufferedOptions = {
    import SourceOptions._
    val read = BufferedOptions(
      bufferBytes = options.optional("bufferBytes")(bytes).getOrElse(64L << 20),
      bufferRows = options.optional("bufferRows")(wholeNumber(1)).getOrElse(Long.MaxValue),
      maxRowsPerTrigger = options.optional("maxRowsPerTrigger")(wholeNumber(1)),
      maxBytesPerTrigger = options.optional("maxBytesPerTrigger")(bytes),
      minRowsPerTrigger = options.optional("minRowsPerTrigger")(wholeNumber(1)),
      maxTriggerDelay = options.optional("maxTriggerDelay")(duration).getOrElse(TimeUnit.MINUTES.toNanos(15)),
      availableNowWait =
        options.optional("availableNowWait")(duration).getOrElse(TimeUnit.SECONDS.toNanos(10)),
      failOnDataLoss = options.optional("failOnDataLoss")(boolean).getOrElse(true),
      durability = options.optional("durability")(oneOf("log", "memory")).fold(durability)(Durability.named),
      logBytes = options.optional("logBytes")(bytes).getOrElse(4L << 30),
      logCompression = options.optional("logCompression")(oneOf("none", "lz4", "zstd")).getOrElse("none"),
      logRetainBatches = options.optional("logRetainBatches")(wholeNumber(0, 1000000)).map(_.toInt),
      logRetainBytes = options.optional("logRetainBytes")(bytes).getOrElse(1L << 30)
    )
    val idle = if (read.durability == Durability.Log) ofMemory else ofLog
    options.set.find(idle.contains).foreach { name =>
      throw new InvalidOptionException(
        s"Option '$name' means nothing with durability '${read.durability.name}': ${ofMemory.mkString(", ")} are for " +
          s"memory, ${ofLog.mkString(", ")} for log. Set durability, or leave '$name' out."
      )
    }
    for (min <- read.minRowsPerTrigger; max <- read.maxRowsPerTrigger if min > max)
      throw new InvalidOptionException(
        s"Option 'minRowsPerTrigger' is '$min', it must not be above 'maxRowsPerTrigger', which is '$max'."
      )
    read
  }
}
