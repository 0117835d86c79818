package org.apache.spark.sql.headwater

import java.util.{Collections, HashMap => JHashMap}
import javax.annotation.concurrent.GuardedBy

import scala.collection.immutable.ArraySeq
import scala.jdk.CollectionConverters._

import headwater.core.{ArrowRows, Slice}
import headwater.partition.{PartitionedBatch, PythonReader}
import headwater.task.{SliceColumns, SliceRows}
import org.apache.spark.{Partition, TaskContext}
import org.apache.spark.api.python.{PythonEvalType, SimplePythonFunction}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{classic, Column, DataFrame, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.PythonUDF
import org.apache.spark.sql.classic.ExpressionUtils
import org.apache.spark.sql.execution.{RDDScanExec, SparkPlan}
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.types.{BinaryType, StringType, StructType}
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
  */
final class PartitionFrames(
    spark: SparkSession,
    name: String,
    schema: StructType,
    arrowSchema: Array[Byte]
) {
  private[this] val session = spark.asInstanceOf[classic.SparkSession]
  private[this] val template = new PlanTemplate(session, schema)

  /** The plan of the reader that was last seen: planning takes some milliseconds, and a query has one reader. */
  @GuardedBy("this") private[this] var planned: Option[(PythonReader, SparkPlan)] = None

  private def pythonPlan(reader: PythonReader): SparkPlan = synchronized {
    planned.collect { case (same, plan) if same eq reader => plan }.getOrElse {
      val plan = newPlan(reader)
      planned = Some(reader -> plan)
      plan
    }
  }

  /** The reader over an empty RDD. */
  private def newPlan(reader: PythonReader): SparkPlan = {
    val tasks = new StructType().add("task", StringType)
    val none = session.sparkContext.emptyRDD[InternalRow]
    val frame = session.internalCreateDataFrame(none, tasks)
    val plan = frame
      .mapInArrow(columnOf(reader), isBarrier = false, profile = null)
      .queryExecution
      .sparkPlan
    val leaves = plan.collectLeaves()
    if (!leaves.forall(_.isInstanceOf[RDDScanExec]))
      throw new IllegalStateException(s"Spark has planned a frame over an RDD as ${leaves.mkString(", ")}")
    plan
  }

  /** As `DataFrame.mapInArrow` of PySpark makes it of a function, over the column `task`. */
  private def columnOf(reader: PythonReader): Column = {
    val function = SimplePythonFunction(
      ArraySeq.unsafeWrapArray(reader.function),
      new JHashMap(reader.environment.asJava), // Spark 4.0 adds to it
      reader.includes.asJava,
      reader.executable,
      reader.version,
      Collections.emptyList(),
      accumulator = null // for accumulators of PySpark's own, which a reader cannot have
    )
    val output = new StructType().add("report", StringType).add("rows", BinaryType)
    // Not through UserDefinedPythonFunction, whose constructor differs between Spark versions.
    ExpressionUtils.column(
      PythonUDF(
        "headwater",
        function,
        output,
        Seq(ExpressionUtils.expression(col("task"))),
        PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
        udfDeterministic = true
      )
    )
  }

  def of(batch: PartitionedBatch): DataFrame = {
    val tasks = batch.tasks
    val context = session.sparkContext
    val reports = new CollectionAccumulator[String]
    context.register(reports)
    val rows =
      if (tasks.isEmpty) context.emptyRDD[InternalRow]
      else new DecodedRDD(pythonOutput(tasks, batch.reader), arrowSchema, reports).setName(name)
    batch.onReports(() => reports.value.asScala.toSeq)
    template.of(rows)
  }

  private def pythonOutput(tasks: Seq[String], reader: PythonReader): RDD[InternalRow] = {
    val taskRows = session.sparkContext
      .parallelize(tasks, tasks.size)
      .map(task => InternalRow(UTF8String.fromString(task)): InternalRow)
    pythonPlan(reader)
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
    new SliceRows(new SliceColumns(arrowSchema, slices))
  }

  // The columns of the output.
  private def Report = 0
  private def Rows = 1
}
