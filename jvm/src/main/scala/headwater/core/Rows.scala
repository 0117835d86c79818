package headwater.core

import java.nio.{ByteBuffer, ByteOrder}

import com.fasterxml.jackson.core.JsonProcessingException
import org.apache.arrow.flatbuf.{Message, RecordBatch}

/** Rows on their way to Spark, numbered from 0. Nobody looks inside them before a task decodes them. */
sealed trait Rows extends Serializable {
  def count: Int

  /** As received from the feed. */
  def byteSize: Long

  /** Whether reading them takes a Hadoop file system. */
  def needsHadoop: Boolean = false

  /** The size of the first `n` rows. The size of a single row is not known, so the total is spread evenly;
    * adjacent slices add up to the total exactly.
    */
  final def bytesOfFirst(n: Int): Long =
    (byteSize / count) * n + (byteSize % count) * n / count
}

/** Rows in memory: one Arrow record batch in IPC format.
  *
  * @param schema
  *   the Arrow schema of the batch, if it differs from the source's current one
  */
final case class ArrowRows(count: Int, bytes: Array[Byte], schema: Option[ArrowSchema] = None) extends Rows {
  require(count > 0, s"an Arrow batch must have rows, got $count")

  override def byteSize: Long = bytes.length.toLong
}

object ArrowRows {

  /** The bytes before the flatbuffer of an IPC message: four bytes of ones, and its length. */
  private[headwater] val PrefixBytes = 8

  /** The number of rows is read from the batch itself. */
  def of(bytes: Array[Byte]): ArrowRows = {
    val header = ByteBuffer.wrap(bytes, PrefixBytes, bytes.length - PrefixBytes).slice()
    val batch = Message.getRootAsMessage(header.order(ByteOrder.LITTLE_ENDIAN)).header(new RecordBatch)
    ArrowRows(Math.toIntExact(batch.asInstanceOf[RecordBatch].length), bytes)
  }
}

/** Rows in a file: consecutive frames of a segment. */
final case class StoredRows(segment: String, position: Long, length: Long, count: Int, byteSize: Long)
    extends Rows {
  require(count > 0, s"a stored block must have rows, got $count")

  override def needsHadoop: Boolean = !segment.startsWith("file:")
}

/** Rows that cannot be read: the file that held them is damaged or missing.
  *
  * @param why
  *   names the file and the place
  */
final case class LostRows(count: Int, why: String) extends Rows {
  override def byteSize: Long = 0
}

/** An Arrow schema in IPC format. Compared by identity: all batches of a file share one. */
final class ArrowSchema(val bytes: Array[Byte]) extends Serializable

/** The upstream's own position, any JSON, of one shard. */
final case class Cursor(shard: Int, json: String)

private[headwater] object Cursor {

  /** The JSON of a cursor that a user set as an option. Text that is not JSON becomes a JSON string. */
  def jsonOf(option: String): String = if (isJson(option)) option else Json.mapper.writeValueAsString(option)

  private def isJson(text: String): Boolean =
    try !Json.mapper.readTree(text).isMissingNode
    catch { case _: JsonProcessingException => false }
}

/** Rows that become durable together with the cursor after them, if the source has one. */
final case class RowGroup(rows: Seq[ArrowRows], cursor: Option[Cursor] = None) {
  def byteSize: Long = rows.map(_.byteSize).sum
}

/** The rows `from until until`. Slices of the same rows share them. */
final case class Slice(rows: Rows, from: Int, until: Int) {
  require(0 <= from && from < until && until <= rows.count, s"rows $from until $until of ${rows.count}")

  def count: Int = until - from
  def byteSize: Long = rows.bytesOfFirst(until) - rows.bytesOfFirst(from)
}

object Slice {
  def whole(rows: Rows): Slice = Slice(rows, 0, rows.count)
}
