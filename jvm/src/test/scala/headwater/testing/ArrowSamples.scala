package headwater.testing

import java.io.ByteArrayOutputStream
import java.nio.channels.Channels
import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._
import scala.util.{Random, Using}

import org.apache.arrow.memory.RootAllocator
import org.apache.arrow.vector._
import org.apache.arrow.vector.complex.{ListVector, StructVector}
import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}
import org.apache.spark.sql.catalyst.InternalRow

/** Batches with flat and nested columns: a number, a string, a list of strings, and a struct of a number. */
object ArrowSamples {
  private val number = FieldType.nullable(new ArrowType.Int(64, true))
  private val text = FieldType.nullable(new ArrowType.Utf8)
  private def parent(of: ArrowType, child: Field) = (FieldType.nullable(of), Seq(child).asJava)

  val schema: Schema = {
    val (list, items) = parent(new ArrowType.List, new Field("item", text, null))
    val (struct, parts) = parent(new ArrowType.Struct, new Field("part", number, null))
    new Schema(
      Seq(
        new Field("number", number, null),
        new Field("text", text, null),
        new Field("list", list, items),
        new Field("struct", struct, parts)
      ).asJava
    )
  }

  def batch(random: Random, count: Int = 10): Array[Byte] = Using.resource(new RootAllocator()) { allocator =>
    Using.resource(VectorSchemaRoot.create(schema, allocator)) { root =>
      val list = root.getVector(2).asInstanceOf[ListVector]
      val items = list.getDataVector.asInstanceOf[VarCharVector]
      val struct = root.getVector(3).asInstanceOf[StructVector]
      var item = 0
      (0 until count).foreach { row =>
        root.getVector(0).asInstanceOf[BigIntVector].setSafe(row, random.nextLong())
        if (row % 3 != 0)
          root.getVector(1).asInstanceOf[VarCharVector].setSafe(row, s"text $row".getBytes(UTF_8))
        list.startNewValue(row)
        (0 until row % 4).foreach { _ =>
          items.setSafe(item, s"item $item".getBytes(UTF_8))
          item += 1
        }
        list.endValue(row, row % 4)
        struct.getChild("part").asInstanceOf[BigIntVector].setSafe(row, row.toLong)
        struct.setIndexDefined(row)
      }
      root.setRowCount(count)
      val out = new ByteArrayOutputStream
      Using.resource(new VectorUnloader(root).getRecordBatch) { batch =>
        MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), batch)
      }
      out.toByteArray
    }
  }

  /** Reads every value of a row. */
  def touch(row: InternalRow): Unit = {
    if (!row.isNullAt(0)) row.getLong(0)
    if (!row.isNullAt(1)) row.getUTF8String(1).getBytes
    if (!row.isNullAt(2)) {
      val items = row.getArray(2)
      (0 until items.numElements()).foreach(i => if (!items.isNullAt(i)) items.getUTF8String(i).getBytes)
    }
    if (!row.isNullAt(3) && !row.getStruct(3, 1).isNullAt(0)) row.getStruct(3, 1).getLong(0)
    ()
  }
}
