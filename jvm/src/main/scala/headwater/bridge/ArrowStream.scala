package headwater.bridge

import java.io.{EOFException, IOException}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.ReadableByteChannel

import headwater.BridgeException
import headwater.core.{ArrowRows, ArrowSchema}
import org.apache.arrow.flatbuf.{Message, MessageHeader, RecordBatch}
import org.apache.arrow.vector.types.pojo.Schema

/** Reads an Arrow IPC stream, message by message. The sender may send anything, so every length is checked before
  * use. Rows are kept as bytes; only the flatbuffer of a message is parsed.
  *
  * A message has four bytes of ones, the length of its flatbuffer, the flatbuffer, and a body whose length is in
  * the flatbuffer. The first message is the schema; a flatbuffer of length 0 ends the stream.
  *
  * @param maxBytes
  *   the maximum size of a message
  */
private[headwater] final class ArrowStream(in: ReadableByteChannel, maxBytes: Int) {
  import ArrowRows.PrefixBytes
  import ArrowStream._

  private[this] var validator = Option.empty[BatchValidator]
  private[this] val prefix = ByteBuffer.allocate(PrefixBytes).order(ByteOrder.LITTLE_ENDIAN)

  def schema(): Schema = checked {
    read() match {
      case Some(message) if message.flatbuffer.headerType == MessageHeader.Schema =>
        val schema = ArrowSchema.parse(message.bytes)
        validator = Some(new BatchValidator(schema))
        schema
      case _ => throw new IOException("an Arrow stream must begin with its schema")
    }
  }

  /** The next batch; None at the end of the stream.
    *
    * @throws EOFException
    *   when the connection ends before that
    * @throws headwater.BridgeException
    *   when tasks could not read the batch
    */
  def next(): Option[Batch] = checked {
    read().map { message =>
      if (message.flatbuffer.headerType != MessageHeader.RecordBatch)
        throw new IOException(
          s"only record batches may follow, not messages of type ${message.flatbuffer.headerType}"
        )
      val batch = message.flatbuffer.header(new RecordBatch).asInstanceOf[RecordBatch]
      if (batch.compression != null) throw new IOException("compressed Arrow batches are not taken")
      if (batch.length < 0 || batch.length > Int.MaxValue)
        throw new IOException(s"an Arrow batch of ${batch.length} rows")
      validator.foreach(_.check(batch, message.body))
      Batch(batch.length.toInt, message.bytes, customMetadata(message.flatbuffer))
    }
  }

  private def read(): Option[ArrowMessage] = {
    fill(prefix.clear())
    prefix.flip()
    if (prefix.getInt() != Continuation) throw new IOException("not an Arrow stream")
    val headerBytes = prefix.getInt()
    if (headerBytes == 0) None
    else {
      if (headerBytes < 0 || headerBytes > MaxHeaderBytes)
        throw new IOException(s"an Arrow message with a head of $headerBytes bytes; at most $MaxHeaderBytes")
      val header = new Array[Byte](headerBytes)
      fill(ByteBuffer.wrap(header))
      val message = Message.getRootAsMessage(ByteBuffer.wrap(header))
      val bodyBytes = message.bodyLength
      if (bodyBytes < 0 || bodyBytes > maxBytes)
        throw new IOException(s"an Arrow message of $bodyBytes bytes; at most $maxBytes")
      val bytes = new Array[Byte](PrefixBytes + headerBytes + bodyBytes.toInt)
      prefix.rewind()
      prefix.get(bytes, 0, PrefixBytes)
      System.arraycopy(header, 0, bytes, PrefixBytes, headerBytes)
      fill(ByteBuffer.wrap(bytes, PrefixBytes + headerBytes, bodyBytes.toInt))
      Some(ArrowMessage(message, bytes, PrefixBytes + headerBytes))
    }
  }

  /** A malformed flatbuffer makes its reader index out of bounds, or recurse without end. */
  private def checked[T](body: => T): T =
    try body
    catch {
      case e: BridgeException => throw e
      case e @ (_: RuntimeException | _: StackOverflowError) =>
        throw new IOException("the head of an Arrow message cannot be read", e)
    }

  /** In pieces: the JDK keeps a direct buffer for each thread, as large as the largest read. */
  private def fill(buffer: ByteBuffer): Unit = {
    val end = buffer.limit()
    while (buffer.position() < end) {
      buffer.limit(math.min(end, buffer.position() + ReadBytes))
      if (in.read(buffer) < 0) throw new EOFException("the connection was closed in the middle")
    }
  }
}

private[headwater] object ArrowStream {

  /** @param bytes the whole message, as a task decodes it */
  final case class Batch(rows: Int, bytes: Array[Byte], metadata: Map[String, String])

  private final case class ArrowMessage(flatbuffer: Message, bytes: Array[Byte], bodyStart: Int) {
    def body: ByteBuffer =
      ByteBuffer.wrap(bytes, bodyStart, bytes.length - bodyStart).slice().order(ByteOrder.LITTLE_ENDIAN)
  }

  private val Continuation = -1
  private val MaxHeaderBytes = 16 << 20
  private val ReadBytes = 256 << 10

  private def customMetadata(message: Message): Map[String, String] =
    (0 until message.customMetadataLength).map { i =>
      val entry = message.customMetadata(i)
      entry.key -> entry.value
    }.toMap
}
