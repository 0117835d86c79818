package org.apache.spark.sql.headwater

import scala.jdk.CollectionConverters._

import headwater.core.{ArrowRows, Slice}
import headwater.task.SliceRows
import org.apache.spark.{Partition, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{classic, Column, DataFrame, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.{RDDScanExec, SparkPlan}
import org.apache.spark.sql.types.{StringType, StructType}
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.unsafe.types.UTF8String
import org.apache.spark.util.CollectionAccumulator

/** Streaming DataFrames whose rows Python reads in the tasks.
  *
  * It is Spark's own `mapInArrow` that runs Python, over a frame with a row for each task; it is no streaming frame, since
  * Spark would count its rows for those of the source. Python answers with rows of two columns: a batch of the source's
  * rows as one value, in Arrow's format, or a report of what was read. So the rows are decoded as those of a feed are, and
  * once only.
  *
  * @param name
  *   what the plan shows
  * @param reader
  *   Python's function, over the column `task`
  */
final class PartitionFrames(
    spark: SparkSession,
    name: String,
    schema: StructType,
    arrowSchema: Array[Byte],
    reader: Column
) {
  private[this] val session = spark.asInstanceOf[classic.SparkSession]
  private[this] val rowsLeaf = new PlanTemplate(session, schema)

  /** Python's function over no tasks at all. Planned once: it would take some milliseconds of each batch. */
  private[this] lazy val planned: SparkPlan = {
    val tasks = new StructType().add("task", StringType)
    val none = session.sparkContext.emptyRDD[InternalRow]
    val frame = session.internalCreateDataFrame(none, tasks)
    val plan = frame.mapInArrow(reader, isBarrier = false, profile = null).queryExecution.sparkPlan
    val leaves = plan.collectLeaves()
    if (!leaves.forall(_.isInstanceOf[RDDScanExec]))
      throw new IllegalStateException(s"Spark has planned a frame over an RDD as ${leaves.mkString(", ")}")
    plan
  }

  /** @param tasks
    *   what each task is told
    * @return
    *   the frame, and what its tasks have reported so far: some of it twice if tasks ran twice
    */
  def of(tasks: Seq[String]): (DataFrame, () => Seq[String]) = {
    val context = session.sparkContext
    val reports = new CollectionAccumulator[String]
    context.register(reports)
    val rows =
      if (tasks.isEmpty) context.emptyRDD[InternalRow]
      else new DecodedRDD(answersTo(tasks), arrowSchema, reports).setName(name)
    (rowsLeaf.of(rows), () => reports.value.asScala.toSeq)
  }

  private def answersTo(tasks: Seq[String]): RDD[InternalRow] = {
    val told = session.sparkContext
      .parallelize(tasks, tasks.size)
      .map(task => InternalRow(UTF8String.fromString(task)): InternalRow)
    planned.transformUp { case leaf: RDDScanExec => PlanTemplate.over[SparkPlan](told, leaf) }.execute()
  }
}

private final class DecodedRDD(
    answers: RDD[InternalRow],
    arrowSchema: Array[Byte],
    reports: CollectionAccumulator[String]
) extends RDD[InternalRow](answers) {

  override protected def getPartitions: Array[Partition] = firstParent[InternalRow].partitions

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    val slices = firstParent[InternalRow].iterator(split, task).flatMap { answer =>
      if (!answer.isNullAt(Report)) reports.add(answer.getUTF8String(Report).toString)
      Option.unless(answer.isNullAt(Rows))(Slice.whole(ArrowRows.of(answer.getBinary(Rows))))
    }
    val allocator = ArrowUtils.rootAllocator.newChildAllocator("headwater", 0, Long.MaxValue)
    val rows = new SliceRows(arrowSchema, slices, allocator)
    task.addTaskCompletionListener[Unit](_ => rows.close())
    rows
  }

  // The columns of an answer.
  private def Report = 0
  private def Rows = 1
}
