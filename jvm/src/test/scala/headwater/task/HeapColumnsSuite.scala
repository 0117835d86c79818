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
import org.apache.arrow.vector.complex.{ListVector, StructVector}
import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.{DateUnit, FloatingPointPrecision, TimeUnit}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarArray}
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
          Seq(0, count / 2).foreach { base =>
            compare(root, count, base, new HeapColumns(schema).read(rowsOf(root, count), base))
          }
        }
      }
    }
  }

  test("every nested value is the one that Arrow's own vectors give, from any row on") {
    val random = new Random(8)
    val number = new Field("n", FieldType.nullable(new ArrowType.Int(32, true)), null)
    val text = new Field("t", FieldType.nullable(new ArrowType.Utf8), null)
    def parent(name: String, arrowType: ArrowType, children: Field*) =
      new Field(name, FieldType.nullable(arrowType), children.asJava)
    val entry = new Field(
      "entries",
      FieldType.notNullable(new ArrowType.Struct),
      Seq(
        new Field("key", FieldType.notNullable(new ArrowType.Utf8), null),
        new Field("value", FieldType.nullable(new ArrowType.Int(32, true)), null)
      ).asJava
    )
    val nested = new Schema(
      Seq(
        parent("texts", new ArrowType.List, text),
        parent("struct", new ArrowType.Struct, number, parent("inner", new ArrowType.Struct, text)),
        parent("lists", new ArrowType.List, parent("list", new ArrowType.List, number)),
        parent("structs", new ArrowType.List, parent("struct", new ArrowType.Struct, number, text)),
        parent("map", new ArrowType.Map(false), entry),
        new Field("flat", FieldType.nullable(new ArrowType.Int(64, true)), null)
      ).asJava
    )
    Using.resource(new RootAllocator()) { allocator =>
      (1 to 200).foreach { round =>
        val count = 1 + random.nextInt(40)
        val nulls = Seq(0.0, 0.3, 1.0)(round % 3)
        Using.resource(VectorSchemaRoot.create(nested, allocator)) { root =>
          root.getFieldVectors.asScala.foreach { vector =>
            (0 until count).foreach(row => fillNested(vector, row, nulls, random))
            vector.setValueCount(count)
          }
          root.setRowCount(count)
          Seq(0, count / 2).foreach { base =>
            val heap = new HeapColumns(nested).read(rowsOf(root, count), base)
            heap.indices.foreach { i =>
              val arrow = new ArrowColumnVector(root.getVector(i))
              (base until count).foreach { row =>
                assert(
                  valueOf(heap(i), row - base) == valueOf(arrow, row),
                  s"column $i, row $row, from row $base"
                )
              }
            }
          }
        }
      }
    }
  }

  test("a column of type NULL is null, and times are their nanoseconds") {
    val types =
      Seq(new ArrowType.Null, new ArrowType.Time(TimeUnit.NANOSECOND, 64), new ArrowType.Int(32, true))
    val schema = new Schema(types.map(kind => new Field("c", FieldType.nullable(kind), null)).asJava)
    Using.resource(new RootAllocator()) { allocator =>
      Using.resource(VectorSchemaRoot.create(schema, allocator)) { root =>
        root.getVector(1).asInstanceOf[TimeNanoVector].setSafe(1, 86399999999999L)
        root.getVector(2).asInstanceOf[IntVector].setSafe(1, 5)
        root.setRowCount(2)
        val columns = new HeapColumns(schema).read(rowsOf(root, 2), base = 1)
        assert(
          columns(0).isNullAt(0) && columns(1).getLong(0) == 86399999999999L && columns(2).getInt(0) == 5
        )
      }
    }
  }

  test("arrays that lie outside of the batch are an error") {
    val item = new Field("item", FieldType.nullable(new ArrowType.Int(32, true)), null)
    val one =
      new Schema(Seq(new Field("list", FieldType.nullable(new ArrowType.List), Seq(item).asJava)).asJava)
    Using.resource(new RootAllocator()) { allocator =>
      Using.resource(VectorSchemaRoot.create(one, allocator)) { root =>
        val list = root.getVector(0).asInstanceOf[ListVector]
        fillNested(list, 0, 0.0, new Random(3))
        list.setValueCount(1)
        root.setRowCount(1)
        val end = list.getOffsetBuffer.getInt(4)
        assert(end > 0)
        Seq(1000, -1, Int.MaxValue).foreach { wrong =>
          val bytes = rowsOf(root, 1).bytes.clone()
          val message = java.nio.ByteBuffer.wrap(bytes).order(java.nio.ByteOrder.LITTLE_ENDIAN)
          val at = (0 until bytes.length - 8 by 8)
            .filter(i => message.getInt(i) == 0 && message.getInt(i + 4) == end)
            .last
          message.putInt(at + 4, wrong)
          intercept[IllegalStateException](new HeapColumns(one).read(ArrowRows(1, bytes))(0).getArray(0))
        }
      }
    }
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
          intercept[IllegalStateException](new HeapColumns(one).read(rows)(0).getUTF8String(0))
        }
      }
    }
  }

  private def compare(root: VectorSchemaRoot, count: Int, base: Int, heap: Array[ColumnVector]): Unit =
    kinds.indices.foreach { i =>
      val arrow = new ArrowColumnVector(root.getVector(i))
      (base until count).foreach { row =>
        assert(heap(i).isNullAt(row - base) == arrow.isNullAt(row), s"column $i, row $row, from row $base")
        if (!arrow.isNullAt(row))
          assert(kinds(i)._2(heap(i), row - base) == kinds(i)._2(arrow, row), s"column $i, row $row")
      }
    }

  private def fillNested(vector: FieldVector, row: Int, nulls: Double, random: Random): Unit =
    vector match {
      case list: ListVector if random.nextDouble() >= nulls =>
        val start = list.startNewValue(row)
        val length = 1 + random.nextInt(3)
        (start until start + length).foreach(fillNested(list.getDataVector, _, nulls, random))
        list.endValue(row, length)
      case list: ListVector => list.setNull(row)
      case struct: StructVector =>
        val isEntry = struct.getChildrenFromFields.get(0).getName == "key"
        if (isEntry || random.nextDouble() >= nulls) struct.setIndexDefined(row)
        struct.getChildrenFromFields.asScala.foreach { child =>
          fillNested(child, row, if (child.getName == "key") 0 else nulls, random)
        }
      case flat => if (random.nextDouble() >= nulls) fill(flat, row, random)
    }

  /** All of a value, as the methods of a column give it. */
  private def valueOf(column: ColumnVector, row: Int): Any =
    if (column.isNullAt(row)) None
    else
      column.dataType match {
        case IntegerType => column.getInt(row)
        case LongType => column.getLong(row)
        case StringType => column.getUTF8String(row).toString
        case struct: StructType => struct.indices.map(i => valueOf(column.getChild(i), row))
        case ArrayType(elementType, _) => elementsOf(column.getArray(row), elementType)
        case MapType(keyType, valueType, _) =>
          val map = column.getMap(row)
          elementsOf(map.keyArray(), keyType).zip(elementsOf(map.valueArray(), valueType))
        case other => fail(s"no values of type $other")
      }

  private def elementsOf(array: ColumnarArray, elementType: DataType): Seq[Any] =
    (0 until array.numElements()).map { i =>
      if (array.isNullAt(i)) None
      else
        elementType match {
          case IntegerType => array.getInt(i)
          case StringType => array.getUTF8String(i).toString
          case ArrayType(inner, _) => elementsOf(array.getArray(i), inner)
          case struct: StructType =>
            val fields = array.getStruct(i, struct.length)
            struct.indices.map(j => if (fields.isNullAt(j)) None else fields.get(j, struct(j).dataType))
          case other => fail(s"no values of type $other")
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
