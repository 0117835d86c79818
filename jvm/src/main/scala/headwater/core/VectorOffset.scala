package headwater.core

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

/** The position of a partitioned source: the next offset to read in each partition.
  *
  * Like [[SeqOffset]] it has exactly one spelling, since Spark compares strings: one line, these fields, this
  * order, partitions sorted by their [[PartitionKeyType]], which the field `partitions` names. The field names
  * are a promise; a golden file guards them.
  */
final case class VectorOffset(source: String, next: Positions) extends StreamOffset {
  require(SeqOffset.isName(source), s"not a source name: '$source'")

  override val json: String = {
    val tree = OffsetJson.mapper.createObjectNode().put("v", VectorOffset.FormatVersion).put("source", source)
    val offsets = tree.put("partitions", next.keyType.name).putObject("next")
    next.at.foreach { case (partition, offset) => offsets.put(partition, offset) }
    tree.toString
  }

  override def toString: String = json
}

object VectorOffset {
  val FormatVersion = 1

  private val fields = Seq("v", "source", "partitions", "next")

  /** Accepts exactly what [[VectorOffset.json]] writes.
    *
    * @throws InvalidOffsetException
    *   states what is wrong with the string
    */
  def parse(json: String): VectorOffset = {
    val parsed = new OffsetJson(json, FormatVersion, fields, fields)
    val source = parsed.text("source", SeqOffset.isName, OffsetJson.sourceName)
    val keyType = PartitionKeyType
      .named(
        parsed.text(
          "partitions",
          PartitionKeyType.named(_).nonEmpty,
          PartitionKeyType.all.map(_.name).mkString(" or ")
        )
      )
      .get
    val next = parsed.field("next")
    if (!next.isObject || next.isEmpty)
      parsed.fail("'next' must be an object with an offset for each partition")
    val offsets = next.fields.asScala.map { entry =>
      if (!keyType.isPartition(entry.getKey))
        parsed.fail(
          s"'next' has a partition '${OffsetJson.shorten(entry.getKey)}', it must be ${keyType.allowed}"
        )
      entry.getKey -> offsetOf(entry.getValue).getOrElse(
        parsed.fail(
          s"the offset of partition '${entry.getKey}' is ${OffsetJson.shorten(entry.getValue.toString)}, it must be an " +
            s"integer from 0 to ${Long.MaxValue}"
        )
      )
    }
    val offset = VectorOffset(source, Positions(keyType, offsets.toSeq))
    parsed.requireCanonical(offset.json)
    offset
  }

  private[headwater] def offsetOf(node: JsonNode): Option[Long] =
    Option.when(node.isIntegralNumber && node.canConvertToLong && node.longValue >= 0)(node.longValue)
}
