package headwater.task

import java.util.Arrays

import scala.jdk.CollectionConverters._

import headwater.core.{ArrowRows, ArrowSchema, Slice}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector
import org.apache.spark.sql.types.NullType
import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnVector}

/** Slices as Spark's columns, one batch for each slice. A batch is valid until the next call of `next()`.
  *
  * @param slices
  *   of rows in memory
  * @param lastColumn
  *   a column beside those of the schema
  */
final class SliceColumns(
    arrowSchema: Array[Byte],
    slices: Iterator[Slice],
    lastColumn: Option[MetadataColumn] = None
) extends Iterator[ColumnarBatch] {

  private[this] val sourceSchema = new ArrowSchema(arrowSchema)
  private[this] var schema = sourceSchema
  private[this] var decoder = new Decoder(sourceSchema, sourceSchema)

  override def hasNext: Boolean = slices.hasNext

  override def next(): ColumnarBatch = {
    val slice = slices.next()
    slice.rows match {
      case rows: ArrowRows =>
        rows.schema.filter(_ ne schema).foreach(switchTo)
        val columns = decoder.read(rows, slice.from)
        new ColumnarBatch(lastColumn.fold(columns)(columns :+ _.of(slice.seq, rows)), slice.count)
      case other => throw new IllegalStateException(s"rows that are not in memory: $other")
    }
  }

  private def switchTo(batchSchema: ArrowSchema): Unit = {
    if (!Arrays.equals(batchSchema.bytes, schema.bytes)) decoder = new Decoder(batchSchema, sourceSchema)
    schema = batchSchema
  }
}

/** Slices as Spark's rows. A row is valid until the next call of `next()`, as everywhere in Spark. This code runs for
  * every row in every task: it does not box values or allocate per row.
  */
final class SliceRows(batches: Iterator[ColumnarBatch]) extends Iterator[InternalRow] {
  private[this] var batch: ColumnarBatch = _
  private[this] var row = 0
  private[this] var until = 0

  override def hasNext: Boolean = {
    while (row == until && batches.hasNext) {
      batch = batches.next()
      row = 0
      until = batch.numRows
    }
    row < until
  }

  override def next(): InternalRow = {
    if (!hasNext) throw new NoSuchElementException("no more rows")
    val next = batch.getRow(row)
    row += 1
    next
  }
}

/** Reads batches of one schema as columns of another. Columns that the batch lacks are null. */
private final class Decoder(batchSchema: ArrowSchema, sourceSchema: ArrowSchema) {
  private[this] val schema = ArrowSchema.parse(batchSchema.bytes)
  private[this] val heapColumns = new HeapColumns(schema)

  /** For each column of the source, its index in the batch; None if the schemas are equal. */
  private[this] val columnIndexes: Option[Array[Int]] =
    Option.unless(Arrays.equals(batchSchema.bytes, sourceSchema.bytes)) {
      val names = schema.getFields.asScala.map(_.getName)
      ArrowSchema
        .parse(sourceSchema.bytes)
        .getFields
        .asScala
        .map(field => names.indexOf(field.getName))
        .toArray
    }

  def read(rows: ArrowRows, base: Int): Array[ColumnVector] = {
    val columns = heapColumns.read(rows, base)
    columnIndexes.fold(columns)(_.map(i => if (i < 0) Decoder.nulls(rows.count) else columns(i)))
  }
}

private object Decoder {
  def nulls(count: Int): ColumnVector = {
    val column = new ConstantColumnVector(count, NullType)
    column.setNull()
    column
  }
}
