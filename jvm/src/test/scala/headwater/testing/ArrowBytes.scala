package headwater.testing

import java.io.ByteArrayOutputStream
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.Channels

import scala.util.Using

import com.google.flatbuffers.FlatBufferBuilder
import org.apache.arrow.flatbuf.{KeyValue, Message, MessageHeader, MetadataVersion}
import org.apache.arrow.memory.RootAllocator
import org.apache.arrow.vector.{BigIntVector, VectorSchemaRoot, VectorUnloader}
import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.{
  ArrowBodyCompression,
  ArrowDictionaryBatch,
  ArrowRecordBatch,
  MessageSerializer
}
import org.apache.arrow.vector.types.pojo.Schema

/** Messages of an Arrow stream, as Python sends them: Arrow's Java library cannot write the metadata of a batch. */
object ArrowBytes {
  val end: Array[Byte] = Array(-1, -1, -1, -1, 0, 0, 0, 0).map(_.toByte)

  val schema: Array[Byte] = schema(Script.arrowSchema)

  def schema(of: Schema): Array[Byte] = written(MessageSerializer.serialize(_, of))

  def batch(values: Seq[Long], metadata: (String, String)*): Array[Byte] = withBatch(values) { batch =>
    val head = headOf(batch, metadata)
    written { out =>
      out.write(framed(head, head.length))
      MessageSerializer.writeBatchBuffers(out, batch)
    }
  }

  /** A batch without rows. */
  def note(metadata: (String, String)*): Array[Byte] = batch(Nil, metadata: _*)

  def compressed(values: Seq[Long]): Array[Byte] = withBatch(values) { plain =>
    val lz4 = new ArrowBodyCompression(
      org.apache.arrow.flatbuf.CompressionType.LZ4_FRAME,
      org.apache.arrow.flatbuf.BodyCompressionMethod.BUFFER
    )
    Using.resource(new ArrowRecordBatch(plain.getLength, plain.getNodes, plain.getBuffers, lz4)) { batch =>
      written(MessageSerializer.serialize(_, batch))
    }
  }

  def dictionary(values: Seq[Long]): Array[Byte] = withBatch(values) { batch =>
    written(MessageSerializer.serialize(_, new ArrowDictionaryBatch(1, batch, false)))
  }

  /** A message with any length in its prefix. */
  def framed(head: Array[Byte], length: Int): Array[Byte] =
    ByteBuffer
      .allocate(8 + head.length)
      .order(ByteOrder.LITTLE_ENDIAN)
      .putInt(-1)
      .putInt(length)
      .put(head)
      .array

  /** The flatbuffer of a message with any body length, and valid otherwise. */
  def headWithBody(bodyLength: Long): Array[Byte] = withBatch(Seq(1)) { batch =>
    val builder = new FlatBufferBuilder
    finished(builder, batch.writeTo(builder), 0, bodyLength)
  }

  private def headOf(batch: ArrowRecordBatch, metadata: Seq[(String, String)]): Array[Byte] = {
    val builder = new FlatBufferBuilder
    val header = batch.writeTo(builder)
    val entries = metadata.map { case (key, value) =>
      KeyValue.createKeyValue(builder, builder.createString(key), builder.createString(value))
    }
    val custom = Message.createCustomMetadataVector(builder, entries.toArray)
    finished(builder, header, custom, batch.computeBodyLength())
  }

  private def finished(
      builder: FlatBufferBuilder,
      header: Int,
      custom: Int,
      bodyLength: Long
  ): Array[Byte] = {
    Message.startMessage(builder)
    Message.addHeaderType(builder, MessageHeader.RecordBatch)
    Message.addHeader(builder, header)
    Message.addVersion(builder, MetadataVersion.V5)
    Message.addBodyLength(builder, bodyLength)
    if (custom != 0) Message.addCustomMetadata(builder, custom)
    builder.finish(Message.endMessage(builder))
    val head = builder.sizedByteArray()
    head.padTo((head.length + 7) / 8 * 8, 0.toByte)
  }

  private def withBatch[T](values: Seq[Long])(use: ArrowRecordBatch => T): T =
    Using.resource(new RootAllocator()) { allocator =>
      Using.resource(VectorSchemaRoot.create(Script.arrowSchema, allocator)) { root =>
        val vector = root.getVector(0).asInstanceOf[BigIntVector]
        values.zipWithIndex.foreach { case (value, i) => vector.setSafe(i, value) }
        root.setRowCount(values.length)
        Using.resource(new VectorUnloader(root).getRecordBatch)(use)
      }
    }

  private def written(write: WriteChannel => Unit): Array[Byte] = {
    val out = new ByteArrayOutputStream
    write(new WriteChannel(Channels.newChannel(out)))
    out.toByteArray
  }
}
