package headwater.core

import java.nio.{ByteBuffer, ByteOrder}

import com.fasterxml.jackson.core.JsonProcessingException
import org.apache.arrow.flatbuf.{Message, RecordBatch}

/** Rows on their way to Spark, numbered within themselves from 0. What they are is not looked into on the way; a task
  * decodes them.
  */
sealed trait Rows extends Serializable {
  def count: Int

  /** In bytes, as they came from the feed. */
  def weight: Long

  /** Where the driver's and the executors' Java alone cannot read them. */
  def needsHadoop: Boolean = false

  /** What the first `n` rows weigh. The weight of each row is not known, so the whole is spread evenly; neighbouring slices
    * add up to the whole, to the byte.
    */
  final def weightOfFirst(n: Int): Long =
    (weight / count) * n + (weight % count) * n / count
}

/** In memory: one Arrow record batch in its IPC form.
  *
  * @param schema
  *   the Arrow schema it was written under, where that is not the source's own of today
  */
final case class ArrowRows(count: Int, bytes: Array[Byte], schema: Option[ArrowSchema] = None) extends Rows {
  require(count > 0, s"an Arrow batch must have rows, got $count")

  override def weight: Long = bytes.length.toLong
}

object ArrowRows {

  /** What stands before the head: four bytes of ones, and its length. */
  private[headwater] val PrefixBytes = 8

  /** A record batch in its IPC form, which says itself how many rows it has. */
  def of(bytes: Array[Byte]): ArrowRows = {
    val head = ByteBuffer.wrap(bytes, PrefixBytes, bytes.length - PrefixBytes).slice()
    val batch = Message.getRootAsMessage(head.order(ByteOrder.LITTLE_ENDIAN)).header(new RecordBatch)
    ArrowRows(Math.toIntExact(batch.asInstanceOf[RecordBatch].length), bytes)
  }
}

/** In a file: some frames of a segment, one after the other. */
final case class StoredRows(segment: String, position: Long, length: Long, count: Int, weight: Long)
    extends Rows {
  require(count > 0, s"a stored block must have rows, got $count")

  override def needsHadoop: Boolean = !segment.startsWith("file:")
}

/** Nowhere: a file that held them is damaged or gone.
  *
  * @param why
  *   names file and place
  */
final case class LostRows(count: Int, why: String) extends Rows {
  override def weight: Long = 0
}

/** An Arrow schema in its IPC form. Compared by identity: whoever reads a file has one for all of its batches. */
final class ArrowSchema(val bytes: Array[Byte]) extends Serializable

/** The upstream's own position, any JSON, of one of the feeds that run side by side. */
final case class Cursor(shard: Int, json: String)

private[headwater] object Cursor {

  /** The JSON of a cursor that a user set as an option. Text that is not JSON becomes a JSON string. */
  def jsonOf(option: String): String = if (isJson(option)) option else Json.mapper.writeValueAsString(option)

  private def isJson(text: String): Boolean =
    try !Json.mapper.readTree(text).isMissingNode
    catch { case _: JsonProcessingException => false }
}

/** What becomes durable together: rows, and where the upstream stands after them if the source said so. */
final case class RowGroup(rows: Seq[ArrowRows], cursor: Option[Cursor] = None) {
  def weight: Long = rows.map(_.weight).sum
}

/** The rows `from until until` of some. Slices of the same rows share them. */
final case class Slice(rows: Rows, from: Int, until: Int) {
  require(0 <= from && from < until && until <= rows.count, s"rows $from until $until of ${rows.count}")

  def count: Int = until - from
  def weight: Long = rows.weightOfFirst(until) - rows.weightOfFirst(from)
}

object Slice {
  def whole(rows: Rows): Slice = Slice(rows, 0, rows.count)
}
