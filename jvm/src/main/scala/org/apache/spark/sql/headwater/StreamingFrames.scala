package org.apache.spark.sql.headwater

import headwater.{Cargo, LocalCargo, Parts, Slice, SliceRows}
import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.util.MutableURLClassLoader

/** Slices of Arrow batches as a streaming DataFrame. The one file in Spark's own package: `internalCreateDataFrame` and
  * Spark's Arrow allocator are `private[sql]`.
  */
object StreamingFrames {

  /** @param name
    *   what the plan shows
    * @param onRun
    *   called on the driver when the frame is first run, and not if it is only planned
    */
  def create(
      spark: SparkSession,
      name: String,
      schema: StructType,
      arrowSchema: Array[Byte],
      slices: Seq[Slice]
  )(onRun: () => Unit): DataFrame = {
    val session = spark.asInstanceOf[classic.SparkSession]
    val rdd = new SliceRDD(session.sparkContext, arrowSchema, slices, onRun).setName(name)
    session.internalCreateDataFrame(rdd, schema, isStreaming = true)
  }
}

/** The rows of slices. The slices travel to the executors inside the tasks. */
private final class SliceRDD(
    context: SparkContext,
    arrowSchema: Array[Byte],
    @transient slices: Seq[Slice],
    @transient onRun: () => Unit
) extends RDD[InternalRow](context, Nil) {

  override protected def getPartitions: Array[Partition] = {
    onRun()
    val local = sparkContext.isLocal && SliceRDD.tasksSeeOurClasses
    val parts =
      Parts.split(slices, sparkContext.defaultParallelism, if (local) Long.MaxValue else Parts.MaxBytes)
    parts.zipWithIndex.map { case (part, i) =>
      new SlicePartition(i, if (local) LocalCargo(part) else Cargo(part)): Partition
    }.toArray
  }

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    val rows = new SliceRows(
      arrowSchema,
      split.asInstanceOf[SlicePartition].cargo.slices.iterator,
      ArrowUtils.rootAllocator.newChildAllocator("headwater", 0, Long.MaxValue)
    )
    task.addTaskCompletionListener[Unit](_ => rows.close())
    rows
  }
}

private object SliceRDD {

  /** Whether a task in this JVM finds our very classes, and so our [[LocalCargo]]. It does when they came with Spark's own
    * or with the jars of the application. A jar that was added to one session is loaded once more for its tasks.
    */
  val tasksSeeOurClasses: Boolean = {
    val ours = classOf[LocalCargo].getClassLoader
    val sparks = classOf[SparkContext].getClassLoader
    (ours eq sparks) || (ours.getClass == classOf[MutableURLClassLoader] && (ours.getParent eq sparks))
  }
}

private final class SlicePartition(override val index: Int, val cargo: Cargo) extends Partition
