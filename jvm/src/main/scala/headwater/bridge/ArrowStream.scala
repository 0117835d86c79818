package headwater.bridge

import java.io.{EOFException, IOException}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.ReadableByteChannel

import headwater.core.ArrowRows
import org.apache.arrow.flatbuf.{Message, MessageHeader, RecordBatch}
import org.apache.arrow.vector.types.pojo.Schema

/** Reads an Arrow IPC stream, message by message, from somebody who may send anything: every length is checked before
  * it is believed. Rows are left as the bytes that they are; only the head of a batch is looked into.
  *
  * A message is four bytes of ones, the length of its head, the head (a flatbuffer), and a body whose length the head
  * tells. The first message is the schema; a head of length 0 ends the stream.
  *
  * @param maxBytes
  *   what a message may weigh
  */
private[headwater] final class ArrowStream(in: ReadableByteChannel, maxBytes: Int) {
  import ArrowRows.PrefixBytes
  import ArrowStream._

  private[this] val prefix = ByteBuffer.allocate(PrefixBytes).order(ByteOrder.LITTLE_ENDIAN)

  def schema(): Schema = believed {
    read() match {
      case Some(message) if message.head.headerType == MessageHeader.Schema =>
        Schema.deserializeMessage(ByteBuffer.wrap(message.bytes))
      case _ => throw new IOException("an Arrow stream must begin with its schema")
    }
  }

  /** The next batch; None at the end that the writer has set.
    *
    * @throws EOFException
    *   when the connection ends without that
    */
  def next(): Option[Batch] = believed {
    read().map { message =>
      if (message.head.headerType != MessageHeader.RecordBatch)
        throw new IOException(
          s"only record batches may follow, not messages of type ${message.head.headerType}"
        )
      val batch = message.head.header(new RecordBatch).asInstanceOf[RecordBatch]
      if (batch.compression != null) throw new IOException("compressed Arrow batches are not taken")
      if (batch.length < 0 || batch.length > Int.MaxValue)
        throw new IOException(s"an Arrow batch of ${batch.length} rows")
      Batch(batch.length.toInt, message.bytes, metadataOf(message.head))
    }
  }

  private def read(): Option[Received] = {
    fill(prefix.clear())
    prefix.flip()
    if (prefix.getInt() != Continuation) throw new IOException("not an Arrow stream")
    val headBytes = prefix.getInt()
    if (headBytes == 0) None
    else {
      if (headBytes < 0 || headBytes > MaxHeadBytes)
        throw new IOException(s"an Arrow message with a head of $headBytes bytes; at most $MaxHeadBytes")
      val head = new Array[Byte](headBytes)
      fill(ByteBuffer.wrap(head))
      val message = Message.getRootAsMessage(ByteBuffer.wrap(head))
      val bodyBytes = message.bodyLength
      if (bodyBytes < 0 || bodyBytes > maxBytes)
        throw new IOException(s"an Arrow message of $bodyBytes bytes; at most $maxBytes")
      val bytes = new Array[Byte](PrefixBytes + headBytes + bodyBytes.toInt)
      prefix.rewind()
      prefix.get(bytes, 0, PrefixBytes)
      System.arraycopy(head, 0, bytes, PrefixBytes, headBytes)
      fill(ByteBuffer.wrap(bytes, PrefixBytes + headBytes, bodyBytes.toInt))
      Some(Received(message, bytes))
    }
  }

  /** A head that is not what it says to be makes the flatbuffer's reader look outside of it, or turn in a circle. */
  private def believed[T](body: => T): T =
    try body
    catch {
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

  /** @param bytes the whole message, as a task will decode it */
  final case class Batch(rows: Int, bytes: Array[Byte], metadata: Map[String, String])

  private final case class Received(head: Message, bytes: Array[Byte])

  private val Continuation = -1
  private val MaxHeadBytes = 16 << 20
  private val ReadBytes = 256 << 10

  private def metadataOf(head: Message): Map[String, String] =
    (0 until head.customMetadataLength).map { i =>
      val entry = head.customMetadata(i)
      entry.key -> entry.value
    }.toMap
}
