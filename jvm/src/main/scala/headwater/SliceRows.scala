package headwater

import java.nio.ByteBuffer

import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.{VectorLoader, VectorSchemaRoot}
import org.apache.arrow.vector.ipc.ReadChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.arrow.vector.util.ByteArrayReadableSeekableByteChannel
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarBatch}

/** Decodes slices into Spark's rows, one slice at a time. A row is valid until the next one is asked for, which is Spark's
  * own rule. It runs for every row, in every task: no boxing, no object for a row.
  *
  * @param allocator
  *   given over: closed with this
  */
final class SliceRows(arrowSchema: Array[Byte], slices: Iterator[Slice], allocator: BufferAllocator)
    extends Iterator[InternalRow]
    with AutoCloseable {

  private[this] val schema = Schema.deserializeMessage(ByteBuffer.wrap(arrowSchema))
  private[this] val onHeap = HeapColumns.of(schema)
  private[this] val vectors = Option.when(onHeap.isEmpty)(new Vectors(schema, allocator))
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
    vectors.foreach(_.close())
    allocator.close()
  }

  private def load(slice: Slice): Unit = {
    val columns = onHeap.fold(vectors.get.read(slice.rows))(_.read(slice.rows))
    batch = new ColumnarBatch(columns, slice.rows.count)
    row = slice.from
    until = slice.until
  }
}

/** Arrow's own vectors, for what [[HeapColumns]] cannot read. One batch is in them at a time. */
private final class Vectors(schema: Schema, allocator: BufferAllocator) extends AutoCloseable {
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
