package headwater.adapters

import headwater.buffer.{BufferedStream, StoredBatch}
import headwater.core.{FeedDefinition, Limits, SeqOffset}
import headwater.task.{BatchTasks, MetadataColumn, SliceColumns, TaskReader, TaskSlices}
import org.apache.spark.TaskContext
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, Offset}
import org.apache.spark.sql.vectorized.ColumnarBatch
import org.apache.spark.util.SerializableConfiguration

/** A feed as Spark's V2 `MicroBatchStream`. It has the offsets and the folder of [[V1Source]], so a query may change from
  * one to the other when it restarts.
  *
  * @param onStopped
  *   called when the stream has been stopped
  */
private[headwater] class V2Stream(
    protected val definition: FeedDefinition,
    protected override val stream: BufferedStream,
    protected val tasks: BatchTasks,
    onStopped: () => Unit
) extends MicroBatchStream
    with StreamAdapter[StoredBatch] {

  protected override def limits: Limits = definition.options.limits

  override def initialOffset(): Offset = new SparkOffset(SeqOffset.beginning(stream.name))

  override def deserializeOffset(json: String): Offset = {
    stream.parse(json)
    new SparkOffset(json)
  }

  override def latestOffset(): Offset =
    throw new UnsupportedOperationException("Spark calls latestOffset with a limit")

  /** Spark calls it when a batch runs, never for one that it only looks at: losses are reported here. */
  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    endingWhenInterrupted {
      val batch = plan(Some(start), end)
      val hadoop = tasks.hadoopFor(batch)
      tasks.of(batch).map(slices => new V2Partition(slices, batch.run, hadoop): InputPartition).toArray
    }

  override def createReaderFactory(): PartitionReaderFactory =
    new V2Readers(stream.name, definition.arrowSchema, tasks.reader)

  override def commit(end: Offset): Unit = commitUpTo(end)

  /** Whether tasks read rows, not columns. */
  def readsRows: Boolean = false

  protected override def afterStop(): Unit = onStopped()
}

/** The rows that one task reads. */
private final class V2Partition(
    val slices: TaskSlices,
    val run: String,
    val hadoop: Option[Broadcast[SerializableConfiguration]]
) extends InputPartition

/** Reads columns in the tasks. The last one is `_metadata`, whether the query selects it or not: Spark 4.0 and 4.1 do not
  * say. A column costs nothing until it is read.
  */
private final class V2Readers(source: String, arrowSchema: Array[Byte], reader: TaskReader)
    extends PartitionReaderFactory {

  override def supportColumnarReads(partition: InputPartition): Boolean = true

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] = {
    val rows = partition.asInstanceOf[V2Partition]
    val slices = reader.open(rows.slices.slices.iterator, rows.hadoop, TaskContext.get())
    val columns = new SliceColumns(arrowSchema, slices, Some(new MetadataColumn(source, rows.run)))
    new PartitionReader[ColumnarBatch] {
      private[this] var batch: ColumnarBatch = _

      override def next(): Boolean = {
        val hasNext = columns.hasNext
        if (hasNext) batch = columns.next()
        hasNext
      }

      override def get(): ColumnarBatch = batch

      override def close(): Unit = ()
    }
  }

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    throw new UnsupportedOperationException("Spark asks for columns")
}
