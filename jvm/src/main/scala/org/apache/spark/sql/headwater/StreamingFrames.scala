package org.apache.spark.sql.headwater

import java.nio.ByteBuffer

import scala.jdk.CollectionConverters._

import headwater.Slice
import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.{VectorLoader, VectorSchemaRoot}
import org.apache.arrow.vector.ipc.ReadChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.arrow.vector.util.ByteArrayReadableSeekableByteChannel
import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarBatch}

/** Slices of Arrow batches as a streaming DataFrame. The one file in Spark's own package: `internalCreateDataFrame` and
  * Spark's Arrow allocator are `private[sql]`.
  */
object StreamingFrames {

  /** @param onRun
    *   called on the driver when the frame is first run, and not if it is only planned
    */
  def create(spark: SparkSession, schema: StructType, arrowSchema: Array[Byte], slices: Seq[Slice])(
      onRun: () => Unit
  ): DataFrame = {
    val session = spark.asInstanceOf[classic.SparkSession]
    val context = session.sparkContext
    val rdd =
      new SliceRDD(context, arrowSchema, Partitioning.split(slices, context.defaultParallelism), onRun)
    session.internalCreateDataFrame(rdd, schema, isStreaming = true)
  }
}

/** Rows of slices. They travel to the executors inside the tasks. */
private final class SliceRDD(
    context: SparkContext,
    arrowSchema: Array[Byte],
    @transient parts: Seq[Seq[Slice]],
    @transient onRun: () => Unit
) extends RDD[InternalRow](context, Nil) {

  override protected def getPartitions: Array[Partition] = {
    onRun()
    parts.zipWithIndex.map { case (slices, i) => new SlicePartition(i, slices.toArray): Partition }.toArray
  }

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    val decoder = new SliceDecoder(arrowSchema)
    task.addTaskCompletionListener[Unit](_ => decoder.close())
    split.asInstanceOf[SlicePartition].slices.iterator.flatMap(decoder.decode)
  }
}

private final class SlicePartition(override val index: Int, val slices: Array[Slice]) extends Partition

/** Decodes slices one after the other. A row is valid until the next one is asked for, which is Spark's own rule. */
private final class SliceDecoder(arrowSchema: Array[Byte]) extends AutoCloseable {
  private[this] val allocator: BufferAllocator =
    ArrowUtils.rootAllocator.newChildAllocator("headwater", 0, Long.MaxValue)
  private[this] val root =
    VectorSchemaRoot.create(Schema.deserializeMessage(ByteBuffer.wrap(arrowSchema)), allocator)
  private[this] val loader = new VectorLoader(root)

  def decode(slice: Slice): Iterator[InternalRow] = {
    val in = new ReadChannel(new ByteArrayReadableSeekableByteChannel(slice.rows.bytes))
    val batch = MessageSerializer.deserializeRecordBatch(in, allocator)
    try loader.load(batch)
    finally batch.close()
    val columns = root.getFieldVectors.asScala.map(new ArrowColumnVector(_): ColumnVector).toArray
    val rows = new ColumnarBatch(columns, slice.rows.count)
    Iterator.range(slice.from, slice.until).map(rows.getRow)
  }

  override def close(): Unit = {
    root.close()
    allocator.close()
  }
}

/** Cuts the rows of a batch into what one task each gets: neighbours stay together, in order. */
private object Partitioning {

  /** A task that has less to do than this costs more to start than it saves. */
  val MinBytes: Long = 256L << 10

  /** A task travels in one message of at most `spark.rpc.message.maxSize`, 128 MiB. */
  val MaxBytes: Long = 16L << 20

  def split(slices: Seq[Slice], cores: Int): Seq[Seq[Slice]] = {
    val target = math.min(MaxBytes, math.max(MinBytes, slices.map(_.weight).sum / cores + 1))
    val parts = Vector.newBuilder[Seq[Slice]]
    var part = Vector.empty[Slice]
    var weight = 0L
    slices.foreach { slice =>
      // Cut where it leaves the part nearer to the target.
      if (part.nonEmpty && weight + slice.weight / 2 > target) {
        parts += part
        part = Vector.empty
        weight = 0
      }
      part :+= slice
      weight += slice.weight
    }
    if (part.nonEmpty) parts += part
    parts.result()
  }
}
