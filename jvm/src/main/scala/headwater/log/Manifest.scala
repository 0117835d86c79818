package headwater.log

import java.io.IOException

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.JsonNode

/** Identifies a log. There is one for each epoch; the newest counts. A writer that finds a newer one than its own
  * has been replaced.
  *
  * @param run
  *   the run of this log, in every offset that refers to it
  * @param first
  *   the seq of its very first row
  * @param schema
  *   the Spark schema, as JSON
  * @param identity
  *   the options of the source that must not change
  */
private[headwater] final case class Manifest(
    source: String,
    run: String,
    epoch: Long,
    first: Long,
    shards: Int,
    schema: String,
    identity: Map[String, String]
) {
  def name: String = f"manifest-$epoch%08d.json"

  def json: String = {
    val tree =
      LogJson.mapper.createObjectNode().put("v", Manifest.Version).put("source", source).put("run", run)
    tree.put("epoch", epoch).put("first", first).put("shards", shards)
    tree.set[JsonNode]("schema", LogJson.mapper.readTree(schema))
    val identityNode = tree.putObject("identity")
    identity.toSeq.sorted.foreach { case (option, value) => identityNode.put(option, value) }
    tree.toString
  }
}

private[headwater] object Manifest {
  val Version = 1

  private val Name = """manifest-(\d{8})\.json""".r

  def epochOf(name: String): Option[Long] = name match {
    case Name(epoch) => Some(epoch.toLong)
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
  private[log] def names(files: LogFolder): Seq[String] = files.list().filter(epochOf(_).nonEmpty).sorted

  private def isJson(text: String): Boolean =
    try LogJson.mapper.readTree(text).isObject
    catch { case _: IOException => false }

  def parse(json: String): Manifest = {
    val tree =
      try LogJson.mapper.readTree(json)
      catch {
        case e: JsonProcessingException =>
          throw new IllegalArgumentException(s"it is not JSON (${e.getOriginalMessage})")
      }
    def field(name: String): JsonNode =
      Option(tree.get(name)).getOrElse(throw new IllegalArgumentException(s"the field '$name' is missing"))
    val version = field("v").asLong
    if (version != Version)
      throw new IllegalArgumentException(
        s"it has version $version, this headwater reads version $Version only"
      )
    Manifest(
      field("source").asText,
      field("run").asText,
      field("epoch").asLong,
      field("first").asLong,
      field("shards").asInt,
      field("schema").toString,
      field("identity").fields.asScala.map(entry => entry.getKey -> entry.getValue.asText).toMap
    )
  }

  private val MaxBytes = 64L << 20
}
