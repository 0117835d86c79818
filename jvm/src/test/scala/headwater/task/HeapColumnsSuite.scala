package headwater.task

import java.io.ByteArrayOutputStream
import java.math.{BigDecimal => JBigDecimal, BigInteger}
import java.nio.channels.Channels
import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._
import scala.util.{Random, Using}

import headwater.core.ArrowRows
import org.apache.arrow.memory.RootAllocator
import org.apache.arrow.vector._
import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.{DateUnit, FloatingPointPrecision, TimeUnit}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector}
import org.scalatest.funsuite.AnyFunSuite

class HeapColumnsSuite extends AnyFunSuite {

  private type Read = (ColumnVector, Int) => Any

  private val kinds: Seq[(ArrowType, Read)] = Seq(
    new ArrowType.Bool -> (_.getBoolean(_)),
    new ArrowType.Int(8, true) -> (_.getByte(_)),
    new ArrowType.Int(16, true) -> (_.getShort(_)),
    new ArrowType.Int(32, true) -> (_.getInt(_)),
    new ArrowType.Int(64, true) -> (_.getLong(_)),
    new ArrowType.FloatingPoint(FloatingPointPrecision.SINGLE) -> (_.getFloat(_)),
    new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE) -> (_.getDouble(_)),
    new ArrowType.Decimal(18, 3, 128) -> (_.getDecimal(_, 18, 3)),
    new ArrowType.Decimal(38, 10, 128) -> (_.getDecimal(_, 38, 10)),
    new ArrowType.Utf8 -> (_.getUTF8String(_)),
    new ArrowType.Binary -> ((column, row) => column.getBinary(row).toSeq),
    new ArrowType.Date(DateUnit.DAY) -> (_.getInt(_)),
    new ArrowType.Timestamp(TimeUnit.MICROSECOND, "UTC") -> (_.getLong(_)),
    new ArrowType.Timestamp(TimeUnit.MICROSECOND, null) -> (_.getLong(_)),
    new ArrowType.Duration(TimeUnit.MICROSECOND) -> (_.getLong(_))
  )

  private val schema = new Schema(kinds.zipWithIndex.map { case ((kind, _), i) =>
    new Field(s"c$i", FieldType.nullable(kind), null)
  }.asJava)

  test("every value is the one that Arrow's own vectors give") {
    val random = new Random(7)
    Using.resource(new RootAllocator()) { allocator =>
      (1 to 200).foreach { round =>
        val count = 1 + random.nextInt(70)
        val nulls = Seq(0.0, 0.3, 1.0)(round % 3)
        Using.resource(VectorSchemaRoot.create(schema, allocator)) { root =>
          root.getFieldVectors.asScala.foreach { vector =>
            (0 until count).foreach(row => if (random.nextDouble() >= nulls) fill(vector, row, random))
            vector.setValueCount(count)
          }
          root.setRowCount(count)
          compare(root, count, HeapColumns.of(schema).get.read(rowsOf(root, count)))
        }
      }
    }
  }

  test("nested columns are left to Arrow") {
    assert(HeapColumns.of(schema).nonEmpty)
    val item = new Field("item", FieldType.nullable(new ArrowType.Int(32, true)), null)
    val nested = new Schema(
      Seq(new Field("list", FieldType.nullable(new ArrowType.List), Seq(item).asJava)).asJava
    )
    assert(HeapColumns.of(nested).isEmpty)
  }

  test("strings that lie outside of the batch are an error, not other memory") {
    val one = new Schema(Seq(new Field("text", FieldType.nullable(new ArrowType.Utf8), null)).asJava)
    Using.resource(new RootAllocator()) { allocator =>
      Using.resource(VectorSchemaRoot.create(one, allocator)) { root =>
        val texts = root.getVector(0).asInstanceOf[VarCharVector]
        texts.setSafe(0, "abc".getBytes(UTF_8))
        texts.setValueCount(1)
        root.setRowCount(1)
        Seq(1000, -1, Int.MaxValue).foreach { end =>
          texts.getOffsetBuffer.setInt(4, end)
          val rows = rowsOf(root, 1, texts)
          intercept[IllegalStateException](HeapColumns.of(one).get.read(rows)(0).getUTF8String(0))
        }
      }
    }
  }

  private def compare(root: VectorSchemaRoot, count: Int, heap: Array[ColumnVector]): Unit =
    kinds.indices.foreach { i =>
      val arrow = new ArrowColumnVector(root.getVector(i))
      (0 until count).foreach { row =>
        assert(heap(i).isNullAt(row) == arrow.isNullAt(row), s"column $i, row $row")
        if (!arrow.isNullAt(row))
          assert(kinds(i)._2(heap(i), row) == kinds(i)._2(arrow, row), s"column $i, row $row")
      }
    }

  private def fill(vector: FieldVector, row: Int, random: Random): Unit = vector match {
    case v: BitVector => v.setSafe(row, random.nextInt(2))
    case v: TinyIntVector => v.setSafe(row, random.nextInt())
    case v: SmallIntVector => v.setSafe(row, random.nextInt())
    case v: IntVector => v.setSafe(row, random.nextInt())
    case v: BigIntVector => v.setSafe(row, random.nextLong())
    case v: Float4Vector => v.setSafe(row, random.nextFloat())
    case v: Float8Vector => v.setSafe(row, random.nextDouble())
    case v: DecimalVector => v.setSafe(row, decimal(v.getPrecision, v.getScale, random))
    case v: VarCharVector => v.setSafe(row, random.nextString(random.nextInt(5)).getBytes(UTF_8))
    case v: VarBinaryVector => v.setSafe(row, Array.fill(random.nextInt(9))(random.nextInt().toByte))
    case v: DateDayVector => v.setSafe(row, random.nextInt())
    case v: TimeStampMicroTZVector => v.setSafe(row, random.nextLong())
    case v: TimeStampMicroVector => v.setSafe(row, random.nextLong())
    case v: DurationVector => v.setSafe(row, random.nextLong())
    case other => fail(s"no values for $other")
  }

  private def decimal(precision: Int, scale: Int, random: Random): JBigDecimal = {
    val digits = Seq.fill(1 + random.nextInt(precision))(random.nextInt(10)).mkString
    new JBigDecimal(new BigInteger(if (random.nextBoolean()) digits else s"-$digits"), scale)
  }

  private def rowsOf(root: VectorSchemaRoot, count: Int): ArrowRows = {
    val out = new ByteArrayOutputStream
    Using.resource(new VectorUnloader(root).getRecordBatch) { batch =>
      MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), batch)
    }
    ArrowRows(count, out.toByteArray)
  }

  /** The same batch with offsets that Arrow's own writer would reject. */
  private def rowsOf(root: VectorSchemaRoot, count: Int, texts: VarCharVector): ArrowRows = {
    val end = texts.getOffsetBuffer.getInt(4)
    texts.getOffsetBuffer.setInt(4, 3)
    val rows = rowsOf(root, count)
    texts.getOffsetBuffer.setInt(4, end)
    val bytes = rows.bytes
    val at = (0 until bytes.length - 8)
      .filter(i => bytes.slice(i, i + 8).toSeq == Seq[Byte](0, 0, 0, 0, 3, 0, 0, 0))
      .last
    java.nio.ByteBuffer.wrap(bytes).order(java.nio.ByteOrder.LITTLE_ENDIAN).putInt(at + 4, end)
    ArrowRows(count, bytes)
  }
}
