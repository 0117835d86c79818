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

/** The columns of an Arrow batch, read in place from the bytes of its message on the heap.
  *
  * Arrow's own vectors copy the batch off the heap first, and check their memory on every access. For batches of
  * short rows that costs more than everything else. Only flat types are supported; nested types are left to
  * Arrow.
  */
private[headwater] final class HeapColumns private (types: Array[DataType]) {
  import ArrowRows.PrefixBytes
  import HeapColumns._

  def read(rows: ArrowRows): Array[ColumnVector] = {
    val message = ByteBuffer.wrap(rows.bytes).order(ByteOrder.LITTLE_ENDIAN)
    val headerBytes = message.getInt(4)
    val header =
      Message.getRootAsMessage(
        ByteBuffer.wrap(rows.bytes, PrefixBytes, headerBytes).slice().order(ByteOrder.LITTLE_ENDIAN)
      )
    val batch = header.header(new RecordBatch).asInstanceOf[RecordBatch]
    val body = new Body(message, PrefixBytes + headerBytes, batch)
    types.zipWithIndex.map { case (columnType, i) =>
      val nulls = body.next()
      val validity = if (batch.nodes(i).nullCount > 0) nulls.start else NoNulls
      columnType match {
        case StringType | BinaryType =>
          new VariableWidthColumn(columnType, message, validity, body.next(), body.next())
        case _ => new FixedWidthColumn(columnType, message, validity, body.next())
      }
    }
  }
}

private[headwater] object HeapColumns {

  /** None if the schema has a type that is left to Arrow. */
  def of(schema: Schema): Option[HeapColumns] = {
    val types = schema.getFields.asScala.map(typeOf)
    Option.when(types.forall(_.nonEmpty))(new HeapColumns(types.flatten.toArray))
  }

  private val NoNulls = -1

  /** The position of a buffer in the message. */
  private final case class Range(start: Int, end: Int)

  private final class Body(message: ByteBuffer, start: Int, batch: RecordBatch) {
    private[this] var index = 0

    /** Buffers are in the order of their columns. */
    def next(): Range = {
      val buffer = batch.buffers(index)
      index += 1
      val from = start + buffer.offset
      if (buffer.offset < 0 || buffer.length < 0 || from + buffer.length > message.capacity)
        throw new IllegalStateException("an Arrow batch whose buffers lie outside of it")
      Range(from.toInt, (from + buffer.length).toInt)
    }
  }

  private def typeOf(field: Field): Option[DataType] = field.getType match {
    case int: ArrowType.Int if int.getIsSigned =>
      Map[Int, DataType](8 -> ByteType, 16 -> ShortType, 32 -> IntegerType, 64 -> LongType).get(
        int.getBitWidth
      )
    case _: ArrowType.Bool => Some(BooleanType)
    case float: ArrowType.FloatingPoint if float.getPrecision == FloatingPointPrecision.SINGLE =>
      Some(FloatType)
    case float: ArrowType.FloatingPoint if float.getPrecision == FloatingPointPrecision.DOUBLE =>
      Some(DoubleType)
    case decimal: ArrowType.Decimal if decimal.getBitWidth == 128 =>
      Some(DecimalType(decimal.getPrecision, decimal.getScale))
    case _: ArrowType.Utf8 => Some(StringType)
    case _: ArrowType.Binary => Some(BinaryType)
    case date: ArrowType.Date if date.getUnit == DateUnit.DAY => Some(DateType)
    case time: ArrowType.Timestamp if time.getUnit == TimeUnit.MICROSECOND =>
      Some(if (time.getTimezone == null) TimestampNTZType else TimestampType)
    case time: ArrowType.Duration if time.getUnit == TimeUnit.MICROSECOND => Some(DayTimeIntervalType())
    case _ => None
  }

  /** @param validity the position of the validity bitmap; [[NoNulls]] if there are no nulls */
  private abstract class HeapColumn(columnType: DataType, message: ByteBuffer, validity: Int)
      extends ColumnVector(columnType) {
    final override def isNullAt(row: Int): Boolean =
      validity != NoNulls && (message.get(validity + (row >> 3)) & (1 << (row & 7))) == 0

    final override def hasNull: Boolean = validity != NoNulls
    final override def numNulls: Int = throw new UnsupportedOperationException("nobody asks for it")
    final override def close(): Unit = ()
    final override def getArray(row: Int): ColumnarArray = unsupported("arrays")
    final override def getMap(row: Int): ColumnarMap = unsupported("maps")
    final override def getChild(ordinal: Int): ColumnVector = unsupported("structs")

    protected def unsupported(what: String): Nothing =
      throw new UnsupportedOperationException(s"a column of type ${columnType.sql} has no $what")
  }

  private final class FixedWidthColumn(
      columnType: DataType,
      message: ByteBuffer,
      validity: Int,
      values: Range
  ) extends HeapColumn(columnType, message, validity) {
    private[this] val start = values.start

    override def getBoolean(row: Int): Boolean = (message.get(start + (row >> 3)) & (1 << (row & 7))) != 0
    override def getByte(row: Int): Byte = message.get(start + row)
    override def getShort(row: Int): Short = message.getShort(start + 2 * row)
    override def getInt(row: Int): Int = message.getInt(start + 4 * row)
    override def getLong(row: Int): Long = message.getLong(start + 8 * row)
    override def getFloat(row: Int): Float = message.getFloat(start + 4 * row)
    override def getDouble(row: Int): Double = message.getDouble(start + 8 * row)

    override def getDecimal(row: Int, precision: Int, scale: Int): Decimal =
      if (isNullAt(row)) null
      else if (precision <= Decimal.MAX_LONG_DIGITS)
        Decimal.createUnsafe(message.getLong(start + 16 * row), precision, scale)
      else {
        val bytes = new Array[Byte](16)
        var i = 0
        while (i < 16) {
          bytes(15 - i) = message.get(start + 16 * row + i)
          i += 1
        }
        Decimal(BigDecimal(new java.math.BigDecimal(new BigInteger(bytes), scale)), precision, scale)
      }

    override def getUTF8String(row: Int): UTF8String = unsupported("text")
    override def getBinary(row: Int): Array[Byte] = unsupported("bytes")
  }

  private final class VariableWidthColumn(
      columnType: DataType,
      message: ByteBuffer,
      validity: Int,
      offsets: Range,
      values: Range
  ) extends HeapColumn(columnType, message, validity) {
    private[this] val bytes = message.array
    private[this] val ends = offsets.start
    private[this] val start = values.start
    private[this] val size = values.end - values.start

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

    override def getBoolean(row: Int): Boolean = unsupported("truth")
    override def getByte(row: Int): Byte = unsupported("numbers")
    override def getShort(row: Int): Short = unsupported("numbers")
    override def getInt(row: Int): Int = unsupported("numbers")
    override def getLong(row: Int): Long = unsupported("numbers")
    override def getFloat(row: Int): Float = unsupported("numbers")
    override def getDouble(row: Int): Double = unsupported("numbers")
    override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = unsupported("numbers")
  }
}
