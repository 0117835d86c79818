package headwater.task

import java.math.BigInteger
import java.nio.{ByteBuffer, ByteOrder}

import scala.jdk.CollectionConverters._

import headwater.core.ArrowRows
import org.apache.arrow.flatbuf.{Message, RecordBatch}
import org.apache.arrow.vector.types.{DateUnit, FloatingPointPrecision, TimeUnit}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, Schema}
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ColumnarArray, ColumnarMap, ColumnVector}
import org.apache.spark.unsafe.types.UTF8String

/** The columns of an Arrow batch, read in place from the bytes of its message on the heap: a value is decoded when it is
  * asked for, so a column that nobody reads costs nothing.
  *
  * Arrow's own vectors copy the batch off the heap first, and check their memory on every access. For batches of
  * short rows that costs more than everything else.
  */
private[headwater] final class HeapColumns(schema: Schema) {
  import ArrowRows.PrefixBytes
  import HeapColumns._

  private[this] val fields = schema.getFields.asScala.map(columnOf).toArray

  /** @param base the row of the batch that becomes row 0 of the columns */
  def read(rows: ArrowRows, base: Int = 0): Array[ColumnVector] = {
    val message = ByteBuffer.wrap(rows.bytes).order(ByteOrder.LITTLE_ENDIAN)
    val headerBytes = message.getInt(4)
    val header =
      Message.getRootAsMessage(
        ByteBuffer.wrap(rows.bytes, PrefixBytes, headerBytes).slice().order(ByteOrder.LITTLE_ENDIAN)
      )
    val batch = header.header(new RecordBatch).asInstanceOf[RecordBatch]
    val body = new Body(message, PrefixBytes + headerBytes, batch)
    val columns = new Array[ColumnVector](fields.length)
    var i = 0
    while (i < fields.length) {
      columns(i) = fields(i)(body, base)
      i += 1
    }
    columns
  }
}

private[headwater] object HeapColumns {
  private val NoNulls = -1

  /** Takes the buffers of a column, and those of its children, from a batch. */
  private type Read = (Body, Int) => HeapColumn

  /** The position of a buffer in the message. */
  private final case class Range(start: Int, end: Int)

  /** The nodes and buffers of a batch are in the order of the columns, each before its children. */
  private final class Body(val message: ByteBuffer, start: Int, batch: RecordBatch) {
    private[this] var node = 0
    private[this] var buffer = 0

    /** The number of rows of the next column; its validity bitmap is the next buffer. */
    def nextNode(): Node = {
      if (node == batch.nodesLength)
        throw new IllegalStateException("an Arrow batch with fewer columns than its schema")
      val next = batch.nodes(node)
      node += 1
      if (next.length < 0 || next.length > Int.MaxValue)
        throw new IllegalStateException("an Arrow batch with an impossible number of rows")
      Node(next.length.toInt, next.nullCount > 0)
    }

    def nextBuffer(): Range = {
      if (buffer == batch.buffersLength)
        throw new IllegalStateException("an Arrow batch with fewer buffers than its schema")
      val next = batch.buffers(buffer)
      buffer += 1
      val from = start + next.offset
      if (next.offset < 0 || next.length < 0 || from + next.length > message.capacity)
        throw new IllegalStateException("an Arrow batch whose buffers lie outside of it")
      Range(from.toInt, (from + next.length).toInt)
    }

    /** The position of the validity bitmap; [[NoNulls]] if there are no nulls. */
    def nextValidity(node: Node): Int = {
      val bitmap = nextBuffer()
      if (node.hasNulls) bitmap.start else NoNulls
    }
  }

  private final case class Node(count: Int, hasNulls: Boolean)

  private def columnOf(field: Field): Read = {
    val children = field.getChildren.asScala.map(columnOf).toArray
    val columnType = typeOf(field)
    columnType match {
      case StringType | BinaryType =>
        (body, base) => {
          val validity = body.nextValidity(body.nextNode())
          new VariableWidthColumn(
            columnType,
            body.message,
            validity,
            base,
            body.nextBuffer(),
            body.nextBuffer()
          )
        }
      case _: ArrayType | _: MapType =>
        (body, base) => {
          val validity = body.nextValidity(body.nextNode())
          new ListColumn(columnType, body.message, validity, base, body.nextBuffer(), children(0)(body, 0))
        }
      case _: StructType =>
        (body, base) => {
          val node = body.nextNode()
          val validity = body.nextValidity(node)
          new StructColumn(columnType, body.message, validity, base, node.count, children.map(_(body, base)))
        }
      case NullType =>
        (body, base) => new NullColumn(body.message, base, body.nextNode().count)
      case _ =>
        (body, base) => {
          val node = body.nextNode()
          val validity = body.nextValidity(node)
          new FixedWidthColumn(columnType, body.message, validity, base, node.count, body.nextBuffer().start)
        }
    }
  }

  private def typeOf(field: Field): DataType = field.getType match {
    case int: ArrowType.Int if int.getIsSigned =>
      int.getBitWidth match {
        case 8 => ByteType
        case 16 => ShortType
        case 32 => IntegerType
        case 64 => LongType
      }
    case _: ArrowType.Bool => BooleanType
    case float: ArrowType.FloatingPoint if float.getPrecision == FloatingPointPrecision.SINGLE => FloatType
    case float: ArrowType.FloatingPoint if float.getPrecision == FloatingPointPrecision.DOUBLE => DoubleType
    case decimal: ArrowType.Decimal if decimal.getBitWidth == 128 =>
      DecimalType(decimal.getPrecision, decimal.getScale)
    case _: ArrowType.Utf8 => StringType
    case _: ArrowType.Binary => BinaryType
    case date: ArrowType.Date if date.getUnit == DateUnit.DAY => DateType
    case time: ArrowType.Timestamp if time.getUnit == TimeUnit.MICROSECOND =>
      if (time.getTimezone == null) TimestampNTZType else TimestampType
    case time: ArrowType.Duration if time.getUnit == TimeUnit.MICROSECOND => DayTimeIntervalType()
    // Spark's own value of a TIME, a type that Spark 4.0 does not have.
    case time: ArrowType.Time if time.getUnit == TimeUnit.NANOSECOND => LongType
    case _: ArrowType.Null => NullType
    case _: ArrowType.List => ArrayType(typeOf(field.getChildren.get(0)))
    case _: ArrowType.Map =>
      val entry = field.getChildren.get(0).getChildren
      MapType(typeOf(entry.get(0)), typeOf(entry.get(1)))
    case _: ArrowType.Struct =>
      StructType(field.getChildren.asScala.map(child => StructField(child.getName, typeOf(child))).toSeq)
    case other => throw new IllegalStateException(s"column '${field.getName}' has the Arrow type $other")
  }

  /** @param validity
    *   the position of the validity bitmap; [[NoNulls]] if there are no nulls
    * @param base
    *   the row of the batch that is row 0 of this column
    */
  private abstract class HeapColumn(columnType: DataType, message: ByteBuffer, validity: Int, base: Int)
      extends InPlaceColumn(columnType) {
    override def isNullAt(row: Int): Boolean = {
      val i = base + row
      validity != NoNulls && (message.get(validity + (i >> 3)) & (1 << (i & 7))) == 0
    }

    override def hasNull: Boolean = validity != NoNulls

    /** How many rows it has, from row 0 of the batch on. */
    def count: Int
  }

  private final class NullColumn(message: ByteBuffer, base: Int, override val count: Int)
      extends HeapColumn(NullType, message, NoNulls, base) {
    override def isNullAt(row: Int): Boolean = true
    override def hasNull: Boolean = true
  }

  private final class FixedWidthColumn(
      columnType: DataType,
      message: ByteBuffer,
      validity: Int,
      base: Int,
      override val count: Int,
      start: Int
  ) extends HeapColumn(columnType, message, validity, base) {

    override def getBoolean(row: Int): Boolean = {
      val i = base + row
      (message.get(start + (i >> 3)) & (1 << (i & 7))) != 0
    }
    override def getByte(row: Int): Byte = message.get(start + base + row)
    override def getShort(row: Int): Short = message.getShort(start + 2 * (base + row))
    override def getInt(row: Int): Int = message.getInt(start + 4 * (base + row))
    override def getLong(row: Int): Long = message.getLong(start + 8 * (base + row))
    override def getFloat(row: Int): Float = message.getFloat(start + 4 * (base + row))
    override def getDouble(row: Int): Double = message.getDouble(start + 8 * (base + row))

    override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = {
      val at = start + 16 * (base + row)
      if (isNullAt(row)) null
      else if (precision <= Decimal.MAX_LONG_DIGITS)
        Decimal.createUnsafe(message.getLong(at), precision, scale)
      else {
        val bytes = new Array[Byte](16)
        var i = 0
        while (i < 16) {
          bytes(15 - i) = message.get(at + i)
          i += 1
        }
        Decimal(BigDecimal(new java.math.BigDecimal(new BigInteger(bytes), scale)), precision, scale)
      }
    }
  }

  private final class VariableWidthColumn(
      columnType: DataType,
      message: ByteBuffer,
      validity: Int,
      base: Int,
      offsets: Range,
      values: Range
  ) extends HeapColumn(columnType, message, validity, base) {
    private[this] val bytes = message.array
    private[this] val ends = offsets.start + 4 * base
    private[this] val start = values.start
    private[this] val size = values.end - values.start

    override def count: Int = math.max(0, (offsets.end - offsets.start) / 4 - 1)

    /** Not copied: the row that Spark makes of it is a copy. */
    override def getUTF8String(row: Int): UTF8String =
      if (isNullAt(row)) null
      else {
        val from = message.getInt(ends + 4 * row)
        UTF8String.fromBytes(bytes, start + from, lengthFrom(from, row))
      }

    override def getBinary(row: Int): Array[Byte] =
      if (isNullAt(row)) null
      else {
        val from = message.getInt(ends + 4 * row)
        java.util.Arrays.copyOfRange(bytes, start + from, start + from + lengthFrom(from, row))
      }

    /** Checked here: UTF8String reads its bytes without a check. */
    private def lengthFrom(from: Int, row: Int): Int = {
      val until = message.getInt(ends + 4 * row + 4)
      if (from < 0 || until < from || until > size)
        throw new IllegalStateException("an Arrow batch whose texts lie outside of it")
      until - from
    }
  }

  /** An array, or a map: an array of its entries. */
  private final class ListColumn(
      columnType: DataType,
      message: ByteBuffer,
      validity: Int,
      base: Int,
      offsets: Range,
      elements: HeapColumn
  ) extends HeapColumn(columnType, message, validity, base) {
    private[this] val ends = offsets.start + 4 * base

    override def count: Int = math.max(0, (offsets.end - offsets.start) / 4 - 1)

    override def getArray(row: Int): ColumnarArray =
      if (isNullAt(row)) null
      else {
        val from = message.getInt(ends + 4 * row)
        new ColumnarArray(elements, from, lengthFrom(from, row))
      }

    override def getMap(row: Int): ColumnarMap =
      if (isNullAt(row)) null
      else {
        val from = message.getInt(ends + 4 * row)
        new ColumnarMap(elements.getChild(0), elements.getChild(1), from, lengthFrom(from, row))
      }

    private def lengthFrom(from: Int, row: Int): Int = {
      val until = message.getInt(ends + 4 * row + 4)
      if (from < 0 || until < from || until > elements.count)
        throw new IllegalStateException("an Arrow batch whose arrays lie outside of it")
      until - from
    }
  }

  private final class StructColumn(
      columnType: DataType,
      message: ByteBuffer,
      validity: Int,
      base: Int,
      override val count: Int,
      children: Array[HeapColumn]
  ) extends HeapColumn(columnType, message, validity, base) {
    override def getChild(ordinal: Int): ColumnVector = children(ordinal)
  }
}

/** A column over memory that somebody else owns. A subclass has the getters of its type. */
private[task] abstract class InPlaceColumn(columnType: DataType) extends ColumnVector(columnType) {
  final override def close(): Unit = ()
  final override def numNulls: Int = unsupported("count of nulls")
  override def getBoolean(row: Int): Boolean = unsupported("booleans")
  override def getByte(row: Int): Byte = unsupported("numbers")
  override def getShort(row: Int): Short = unsupported("numbers")
  override def getInt(row: Int): Int = unsupported("numbers")
  override def getLong(row: Int): Long = unsupported("numbers")
  override def getFloat(row: Int): Float = unsupported("numbers")
  override def getDouble(row: Int): Double = unsupported("numbers")
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = unsupported("decimals")
  override def getUTF8String(row: Int): UTF8String = unsupported("strings")
  override def getBinary(row: Int): Array[Byte] = unsupported("bytes")
  override def getArray(row: Int): ColumnarArray = unsupported("arrays")
  override def getMap(row: Int): ColumnarMap = unsupported("maps")
  override def getChild(ordinal: Int): ColumnVector = unsupported("fields")

  private def unsupported(what: String): Nothing =
    throw new UnsupportedOperationException(s"a column of type ${columnType.sql} has no $what")
}
