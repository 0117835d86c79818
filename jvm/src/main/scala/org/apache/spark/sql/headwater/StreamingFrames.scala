package org.apache.spark.sql.headwater

import scala.jdk.CollectionConverters._

import headwater.DataLossException
import headwater.buffer.StoredBatch
import headwater.core.ArrowRows
import headwater.log.{DamagedException, StoredSlices}
import headwater.task.{PlannedRows, SliceRows, TaskSlices, TaskSplitter}
import org.apache.hadoop.conf.Configuration
import org.apache.spark.{Partition, SparkConf, SparkContext, TaskContext}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.util.{CollectionAccumulator, MutableURLClassLoader, SerializableConfiguration}

/** Rows in [[PlannedRows]] as streaming DataFrames. Calls that Spark keeps to its own packages are in this folder
  * and nowhere else: `internalCreateDataFrame`, `mapInArrow` and Spark's Arrow allocator are `private[sql]`.
  *
  * @param name
  *   what the plan shows
  */
final class StreamingFrames(
    spark: SparkSession,
    name: String,
    schema: StructType,
    arrowSchema: Array[Byte],
    failOnDataLoss: Boolean
) {
  private[this] val session = spark.asInstanceOf[classic.SparkSession]

  /** The losses that tasks report, each once however often its rows were read. Only where losses are allowed. */
  private[this] val lossReports = Option.unless(failOnDataLoss)(new CollectionAccumulator[String])
  lossReports.foreach(session.sparkContext.register(_))

  /** How many rows tasks found damaged and skipped. */
  def rowsLost: Long =
    lossReports.fold(0L)(_.value.asScala.toSet[String].iterator.map(LossReport.rowsOf).sum)

  /** For tasks that read segments from Hadoop file systems. */
  private[this] lazy val hadoop =
    session.sparkContext.broadcast(new SerializableConfiguration(session.sessionState.newHadoopConf()))

  private[this] val template = new PlanTemplate(session, schema)

  /** Losses are reported when the frame is run, not when it is planned. */
  def of(batch: StoredBatch): DataFrame = {
    val conf = Option.when(batch.needsHadoop)(hadoop)
    val rdd =
      new ArrowRDD(session.sparkContext, arrowSchema, batch.rowsId, conf, lossReports, batch.reportLosses)
    template.of(rdd.setName(name))
  }
}

/** Streaming frames over RDDs of one schema.
  *
  * Spark would analyze the plan of every frame, which takes some milliseconds of each batch and always yields the
  * same result: the plan is a single leaf. So one plan is analyzed, and each frame has a copy with another RDD.
  */
private[headwater] final class PlanTemplate(session: classic.SparkSession, schema: StructType) {

  private[this] lazy val analyzed: LogicalPlan = {
    val none = session.sparkContext.emptyRDD[InternalRow]
    val plan = session.internalCreateDataFrame(none, schema, isStreaming = true).queryExecution.analyzed
    // Spark collects the ids of all frames of a plan in this tag, and the copies would share the collection.
    plan.unsetTagValue(classic.Dataset.DATASET_ID_TAG)
    plan
  }

  def of(rdd: RDD[InternalRow]): classic.DataFrame = {
    val plan = PlanTemplate.withRdd(rdd, analyzed)
    plan.setAnalyzed()
    classic.Dataset.ofRows(session, plan)
  }
}

private[headwater] object PlanTemplate {

  /** The same leaf over another RDD. By position: the other fields and the constructor differ between Spark
    * versions.
    */
  def withRdd[Plan <: QueryPlan[Plan]](rdd: RDD[InternalRow], template: Plan): Plan = {
    val arguments = template.productIterator.map {
      case _: RDD[_] => rdd
      case other => other.asInstanceOf[AnyRef]
    }
    template.makeCopy(arguments.toArray)
  }
}

private final class ArrowRDD(
    context: SparkContext,
    arrowSchema: Array[Byte],
    rowsId: Long,
    hadoop: Option[Broadcast[SerializableConfiguration]],
    lossReports: Option[CollectionAccumulator[String]],
    @transient onRun: () => Unit
) extends RDD[InternalRow](context, Nil) {

  override protected def getPartitions: Array[Partition] = {
    onRun()
    val byId = sparkContext.isLocal && ArrowRDD.tasksSeeOurClasses(sparkContext.getConf)
    val slices = PlannedRows.get(rowsId)
    // A task that carries its rows must be small; one that reads files need not be.
    val travelWithTask = !byId && slices.exists(_.rows.isInstanceOf[ArrowRows])
    val ends =
      TaskSplitter.ends(
        slices,
        sparkContext.defaultParallelism,
        if (travelWithTask) TaskSplitter.MaxBytes else Long.MaxValue
      )
    ends.indices.map { i =>
      new ArrowPartition(i, TaskSlices(rowsId, if (i == 0) 0 else ends(i - 1), ends(i), byId)): Partition
    }.toArray
  }

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    val slices = new StoredSlices(
      split.asInstanceOf[ArrowPartition].taskSlices.slices.iterator,
      () => hadoop.fold(new Configuration)(_.value.value),
      damaged
    )
    val allocator = ArrowUtils.rootAllocator.newChildAllocator("headwater", 0, Long.MaxValue)
    val rows = new SliceRows(arrowSchema, slices, allocator)
    task.addTaskCompletionListener[Unit] { _ =>
      slices.close()
      rows.close()
    }
    rows
  }

  private def damaged(e: DamagedException, rows: Range): Unit = lossReports match {
    case None =>
      throw new DataLossException(
        s"${e.getMessage}. Set the option failOnDataLoss to false to continue without these rows."
      )
    case Some(reports) =>
      reports.add(LossReport.of(rows, e.getMessage))
      logWarning(s"${e.getMessage}. Continuing without these rows, since failOnDataLoss is false.")
  }
}

/** A loss as a task reports it: as a String, since every class loader has the same String class. */
private object LossReport {
  def of(rows: Range, what: String): String = s"${rows.size} from ${rows.start}: $what"
  def rowsOf(loss: String): Long = loss.takeWhile(_ != ' ').toLong
}

private object ArrowRDD {

  /** Whether tasks in this JVM load the same classes, and so the same [[PlannedRows]]. They do if the jar came
    * with Spark or with the application. A jar added to one session is loaded again for its tasks, and so is
    * every jar with `spark.executor.userClassPathFirst`.
    */
  def tasksSeeOurClasses(conf: SparkConf): Boolean = {
    val headwaterLoader = PlannedRows.getClass.getClassLoader
    val sparkLoader = classOf[SparkContext].getClassLoader
    val isShared =
      (headwaterLoader eq sparkLoader) || (headwaterLoader.getClass == classOf[
        MutableURLClassLoader
      ] && (headwaterLoader.getParent eq sparkLoader))
    isShared && !conf.getBoolean("spark.executor.userClassPathFirst", false)
  }
}

private final class ArrowPartition(override val index: Int, val taskSlices: TaskSlices) extends Partition
