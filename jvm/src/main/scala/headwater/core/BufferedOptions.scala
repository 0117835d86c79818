package headwater.core

import headwater.InvalidOptionException

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
)

private[headwater] object BufferedOptions {

  /** @param defaultDurability the default of this source */
  def read(options: SourceOptions, defaultDurability: Durability): BufferedOptions = {
    val durability =
      if (options.set.contains("durability")) Durability.named(options.get("durability"))
      else defaultDurability
    val parsed = BufferedOptions(
      bufferBytes = options.get[Long]("bufferBytes"),
      bufferRows = options.find[Long]("bufferRows").getOrElse(Long.MaxValue),
      limits = Limits.read(options),
      availableNowWait = options.get[Long]("availableNowWait"),
      failOnDataLoss = options.get[Boolean]("failOnDataLoss"),
      durability = durability,
      logBytes = options.get[Long]("logBytes"),
      logCompression = options.get[String]("logCompression"),
      logRetainBatches = options.find[Long]("logRetainBatches").map(_.toInt),
      logRetainBytes = options.get[Long]("logRetainBytes")
    )
    val (memoryOptions, logOptions) =
      (OptionTable.withDurability(Durability.Memory), OptionTable.withDurability(Durability.Log))
    val unusedOptions = if (durability == Durability.Log) memoryOptions else logOptions
    options.set.find(unusedOptions.contains).foreach { name =>
      throw new InvalidOptionException(
        s"Option '$name' means nothing with durability '${durability.name}': ${memoryOptions.mkString(", ")} are for " +
          s"memory, ${logOptions.mkString(", ")} for log. Set durability, or leave '$name' out."
      )
    }
    parsed
  }
}
