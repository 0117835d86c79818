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
  * Spark's own `mapInArrow` runs Python, over a batch frame with one row for each task: Spark would count the
  * rows of a streaming frame as input rows. Python returns rows with two columns: a record batch of the source's
  * rows, or a report of what was read. So the rows are decoded like those of a feed, and only once.
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
  private[this] val template = new PlanTemplate(session, schema)

  /** Python's function over an empty RDD. Planned once: it would take some milliseconds of each batch. */
  private[this] lazy val pythonPlan: SparkPlan = {
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
    *   the input of each task, as JSON
    * @return
    *   the frame, and the reports of its tasks so far; if a task ran twice, some are there twice
    */
  def of(tasks: Seq[String]): (DataFrame, () => Seq[String]) = {
    val context = session.sparkContext
    val reports = new CollectionAccumulator[String]
    context.register(reports)
    val rows =
      if (tasks.isEmpty) context.emptyRDD[InternalRow]
      else new DecodedRDD(pythonOutput(tasks), arrowSchema, reports).setName(name)
    (template.of(rows), () => reports.value.asScala.toSeq)
  }

  private def pythonOutput(tasks: Seq[String]): RDD[InternalRow] = {
    val taskRows = session.sparkContext
      .parallelize(tasks, tasks.size)
      .map(task => InternalRow(UTF8String.fromString(task)): InternalRow)
    pythonPlan
      .transformUp { case leaf: RDDScanExec => PlanTemplate.withRdd[SparkPlan](taskRows, leaf) }
      .execute()
  }
}

private final class DecodedRDD(
    output: RDD[InternalRow],
    arrowSchema: Array[Byte],
    reports: CollectionAccumulator[String]
) extends RDD[InternalRow](output) {

  override protected def getPartitions: Array[Partition] = firstParent[InternalRow].partitions

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    val slices = firstParent[InternalRow].iterator(split, task).flatMap { row =>
      if (!row.isNullAt(Report)) reports.add(row.getUTF8String(Report).toString)
      Option.unless(row.isNullAt(Rows))(Slice.whole(ArrowRows.of(row.getBinary(Rows))))
    }
    val allocator = ArrowUtils.rootAllocator.newChildAllocator("headwater", 0, Long.MaxValue)
    val rows = new SliceRows(arrowSchema, slices, allocator)
    task.addTaskCompletionListener[Unit](_ => rows.close())
    rows
  }

  // The columns of the output.
  private def Report = 0
  private def Rows = 1
}
