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

/** The columns of an Arrow batch, read where they lie: in the bytes of its message, on the heap.
  *
  * Arrow's own vectors would first copy the batch out of the heap, and check with every value that their memory is still
  * theirs; for a batch of short rows that costs more than all the rest. Flat types only; nested ones are left to Arrow.
  */
private[headwater] final class HeapColumns private (types: Array[DataType]) {
  import ArrowRows.PrefixBytes
  import HeapColumns._

  def read(rows: ArrowRows): Array[ColumnVector] = {
    val message = ByteBuffer.wrap(rows.bytes).order(ByteOrder.LITTLE_ENDIAN)
    val headBytes = message.getInt(4)
    val head =
      Message.getRootAsMessage(
        ByteBuffer.wrap(rows.bytes, PrefixBytes, headBytes).slice().order(ByteOrder.LITTLE_ENDIAN)
      )
    val batch = head.header(new RecordBatch).asInstanceOf[RecordBatch]
    val body = new Body(message, PrefixBytes + headBytes, batch)
    types.zipWithIndex.map { case (kind, i) =>
      val nulls = body.next()
      val validity = if (batch.nodes(i).nullCount > 0) nulls.start else NoNulls
      kind match {
        case StringType | BinaryType => new Texts(kind, message, validity, body.next(), body.next())
        case _ => new Numbers(kind, message, validity, body.next())
      }
    }
  }
}

private[headwater] object HeapColumns {

  /** None where the schema has a type that is left to Arrow. */
  def of(schema: Schema): Option[HeapColumns] = {
    val types = schema.getFields.asScala.map(typeOf)
    Option.when(types.forall(_.nonEmpty))(new HeapColumns(types.flatten.toArray))
  }

  private val NoNulls = -1

  /** Where a buffer lies in the message. */
  private final case class Range(start: Int, end: Int)

  private final class Body(message: ByteBuffer, start: Int, batch: RecordBatch) {
    private[this] var taken = 0

    /** Buffers come in the order of their columns. */
    def next(): Range = {
      val buffer = batch.buffers(taken)
      taken += 1
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

  /** @param validity where the bits lie that say which values there are; [[NoNulls]] if all are */
  private abstract class HeapColumn(kind: DataType, message: ByteBuffer, validity: Int)
      extends ColumnVector(kind) {
    final override def isNullAt(row: Int): Boolean =
      validity != NoNulls && (message.get(validity + (row >> 3)) & (1 << (row & 7))) == 0

    final override def hasNull: Boolean = validity != NoNulls
    final override def numNulls: Int = throw new UnsupportedOperationException("nobody asks for it")
    final override def close(): Unit = ()
    final override def getArray(row: Int): ColumnarArray = unfit("arrays")
    final override def getMap(row: Int): ColumnarMap = unfit("maps")
    final override def getChild(ordinal: Int): ColumnVector = unfit("structs")

    protected def unfit(what: String): Nothing =
      throw new UnsupportedOperationException(s"a column of type ${kind.sql} has no $what")
  }

  private final class Numbers(kind: DataType, message: ByteBuffer, validity: Int, values: Range)
      extends HeapColumn(kind, message, validity) {
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

    override def getUTF8String(row: Int): UTF8String = unfit("text")
    override def getBinary(row: Int): Array[Byte] = unfit("bytes")
  }

  private final class Texts(kind: DataType, message: ByteBuffer, validity: Int, offsets: Range, values: Range)
      extends HeapColumn(kind, message, validity) {
    private[this] val bytes = message.array
    private[this] val ends = offsets.start
    private[this] val start = values.start
    private[this] val size = values.end - values.start

    /** Not a copy: the row that is made of it will be one. */
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

    /** Checked here: what is made of it is read without a check. */
    private def lengthFrom(from: Int, row: Int): Int = {
      val until = message.getInt(ends + 4 * row + 4)
      if (from < 0 || until < from || until > size)
        throw new IllegalStateException("an Arrow batch whose texts lie outside of it")
      until - from
    }

    override def getBoolean(row: Int): Boolean = unfit("truth")
    override def getByte(row: Int): Byte = unfit("numbers")
    override def getShort(row: Int): Short = unfit("numbers")
    override def getInt(row: Int): Int = unfit("numbers")
    override def getLong(row: Int): Long = unfit("numbers")
    override def getFloat(row: Int): Float = unfit("numbers")
    override def getDouble(row: Int): Double = unfit("numbers")
    override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = unfit("numbers")
  }
}
