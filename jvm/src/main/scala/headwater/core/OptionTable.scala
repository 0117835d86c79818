package headwater.core

import scala.jdk.CollectionConverters._
import scala.util.Using

import com.fasterxml.jackson.databind.JsonNode

/** The options of every source: names, types, defaults, and which sources have them.
  *
  * The table is a data file of the Python package, `options.json`, which the build puts into the jar. Python's
  * `hw.stream`, the names that authors must not use, and the documentation read the same file.
  */
private[headwater] object OptionTable {
  import SourceOptions._

  /** @param durability
    *   the option is only for sources with this durability
    * @param default
    *   as a user would write it
    */
  final case class Entry(
      name: String,
      sources: Set[String],
      durability: Option[String],
      optionType: OptionType[_],
      default: Option[String]
  )

  val all: Seq[Entry] = Using.resource(getClass.getResourceAsStream("/headwater/options.json")) { in =>
    Json.mapper.readTree(in).elements.asScala.map(entryOf).toVector
  }

  private val byName: Map[String, Entry] = all.map(entry => entry.name -> entry).toMap

  def apply(name: String): Entry = byName(name)

  /** Those of every feed. */
  val feed: Seq[String] = namesFor("feed")

  /** Those that feeds written in Python have beside [[feed]]. */
  val python: Seq[String] = namesFor("python")

  val partitioned: Seq[String] = namesFor("partitioned")

  /** Those of feeds with this durability only. */
  def withDurability(durability: Durability): Seq[String] =
    all.filter(_.durability.contains(durability.name)).map(_.name)

  private def namesFor(source: String): Seq[String] = all.filter(_.sources(source)).map(_.name)

  private def entryOf(node: JsonNode): Entry = Entry(
    node.path("name").asText,
    texts(node.path("sources")).toSet,
    text(node.path("durability")),
    typeOf(node),
    text(node.path("default"))
  )

  private def typeOf(node: JsonNode): OptionType[_] = node.path("type").asText match {
    case "integer" => integer(node.path("min").asLong, node.path("max").asLong(Long.MaxValue))
    case "bytes" => bytes
    case "duration" => duration
    case "boolean" => boolean
    case "choice" => oneOf(texts(node.path("choices")): _*)
    case "cursor" => OptionType("a cursor, as JSON")(value => Some(value).filter(_.nonEmpty))
    case "startFrom" => StartFrom.optionType
    case other => throw new IllegalStateException(s"an option of the unknown type '$other'")
  }

  private def texts(node: JsonNode): Seq[String] = node.elements.asScala.map(_.asText).toSeq

  private def text(node: JsonNode): Option[String] = Option.when(node.isTextual)(node.asText)
}
