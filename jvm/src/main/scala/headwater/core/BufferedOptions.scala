package headwater.core

import java.util.concurrent.TimeUnit

import headwater.InvalidOptionException
import org.apache.spark.sql.connector.read.streaming.ReadLimit

/** The options of every source that runs as a feed with a buffer. Durations are in nanoseconds. */
private[headwater] final case class BufferedOptions(
    bufferBytes: Long,
    bufferRows: Long,
    limits: Limits,
    availableNowWait: Long,
    failOnDataLoss: Boolean,
    durability: Durability,
    logBytes: Long,
    logCompression: String,
    logRetainBatches: Option[Int],
    logRetainBytes: Long
) {
  def readLimit: ReadLimit = limits.readLimit
}

private[headwater] object BufferedOptions {
  private val memoryOptions = Seq("bufferBytes", "bufferRows")
  private val logOptions = Seq("logBytes", "logCompression", "logRetainBatches", "logRetainBytes")

  val names: Seq[String] =
    Seq("durability") ++ memoryOptions ++ Limits.names ++ Seq(
      "availableNowWait",
      "failOnDataLoss"
    ) ++ logOptions

  def read(options: SourceOptions, durability: Durability): BufferedOptions = {
    import SourceOptions._
    val parsed = BufferedOptions(
      bufferBytes = options.optional("bufferBytes")(bytes).getOrElse(64L << 20),
      bufferRows = options.optional("bufferRows")(integer(1)).getOrElse(Long.MaxValue),
      limits = Limits.read(options),
      availableNowWait =
        options.optional("availableNowWait")(duration).getOrElse(TimeUnit.SECONDS.toNanos(10)),
      failOnDataLoss = options.optional("failOnDataLoss")(boolean).getOrElse(true),
      durability = options.optional("durability")(oneOf("log", "memory")).fold(durability)(Durability.named),
      logBytes = options.optional("logBytes")(bytes).getOrElse(4L << 30),
      logCompression = options.optional("logCompression")(oneOf("none", "lz4", "zstd")).getOrElse("none"),
      logRetainBatches = options.optional("logRetainBatches")(integer(0, 1000000)).map(_.toInt),
      logRetainBytes = options.optional("logRetainBytes")(bytes).getOrElse(1L << 30)
    )
    val unusedOptions = if (parsed.durability == Durability.Log) memoryOptions else logOptions
    options.set.find(unusedOptions.contains).foreach { name =>
      throw new InvalidOptionException(
        s"Option '$name' means nothing with durability '${parsed.durability.name}': ${memoryOptions.mkString(", ")} are for " +
          s"memory, ${logOptions.mkString(", ")} for log. Set durability, or leave '$name' out."
      )
    }
    parsed
  }
}
