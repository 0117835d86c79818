package headwater.core

import java.time.{DateTimeException, Instant, OffsetDateTime}

import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.InvalidOptionException

/** The options of a partitioned source. Durations are in nanoseconds. */
private[headwater] final case class PartitionedOptions(
    startFrom: StartFrom,
    minPartitions: Int,
    limits: Limits,
    availableNowWait: Long,
    failOnDataLoss: Boolean,
    callTimeout: Long,
    python: PythonOptions
)

private[headwater] object PartitionedOptions {

  def read(options: SourceOptions): PartitionedOptions = {
    val names = OptionTable.partitioned
    options.set.find(!names.contains(_)).foreach { name =>
      throw new InvalidOptionException(
        s"Option '$name' means nothing for a source with partitions, whose rows wait where they come from. Its options are: " +
          s"${names.mkString(", ")}."
      )
    }
    PartitionedOptions(
      options.get[StartFrom]("startFrom"),
      options.get[Long]("minPartitions").toInt,
      Limits.read(options),
      options.get[Long]("availableNowWait"),
      options.get[Boolean]("failOnDataLoss"),
      options.get[Long]("callTimeout"),
      PythonOptions.read(options)
    )
  }

  /** Rejects the options that only partitioned sources have. */
  def rejectForFeeds(options: SourceOptions): Unit = {
    val ofFeeds = OptionTable.feed ++ OptionTable.python
    options.set.find(!ofFeeds.contains(_)).foreach { name =>
      throw new InvalidOptionException(s"Option '$name' is for sources with partitions only: leave it out.")
    }
  }
}

/** Where a partitioned source begins at its first start. */
private[headwater] sealed trait StartFrom {
  def writeTo(request: ObjectNode): Unit
}

private[headwater] object StartFrom {
  case object Earliest extends StartFrom {
    override def writeTo(request: ObjectNode): Unit = request.put("kind", "earliest")
  }

  case object Latest extends StartFrom {
    override def writeTo(request: ObjectNode): Unit = request.put("kind", "latest")
  }

  final case class At(time: Instant) extends StartFrom {
    override def writeTo(request: ObjectNode): Unit = request.put("kind", "at").put("time", time.toString)
  }

  final case class Offsets(byPartition: Map[String, Long]) extends StartFrom {
    override def writeTo(request: ObjectNode): Unit = {
      val offsets = request.put("kind", "vector").putObject("offsets")
      byPartition.foreach { case (partition, offset) => offsets.put(partition, offset) }
    }
  }

  val optionType: SourceOptions.OptionType[StartFrom] = SourceOptions.OptionType(
    "earliest, latest, a time with its zone such as 2026-01-31T12:00:00Z, or offsets by partition such as {\"0\": 17}"
  ) { text =>
    if (text.equalsIgnoreCase("earliest")) Some(Earliest)
    else if (text.equalsIgnoreCase("latest")) Some(Latest)
    else if (text.startsWith("{")) offsets(text)
    else
      try Some(At(OffsetDateTime.parse(text).toInstant))
      catch { case _: DateTimeException => None }
  }

  private def offsets(text: String): Option[StartFrom] = Try(OffsetJson.mapper.readTree(text)).toOption
    .map(_.fields.asScala.map(entry => entry.getKey -> VectorOffset.offsetOf(entry.getValue)).toSeq)
    .filter(_.forall { case (_, offset) => offset.nonEmpty })
    .map(offsets => Offsets(offsets.collect { case (partition, Some(offset)) => partition -> offset }.toMap))
}
