package headwater

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.{JsonProcessingException, StreamReadFeature}
import com.fasterxml.jackson.databind.{DeserializationFeature, JsonNode}
import com.fasterxml.jackson.databind.json.JsonMapper
import org.apache.spark.sql.execution.streaming.Offset

/** The position after row `seq` of a source's stream.
  *
  * Spark writes [[json]] to its offset log, and compares offsets by that text, so there is one way only to write an
  * offset: one line, these fields, this order. `run` says which life of the feed the row belongs to (a feed that keeps
  * its rows in memory cannot serve the rows of an earlier run), `source` stops a checkpoint from being read by another
  * source, and `durability` says that the row is in the log; without it, it was in memory. The names are a promise; a golden file guards them.
  *
  * It extends Spark's V1 class: an offset that extends only the V2 class is silently taken for "no data".
  */
final case class SeqOffset(source: String, run: String, seq: Long, durability: Durability = Durability.Memory)
    extends Offset {
  require(SeqOffset.isName(source), s"not a source name: '$source'")
  require(SeqOffset.isRun(run), s"not a run: '$run'")
  require(seq >= 0, s"not a seq: $seq")

  // Neither a name nor a run can hold a character that JSON escapes.
  override val json: String =
    s"""{"v":${SeqOffset.FormatVersion},"source":"$source","run":"$run","seq":$seq$where}"""

  private def where: String = durability match {
    case Durability.Memory => ""
    case kept => s""","durability":"${kept.name}""""
  }

  override def toString: String = json
}

object SeqOffset {
  val FormatVersion = 1

  def isName(text: String): Boolean = text.matches("[A-Za-z][A-Za-z0-9_]{0,63}")
  def isRun(text: String): Boolean = text.matches("[0-9a-f]{16}")

  private val fields = Seq("v", "source", "run", "seq", "durability")

  private val mapper = JsonMapper
    .builder()
    .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
    .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
    .build()

  /** Reads what [[SeqOffset.json]] wrote, and nothing else.
    *
    * @throws InvalidOffsetException
    *   says what is wrong with the text
    */
  def parse(json: String): SeqOffset = {
    def fail(why: String, cause: Throwable = null): Nothing =
      throw new InvalidOffsetException(s"Not a headwater offset: $why. The offset is ${shorten(json)}", cause)

    val tree =
      try mapper.readTree(json)
      catch { case e: JsonProcessingException => fail(s"it is not JSON (${e.getOriginalMessage})", e) }
    if (!tree.isObject) fail(s"it must be a JSON object with the fields ${fields.init.mkString(", ")}")

    def field(name: String): JsonNode =
      Option(tree.get(name)).getOrElse(fail(s"the field '$name' is missing"))
    def text(name: String, isValid: String => Boolean, allowed: String): String = {
      val node = field(name)
      if (!node.isTextual || !isValid(node.textValue))
        fail(s"'$name' is ${shorten(node.toString)}, it must be $allowed")
      node.textValue
    }
    def long(name: String): Long = {
      val node = field(name)
      if (!node.isIntegralNumber || !node.canConvertToLong || node.longValue < 0)
        fail(s"'$name' is ${shorten(node.toString)}, it must be a whole number from 0 to ${Long.MaxValue}")
      node.longValue
    }

    val version = long("v")
    if (version != FormatVersion)
      fail(s"it has version $version, this headwater (${Version.current}) reads version $FormatVersion only")
    val unknown = tree.fieldNames.asScala.filterNot(fields.contains).toSeq
    if (unknown.nonEmpty) fail(s"unknown field ${unknown.map(shorten).mkString("'", "', '", "'")}")

    val offset = SeqOffset(
      text("source", isName, "a source name: a letter, then up to 63 letters, digits or _"),
      text("run", isRun, "16 lower-case hexadecimal digits"),
      long("seq"),
      if (tree.has("durability"))
        Durability.named(text("durability", _ == Durability.Log.name, "\"log\", or left out"))
      else Durability.Memory
    )
    // Spark would take it for another position than ours.
    if (offset.json != json) fail(s"it must be written as ${offset.json}")
    offset
  }

  private def shorten(text: String): String = if (text.length <= 200) text else text.take(200) + "…"
}
