package headwater.task

import java.nio.ByteBuffer
import java.util.Arrays

import scala.jdk.CollectionConverters._

import headwater.core.{ArrowRows, ArrowSchema, Slice}
import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.{VectorLoader, VectorSchemaRoot}
import org.apache.arrow.vector.ipc.ReadChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.arrow.vector.util.ByteArrayReadableSeekableByteChannel
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector
import org.apache.spark.sql.types.NullType
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarBatch}

/** Decodes slices into Spark's rows, one slice at a time. A row is valid until the next call of `next()`, as
  * everywhere in Spark. This code runs for every row in every task: it does not box values or allocate per row.
  *
  * @param slices
  *   of rows in memory
  * @param allocator
  *   closed with this iterator
  */
final class SliceRows(arrowSchema: Array[Byte], slices: Iterator[Slice], allocator: BufferAllocator)
    extends Iterator[InternalRow]
    with AutoCloseable {

  private[this] val sourceSchema = new ArrowSchema(arrowSchema)
  private[this] var schema = sourceSchema
  private[this] var decoder = new Decoder(sourceSchema, sourceSchema, allocator)
  private[this] var batch: ColumnarBatch = _
  private[this] var row = 0
  private[this] var until = 0

  override def hasNext: Boolean = {
    while (row == until && slices.hasNext) load(slices.next())
    row < until
  }

  override def next(): InternalRow = {
    if (!hasNext) throw new NoSuchElementException("no more rows")
    val next = batch.getRow(row)
    row += 1
    next
  }

  override def close(): Unit = {
    decoder.close()
    allocator.close()
  }

  private def load(slice: Slice): Unit = slice.rows match {
    case rows: ArrowRows =>
      rows.schema.filter(_ ne schema).foreach(switchTo)
      batch = new ColumnarBatch(decoder.read(rows), rows.count)
      row = slice.from
      until = slice.until
    case other => throw new IllegalStateException(s"rows that are not in memory: $other")
  }

  private def switchTo(batchSchema: ArrowSchema): Unit = {
    if (!Arrays.equals(batchSchema.bytes, schema.bytes)) {
      decoder.close()
      decoder = new Decoder(batchSchema, sourceSchema, allocator)
    }
    schema = batchSchema
  }
}

/** Reads batches of one schema as columns of another. Columns that the batch lacks are null. */
private final class Decoder(batchSchema: ArrowSchema, sourceSchema: ArrowSchema, allocator: BufferAllocator)
    extends AutoCloseable {
  private[this] val schema = Decoder.read(batchSchema)
  private[this] val heapColumns = HeapColumns.of(schema)
  private[this] val arrowVectors = Option.when(heapColumns.isEmpty)(new ArrowVectors(schema, allocator))

  /** For each column of the source, its index in the batch; None if the schemas are equal. */
  private[this] val columnIndexes: Option[Array[Int]] =
    Option.unless(Arrays.equals(batchSchema.bytes, sourceSchema.bytes)) {
      val names = schema.getFields.asScala.map(_.getName)
      Decoder.read(sourceSchema).getFields.asScala.map(field => names.indexOf(field.getName)).toArray
    }

  def read(rows: ArrowRows): Array[ColumnVector] = {
    val columns = heapColumns.fold(arrowVectors.get.read(rows))(_.read(rows))
    columnIndexes.fold(columns)(_.map(i => if (i < 0) Decoder.nulls(rows.count) else columns(i)))
  }

  override def close(): Unit = arrowVectors.foreach(_.close())
}

private object Decoder {
  def read(schema: ArrowSchema): Schema = Schema.deserializeMessage(ByteBuffer.wrap(schema.bytes))

  def nulls(count: Int): ColumnVector = {
    val column = new ConstantColumnVector(count, NullType)
    column.setNull()
    column
  }
}

/** Arrow's own vectors, for types that [[HeapColumns]] does not support. They hold one batch at a time. */
private final class ArrowVectors(schema: Schema, allocator: BufferAllocator) extends AutoCloseable {
  private[this] val root = VectorSchemaRoot.create(schema, allocator)
  private[this] val loader = new VectorLoader(root)

  def read(rows: ArrowRows): Array[ColumnVector] = {
    val in = new ReadChannel(new ByteArrayReadableSeekableByteChannel(rows.bytes))
    val message = MessageSerializer.deserializeRecordBatch(in, allocator)
    try loader.load(message)
    finally message.close()
    val columns = new Array[ColumnVector](root.getFieldVectors.size)
    columns.indices.foreach(i => columns(i) = new ArrowColumnVector(root.getVector(i)))
    columns
  }

  override def close(): Unit = root.close()
}
