package headwater.partition

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import javax.annotation.concurrent.GuardedBy

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import headwater.InvalidOffsetException
import headwater.core.{OffsetJson, PartitionKeyType, Positions, VectorOffset}
import headwater.log.{Identity, LogFiles}
import org.apache.spark.internal.Logging

/** Where each partition began, in files of the folder that Spark gives a source. A position is written before it is used,
  * so that the batch which begins there begins there again whenever it is run: `latest` or a time would give another
  * answer by then. There is a file for the partitions of the first start, and one more whenever new ones appear.
  *
  * @param identity
  *   options of the source that must not change
  */
private[headwater] final class StartPositions(files: LogFiles, source: String, identity: Map[String, String])
    extends AutoCloseable
    with Logging {
  import StartPositions._

  private[this] val held = files.lock()

  @GuardedBy("this") private[this] var number = 0L
  @GuardedBy("this") private[this] var known: Option[Positions] = None

  try read()
  catch { case e: Throwable => held.close(); throw e }

  def all: Map[String, Long] = synchronized(known).fold(Map.empty[String, Long])(_.at)

  def naming: Option[PartitionKeyType] = synchronized(known).map(_.naming)

  /** Durable on return. */
  def add(starts: Positions): Unit = synchronized {
    if (known.exists(_.naming != starts.naming)) throw changedNaming(known.get.naming, starts.naming)
    number += 1
    val tree = OffsetJson.mapper.createObjectNode().put("v", Version).put("source", source)
    val marked = tree.putObject("identity")
    identity.toSeq.sorted.foreach { case (option, value) => marked.put(option, value) }
    val offsets = tree.put("partitions", starts.naming.name).putObject("starts")
    starts.at.foreach { case (partition, offset) => offsets.put(partition, offset) }
    files.writeWhole(nameOf(number), tree.toString.getBytes(UTF_8))
    known = Some(known.fold(starts)(_.orElse(starts.at)))
  }

  def changedNaming(was: PartitionKeyType, is: PartitionKeyType): InvalidOffsetException = new InvalidOffsetException(
    s"The partitions of source '$source' were called by ${was.allowed} and are called by ${is.allowed} now: offsets of the " +
      "checkpoint cannot be told apart. Put it back as it was, or start the query with a new checkpoint."
  )

  override def close(): Unit = held.close()

  private def read(): Unit = {
    val numbers = files.list().flatMap(numberOf).sorted
    number = numbers.lastOption.getOrElse(0L)
    numbers.foreach { n =>
      val path = files.pathOf(nameOf(n))
      val text = files.text(nameOf(n), MaxBytes)
      try take(OffsetJson.mapper.readTree(text))
      catch {
        // Not every file system writes a file whole or not at all. What was not written to its end was never used.
        case e: IOException if n == number =>
          logWarning(s"$path is not whole, and is left out: $e")
        case e @ (_: IOException | _: IllegalStateException) =>
          throw new InvalidOffsetException(s"$path is damaged: ${e.getMessage}", e)
      }
    }
  }

  private def take(tree: JsonNode): Unit = {
    if (!tree.isObject) throw new IOException("it is no JSON object")
    def field(name: String): JsonNode =
      Option(tree.get(name)).getOrElse(throw new IllegalStateException(s"the field '$name' is missing"))
    if (field("v").asLong != Version)
      throw new IllegalStateException(
        s"it has version ${field("v")}, this headwater (${headwater.Version.current}) reads version $Version only"
      )
    if (field("source").asText != source)
      refuse(s"it was '${field("source").asText}' and is '$source' now")
    val was = field("identity").fields.asScala.map(entry => entry.getKey -> entry.getValue.asText).toMap
    Identity.changedOption(was, identity).foreach(refuse)
    val naming = PartitionKeyType
      .named(field("partitions").asText)
      .getOrElse(throw new IllegalStateException(s"'partitions' is ${field("partitions")}"))
    val starts = field("starts").fields.asScala.map { entry =>
      entry.getKey -> VectorOffset
        .offsetOf(entry.getValue)
        .filter(_ => naming.isPartition(entry.getKey))
        .getOrElse(throw new IllegalStateException(s"the start of '${entry.getKey}' is ${entry.getValue}"))
    }.toMap
    known = Some(Positions(naming, starts ++ all))
  }

  private def refuse(what: String): Nothing = throw new InvalidOffsetException(
    s"The checkpoint was written by another source: $what. Start the query with a new checkpoint, or put it back as it was."
  )
}

private[headwater] object StartPositions {
  private val Version = 1
  private val MaxBytes = 256L << 20
  private val Name = """start-(\d{8})\.json""".r

  private def nameOf(number: Long): String = f"start-$number%08d.json"

  private def numberOf(name: String): Option[Long] = name match {
    case Name(number) => Some(number.toLong)
    case _ => None
  }
}
