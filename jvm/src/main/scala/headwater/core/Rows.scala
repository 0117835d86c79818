package headwater.core

import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8

import com.fasterxml.jackson.core.{JsonFactoryBuilder, JsonProcessingException, StreamReadConstraints}
import com.fasterxml.jackson.core.exc.StreamConstraintsException
import com.fasterxml.jackson.databind.DeserializationFeature
import com.fasterxml.jackson.databind.json.JsonMapper
import org.apache.arrow.flatbuf.{Message, RecordBatch, Schema => SchemaMessage}
import org.apache.arrow.vector.types.pojo.Schema

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
  * @param shard
  *   the feed that sent it
  * @param arrived
  *   when this JVM received it, in microseconds since the epoch; 0 if that is not known
  */
final case class ArrowRows(
    count: Int,
    bytes: Array[Byte],
    schema: Option[ArrowSchema] = None,
    shard: Int = 0,
    arrived: Long = 0
) extends Rows {
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
private[headwater] final case class LostRows(first: Long, last: Long, why: String)

/** An Arrow schema in IPC format. Compared by identity: all batches of a file share one. */
final class ArrowSchema(val bytes: Array[Byte]) extends Serializable

private[headwater] object ArrowSchema {

  /** Arrow's own `Schema.deserializeMessage` reads through a channel, which an interrupt closes: Spark interrupts the
    * query's thread and its tasks, and does not recognize the exception that Arrow throws then.
    */
  def parse(bytes: Array[Byte]): Schema = {
    val header = ByteBuffer.wrap(bytes, ArrowRows.PrefixBytes, bytes.length - ArrowRows.PrefixBytes).slice()
    val message = Message.getRootAsMessage(header.order(ByteOrder.LITTLE_ENDIAN))
    Schema.convertSchema(message.header(new SchemaMessage).asInstanceOf[SchemaMessage])
  }
}

/** The upstream's own position, any JSON, of one shard. */
final case class Cursor(shard: Int, json: String)

private[headwater] object Cursor {

  /** Of all shards together: the header of every segment has them, and is limited too. */
  val MaxTotalBytes: Int = 8 << 20

  /** What a cursor may have so that the JVM and Python can read it at the next start. */
  private val MaxDigits = 1000
  private val MaxDepth = 100

  private[this] val mapper: JsonMapper = {
    val limits = StreamReadConstraints
      .builder()
      .maxNumberLength(MaxDigits)
      .maxNestingDepth(MaxDepth)
      .maxStringLength(Int.MaxValue)
      .maxNameLength(Int.MaxValue)
      .build()
    JsonMapper
      .builder(new JsonFactoryBuilder().streamReadConstraints(limits).build())
      .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
      .build()
  }

  /** Why a cursor is refused: it could be written to the log, and not be read at the next start. None if it is valid.
    *
    * @param shards
    *   how many shards the source has
    */
  def fault(json: String, shards: Int): Option[String] = {
    val bytes = json.getBytes(UTF_8).length
    val max = MaxTotalBytes / shards
    if (bytes > max)
      Some(s"it has $bytes bytes, and the limit is $max (${MaxTotalBytes >> 20} MiB for all shards)")
    else
      try Option.when(mapper.readTree(json).isMissingNode)("it is empty")
      catch {
        case _: StreamConstraintsException =>
          Some(
            s"it has a number of more than $MaxDigits digits, or is nested more than $MaxDepth levels deep; use a string"
          )
        case e: JsonProcessingException => Some(s"it is not JSON (${e.getOriginalMessage})")
        case _: NumberFormatException => Some("it has a number with a huge exponent; use a string")
      }
  }

  /** The JSON of a cursor that a user set as an option. Text that is not JSON becomes a JSON string. */
  def jsonOf(option: String): String = if (isJson(option)) option else Json.mapper.writeValueAsString(option)

  private def isJson(text: String): Boolean =
    try !mapper.readTree(text).isMissingNode
    catch {
      case _: StreamConstraintsException | _: NumberFormatException =>
        true // and refused, not taken for a string
      case _: JsonProcessingException => false
    }
}

/** Rows that become durable together with the cursor after them, if the source has one. */
final case class RowGroup(rows: Seq[ArrowRows], cursor: Option[Cursor] = None) {
  def byteSize: Long = rows.map(_.byteSize).sum
}

/** The rows `from until until`. Slices of the same rows share them.
  *
  * @param seq
  *   of the first row; 0 for rows that have none, those of partitioned sources
  */
final case class Slice(rows: Rows, from: Int, until: Int, seq: Long = 0) {
  require(0 <= from && from < until && until <= rows.count, s"rows $from until $until of ${rows.count}")

  def count: Int = until - from
  def byteSize: Long = rows.bytesOfFirst(until) - rows.bytesOfFirst(from)
}

object Slice {
  def whole(rows: Rows): Slice = Slice(rows, 0, rows.count)
}
