package headwater.log

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.JsonNode

/** Identifies a log. There is one for each epoch; the newest counts. A writer that finds a newer one than its own
  * has been replaced.
  *
  * @param run
  *   the run of this log, in every offset that refers to it
  * @param key
  *   the secret to which the frames of this log are bound, see [[FrameFormat.V2]]; empty in version 1
  * @param first
  *   the seq of its very first row
  * @param next
  *   all rows before this seq were durable when the manifest was written; `first` in version 1
  * @param schema
  *   the Spark schema, as JSON
  * @param identity
  *   the options of the source that must not change
  */
private[headwater] final case class Manifest(
    source: String,
    run: String,
    key: String,
    epoch: Long,
    first: Long,
    next: Long,
    shards: Int,
    schema: String,
    identity: Map[String, String]
) {
  def name: String = f"manifest-$epoch%08d.json"

  /** The last field is the checksum of the others. */
  def json: String = {
    val tree = LogJson.mapper.createObjectNode().put("v", Manifest.Version)
    tree.put("source", source).put("run", run).put("key", key)
    tree.put("epoch", epoch).put("first", first).put("next", next).put("shards", shards)
    tree.set[JsonNode]("schema", LogJson.mapper.readTree(schema))
    val identityNode = tree.putObject("identity")
    identity.toSeq.sorted.foreach { case (option, value) => identityNode.put(option, value) }
    val fields = tree.toString.dropRight(1)
    s"$fields${Manifest.Checksum}${Manifest.checksumOf(fields)}}"
  }
}

private[headwater] object Manifest {

  /** The version that is written. */
  val Version = 2

  private val Name = """manifest-(\d{8,15})\.json""".r

  def epochOf(name: String): Option[Long] = name match {
    case Name(epoch) => Some(epoch.toLong).filter(number => f"$number%08d" == epoch)
    case _ => None
  }

  /** The newest manifest. An incomplete one does not count if there is another: not every file system writes
    * files atomically.
    */
  def read(files: LogFolder): Option[Manifest] = newest(files).map { case (name, text) =>
    try parse(text)
    catch {
      case e: RuntimeException => throw new DamagedException(s"${files.pathOf(name)} is damaged: $e")
    }
  }

  /** The file that [[read]] chooses, and its content. */
  private[log] def newest(files: LogFolder): Option[(String, String)] = {
    val texts = names(files).reverseIterator.map(name => name -> files.text(name, MaxBytes)).to(LazyList)
    texts.find { case (_, text) => isJson(text) }.orElse(texts.headOption)
  }

  /** The newest epoch of all manifests, whatever they contain; 0 if there are none. */
  def newestEpoch(files: LogFolder): Long = names(files).flatMap(epochOf(_)).maxOption.getOrElse(0L)

  /** By epoch. */
  private[log] def names(files: LogFolder): Seq[String] =
    files.list().filter(epochOf(_).nonEmpty).sortBy(epochOf(_))

  private def isJson(text: String): Boolean =
    try LogJson.mapper.readTree(text).isObject
    catch { case _: IOException | _: NumberFormatException => false } // of a number with a huge exponent

  def parse(json: String): Manifest = {
    val tree =
      try LogJson.mapper.readTree(json)
      catch {
        case e: JsonProcessingException =>
          throw new IllegalArgumentException(s"it is not JSON (${e.getOriginalMessage})")
      }
    def field(name: String): JsonNode =
      Option(tree.get(name)).getOrElse(throw new IllegalArgumentException(s"the field '$name' is missing"))
    def number(name: String): Long = {
      val value = field(name).asLong(-1)
      if (value < 0 || value > Frame.MaxSeq)
        throw new IllegalArgumentException(s"the field '$name' is ${field(name)}")
      value
    }
    val version = field("v").asLong
    if (version < 1 || version > Version)
      throw new IllegalArgumentException(
        s"it has version $version, this headwater reads versions 1 to $Version"
      )
    val isFirstVersion = version == 1 && !tree.has("crc") // which had no checksum
    if (!isFirstVersion && !hasChecksum(json)) throw new IllegalArgumentException("its checksum is wrong")
    val key = if (isFirstVersion) "" else field("key").asText
    if (!isFirstVersion && !Key.isKey(key)) throw new IllegalArgumentException("the field 'key' is not a key")
    Manifest(
      field("source").asText,
      field("run").asText,
      key,
      number("epoch"),
      number("first"),
      number(if (isFirstVersion) "first" else "next"),
      number("shards").min(Int.MaxValue.toLong).toInt,
      field("schema").toString,
      field("identity").fields.asScala.map(entry => entry.getKey -> entry.getValue.asText).toMap
    )
  }

  private def hasChecksum(json: String): Boolean = {
    val end = json.lastIndexOf(Checksum)
    end >= 0 && json.substring(end).trim == s"$Checksum${checksumOf(json.substring(0, end))}}"
  }

  private def checksumOf(fields: String): Long = {
    val bytes = s"$fields}".getBytes(UTF_8)
    Integer.toUnsignedLong(Frame.crcOf(bytes, 0, bytes.length))
  }

  private val Checksum = ",\"crc\":"
  private val MaxBytes = 16L << 20
}
