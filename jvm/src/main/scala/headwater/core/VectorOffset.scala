package headwater.core

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.execution.streaming.Offset

/** The position of a partitioned source: the next offset to be read of each partition.
  *
  * As with [[SeqOffset]] there is one way only to write it, since Spark compares the texts: one line, these fields, this
  * order, numbers in the order of numbers and names in that of their characters. `partitions` says which of the two they
  * are. The names are a promise; a golden file guards them.
  */
final case class VectorOffset(source: String, next: Positions) extends Offset {
  require(SeqOffset.isName(source), s"not a source name: '$source'")

  override val json: String = {
    val tree = OffsetJson.mapper.createObjectNode().put("v", VectorOffset.FormatVersion).put("source", source)
    val offsets = tree.put("partitions", next.naming.name).putObject("next")
    next.at.foreach { case (partition, offset) => offsets.put(partition, offset) }
    tree.toString
  }

  override def toString: String = json
}

object VectorOffset {
  val FormatVersion = 1

  private val fields = Seq("v", "source", "partitions", "next")

  /** Reads what [[VectorOffset.json]] wrote, and nothing else.
    *
    * @throws InvalidOffsetException
    *   says what is wrong with the text
    */
  def parse(json: String): VectorOffset = {
    val read = new OffsetJson(json, FormatVersion, fields, fields)
    val source = read.text("source", SeqOffset.isName, OffsetJson.sourceName)
    val naming = PartitionKeyType
      .named(read.text("partitions", PartitionKeyType.named(_).nonEmpty, PartitionKeyType.all.map(_.name).mkString(" or ")))
      .get
    val next = read.field("next")
    if (!next.isObject || next.isEmpty)
      read.fail("'next' must be an object with an offset for each partition")
    val offsets = next.fields.asScala.map { entry =>
      if (!naming.isPartition(entry.getKey))
        read.fail(
          s"'next' has a partition '${OffsetJson.shorten(entry.getKey)}', it must be ${naming.allowed}"
        )
      entry.getKey -> offsetOf(entry.getValue).getOrElse(
        read.fail(
          s"the offset of partition '${entry.getKey}' is ${OffsetJson.shorten(entry.getValue.toString)}, it must be a " +
            s"whole number from 0 to ${Long.MaxValue}"
        )
      )
    }
    val offset = VectorOffset(source, Positions(naming, offsets.toSeq))
    read.checkWritten(offset.json)
    offset
  }

  private[headwater] def offsetOf(node: JsonNode): Option[Long] =
    Option.when(node.isIntegralNumber && node.canConvertToLong && node.longValue >= 0)(node.longValue)
}
