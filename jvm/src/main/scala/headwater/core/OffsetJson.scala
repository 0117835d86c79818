package headwater.core

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.{JsonProcessingException, StreamReadFeature}
import com.fasterxml.jackson.databind.{DeserializationFeature, JsonNode}
import com.fasterxml.jackson.databind.json.JsonMapper
import headwater.{InvalidOffsetException, Version}

/** The JSON of an offset, parsed strictly: this version and these fields, no others.
  *
  * @throws InvalidOffsetException
  *   from every method, states what is wrong with the string
  */
private[headwater] final class OffsetJson(
    json: String,
    version: Int,
    required: Seq[String],
    known: Seq[String]
) {
  import OffsetJson._

  private[this] val tree =
    try mapper.readTree(json)
    catch { case e: JsonProcessingException => fail(s"it is not JSON (${e.getOriginalMessage})", e) }

  if (!tree.isObject) fail(s"it must be a JSON object with the fields ${required.mkString(", ")}")
  if (long("v") != version)
    fail(s"it has version ${long("v")}, this headwater (${Version.current}) reads version $version only")

  private[this] val unknown = tree.fieldNames.asScala.filterNot(known.contains).toSeq
  if (unknown.nonEmpty) fail(s"unknown field ${unknown.map(shorten).mkString("'", "', '", "'")}")

  def has(name: String): Boolean = tree.has(name)

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
      fail(s"'$name' is ${shorten(node.toString)}, it must be an integer from 0 to ${Long.MaxValue}")
    node.longValue
  }

  /** Spark compares offsets as strings, so another spelling would be another position. */
  def requireCanonical(canonical: String): Unit =
    if (canonical != json) fail(s"it must be written as $canonical")

  def fail(why: String, cause: Throwable = null): Nothing =
    throw new InvalidOffsetException(s"Not a headwater offset: $why. The offset is ${shorten(json)}", cause)
}

private[headwater] object OffsetJson {
  val mapper: JsonMapper = JsonMapper
    .builder()
    .enable(StreamReadFeature.STRICT_DUPLICATE_DETECTION)
    .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
    .build()

  val sourceName = "a source name: a letter, then up to 63 letters, digits or _"

  /** @throws InvalidOffsetException when the offset belongs to another source */
  def checkSource(writtenBy: String, readBy: String, offset: String): Unit = if (writtenBy != readBy)
    throw new InvalidOffsetException(
      s"The checkpoint belongs to source '$writtenBy' and is read by source '$readBy'. The sources of a query " +
        s"must stay the same, in the same order. The offset is $offset"
    )

  def shorten(text: String): String = if (text.length <= 200) text else text.take(200) + "…"
}
