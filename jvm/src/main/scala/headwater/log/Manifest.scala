package headwater.log

import java.io.IOException

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

/** Whose log it is. One for each epoch; the newest counts, and whoever finds a newer one than its own has been replaced.
  *
  * @param run
  *   the life of this log, in every offset that points into it
  * @param first
  *   the seq of its very first row
  * @param schema
  *   Spark's, as JSON
  * @param identity
  *   options of the source that must not change
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
    val marked = tree.putObject("identity")
    identity.toSeq.sorted.foreach { case (option, value) => marked.put(option, value) }
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

  /** The newest one. One that was not written to its end does not count if there is another: not every file system writes
    * a file whole or not at all.
    */
  def read(files: LogFiles): Option[Manifest] = {
    val texts =
      names(files).sorted.reverseIterator.map(name => name -> files.text(name, MaxBytes)).to(LazyList)
    texts.find { case (_, text) => isJson(text) }.orElse(texts.headOption).map { case (name, text) =>
      try parse(text)
      catch {
        case e: RuntimeException => throw new DamagedException(s"${files.pathOf(name)} is damaged: $e")
      }
    }
  }

  /** Of all manifests that are there, whatever stands in them; 0 if there is none. */
  def newestEpoch(files: LogFiles): Long = names(files).flatMap(epochOf(_)).maxOption.getOrElse(0L)

  private def names(files: LogFiles): Seq[String] = files.list().filter(epochOf(_).nonEmpty)

  private def isJson(text: String): Boolean =
    try LogJson.mapper.readTree(text).isObject
    catch { case _: IOException => false }

  def parse(json: String): Manifest = {
    val tree =
      try LogJson.mapper.readTree(json)
      catch { case e: IOException => throw new IllegalArgumentException(s"it is not JSON ($e)") }
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
