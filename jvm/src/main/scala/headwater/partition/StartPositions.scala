package headwater.partition

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import javax.annotation.concurrent.GuardedBy

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.JsonNode
import headwater.InvalidOffsetException
import headwater.core.{OffsetJson, PartitionKeyType, Positions, VectorOffset}
import headwater.log.{Identity, LogFiles, LogFolder}
import org.apache.spark.internal.Logging

/** Where each partition began, in files of the source's folder in the checkpoint. A position is stored before it
  * is used: a batch that begins there begins at the same position whenever it is run again, although `latest` or
  * a timestamp would yield another one by then. There is one file for the first start, and one more whenever
  * partitions are added.
  *
  * @param identity
  *   the options of the source that must not change
  */
private[headwater] final class StartPositions(files: LogFiles, source: String, identity: Map[String, String])
    extends AutoCloseable
    with Logging {
  import StartPositions._

  private[this] val lock = files.lock()

  @GuardedBy("this") private[this] var number = 0L
  @GuardedBy("this") private[this] var known: Option[Positions] = None

  try read()
  catch { case e: Throwable => lock.close(); throw e }

  def all: Map[String, Long] = synchronized(known).fold(Map.empty[String, Long])(_.at)

  def keyType: Option[PartitionKeyType] = synchronized(known).map(_.keyType)

  /** Durable on return. */
  def add(starts: Positions): Unit = synchronized {
    if (known.exists(_.keyType != starts.keyType)) throw keyTypeChanged(known.get.keyType, starts.keyType)
    number += 1
    val tree = OffsetJson.mapper.createObjectNode().put("v", Version).put("source", source)
    val identityNode = tree.putObject("identity")
    identity.toSeq.sorted.foreach { case (option, value) => identityNode.put(option, value) }
    val offsets = tree.put("partitions", starts.keyType.name).putObject("starts")
    starts.at.foreach { case (partition, offset) => offsets.put(partition, offset) }
    files.writeAtomically(nameOf(number), tree.toString.getBytes(UTF_8))
    known = Some(known.fold(starts)(_.orElse(starts.at)))
  }

  def keyTypeChanged(was: PartitionKeyType, is: PartitionKeyType): InvalidOffsetException =
    new InvalidOffsetException(
      s"The partitions of source '$source' were called by ${was.allowed} and are called by ${is.allowed} now: offsets of the " +
        "checkpoint cannot be told apart. Put it back as it was, or start the query with a new checkpoint."
    )

  override def close(): Unit = lock.close()

  private def read(): Unit = {
    val numbers = files.list().flatMap(numberOf).sorted
    numbers.foreach { n =>
      val path = files.pathOf(nameOf(n))
      try {
        load(StartFile.read(files, nameOf(n)))
        number = n
      } catch {
        // Not every file system writes files atomically. A file that is incomplete was never used. It is deleted, since
        // it would count as damaged once another file follows it.
        case e: IncompleteFileException if n == numbers.last =>
          logWarning(s"$path is incomplete, and is deleted: ${e.getMessage}")
          files.delete(nameOf(n))
        case e @ (_: IncompleteFileException | _: IllegalStateException) =>
          throw new InvalidOffsetException(s"$path is damaged: ${e.getMessage}", e)
      }
    }
  }

  private def load(file: StartFile): Unit = {
    if (file.source != source) refuse(s"it was '${file.source}' and is '$source' now")
    Identity.changedOption(file.identity, identity).foreach(refuse)
    known = Some(Positions(file.keyType, file.starts ++ all))
  }

  private def refuse(what: String): Nothing = throw new InvalidOffsetException(
    s"The checkpoint was written by another source: $what. Start the query with a new checkpoint, or put it back as it was."
  )
}

private[headwater] object StartPositions {
  private val Version = 1
  private val MaxBytes = 256L << 20
  private val Name = """start-(\d{8})\.json""".r

  /** The files of a folder, in the order in which they were written. */
  def names(folder: LogFolder): Seq[String] = folder.list().flatMap(numberOf).sorted.map(nameOf)

  private def nameOf(number: Long): String = f"start-$number%08d.json"

  private def numberOf(name: String): Option[Long] = name match {
    case Name(number) => Some(number.toLong)
    case _ => None
  }

  /** A file that is not JSON to its end. */
  final class IncompleteFileException(message: String) extends IOException(message)

  /** The content of one file. */
  final case class StartFile(
      source: String,
      identity: Map[String, String],
      keyType: PartitionKeyType,
      starts: Map[String, Long]
  )

  object StartFile {

    /** @throws IncompleteFileException
      *   when the file is not JSON: if it is the last one, it was not written to its end
      * @throws IllegalStateException
      *   when it is another format
      */
    def read(folder: LogFolder, name: String): StartFile = {
      val text = folder.text(name, MaxBytes)
      val tree =
        try OffsetJson.mapper.readTree(text)
        catch { case e: JsonProcessingException => throw new IncompleteFileException(e.getOriginalMessage) }
      if (!tree.isObject) throw new IncompleteFileException("it is not a JSON object")
      def field(name: String): JsonNode =
        Option(tree.get(name)).getOrElse(throw new IllegalStateException(s"the field '$name' is missing"))
      if (field("v").asLong != Version)
        throw new IllegalStateException(
          s"it has version ${field("v")}, this headwater (${headwater.Version.current}) reads version $Version only"
        )
      val identity =
        field("identity").fields.asScala.map(entry => entry.getKey -> entry.getValue.asText).toMap
      val keyType = PartitionKeyType
        .named(field("partitions").asText)
        .getOrElse(throw new IllegalStateException(s"'partitions' is ${field("partitions")}"))
      val starts = field("starts").fields.asScala.map { entry =>
        entry.getKey -> VectorOffset
          .offsetOf(entry.getValue)
          .filter(_ => keyType.isPartition(entry.getKey))
          .getOrElse(throw new IllegalStateException(s"the start of '${entry.getKey}' is ${entry.getValue}"))
      }.toMap
      StartFile(field("source").asText, identity, keyType, starts)
    }
  }
}
