package org.apache.spark.sql.headwater

import scala.jdk.CollectionConverters._

import headwater.DataLossException
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

/** Arrow batches in [[PlannedRows]] as streaming DataFrames. What needs Spark's own calls stands in Spark's own package, in
  * this folder and nowhere else: `internalCreateDataFrame`, `mapInArrow` and Spark's Arrow allocator are `private[sql]`.
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

  /** What tasks have left out, each loss once however often its rows were read; made where that is allowed. */
  private[this] val losses = Option.unless(failOnDataLoss)(new CollectionAccumulator[String])
  losses.foreach(session.sparkContext.register(_))

  /** How many rows tasks have found damaged, and left out. */
  def rowsLost: Long =
    losses.fold(0L)(_.value.asScala.toSet[String].iterator.map(Loss.rowsOf).sum)

  /** For tasks that read files of the log, where Hadoop has to be asked how. */
  private[this] lazy val hadoop =
    session.sparkContext.broadcast(new SerializableConfiguration(session.sessionState.newHadoopConf()))

  private[this] val leaf = new PlanTemplate(session, schema)

  /** @param number
    *   of the rows in [[PlannedRows]]
    * @param needsHadoop
    *   some of them lie in files that only Hadoop can read
    * @param onRun
    *   called on the driver when the frame is first run, and not if it is only planned
    */
  def of(number: Long, needsHadoop: Boolean)(onRun: () => Unit): DataFrame = {
    val conf = Option.when(needsHadoop)(hadoop)
    val rdd =
      new ArrowRDD(session.sparkContext, arrowSchema, number, conf, losses, onRun).setName(name)
    leaf.of(rdd)
  }
}

/** Streaming frames over RDDs of one schema.
  *
  * Spark would analyse the plan of every frame, which takes some milliseconds of each batch, and find the same each
  * time: the plan is one leaf. So it is asked once, and the frames are copies that differ in their rows.
  */
private[headwater] final class PlanTemplate(session: classic.SparkSession, schema: StructType) {

  private[this] lazy val analysed: LogicalPlan = {
    val none = session.sparkContext.emptyRDD[InternalRow]
    val plan = session.internalCreateDataFrame(none, schema, isStreaming = true).queryExecution.analyzed
    // Spark collects the ids of all frames of a plan there, and the copies would share the collection.
    plan.unsetTagValue(classic.Dataset.DATASET_ID_TAG)
    plan
  }

  def of(rdd: RDD[InternalRow]): classic.DataFrame = {
    val plan = PlanTemplate.over(rdd, analysed)
    plan.setAnalyzed()
    classic.Dataset.ofRows(session, plan)
  }
}

private[headwater] object PlanTemplate {

  /** The same leaf over another RDD. By position: its other fields, and its constructor, differ between lines of Spark. */
  def over[Plan <: QueryPlan[Plan]](rdd: RDD[InternalRow], leaf: Plan): Plan = {
    val fields = leaf.productIterator.map {
      case _: RDD[_] => rdd
      case same => same.asInstanceOf[AnyRef]
    }
    leaf.makeCopy(fields.toArray)
  }
}

private final class ArrowRDD(
    context: SparkContext,
    arrowSchema: Array[Byte],
    number: Long,
    hadoop: Option[Broadcast[SerializableConfiguration]],
    losses: Option[CollectionAccumulator[String]],
    @transient onRun: () => Unit
) extends RDD[InternalRow](context, Nil) {

  override protected def getPartitions: Array[Partition] = {
    onRun()
    val byNumber = sparkContext.isLocal && ArrowRDD.tasksSeeOurClasses(sparkContext.getConf)
    val slices = PlannedRows.get(number)
    // What travels in the task is kept small; what lies in files need not be.
    val travels = !byNumber && slices.exists(_.rows.isInstanceOf[ArrowRows])
    val ends =
      TaskSplitter.ends(slices, sparkContext.defaultParallelism, if (travels) TaskSplitter.MaxBytes else Long.MaxValue)
    ends.indices.map { i =>
      new ArrowPartition(i, TaskSlices(number, if (i == 0) 0 else ends(i - 1), ends(i), byNumber)): Partition
    }.toArray
  }

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    val slices = new StoredSlices(
      split.asInstanceOf[ArrowPartition].cargo.slices.iterator,
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

  private def damaged(e: DamagedException, rows: Range): Unit = losses match {
    case None =>
      throw new DataLossException(
        s"${e.getMessage}. Set the option failOnDataLoss to false to go on without these rows."
      )
    case Some(counted) =>
      counted.add(Loss.of(rows, e.getMessage))
      logWarning(s"${e.getMessage}. Going on without these rows, as failOnDataLoss is false.")
  }
}

/** A loss as a task tells it: in a class of Java's, which every class loader has once. */
private object Loss {
  def of(rows: Range, what: String): String = s"${rows.size} from ${rows.start}: $what"
  def rowsOf(loss: String): Long = loss.takeWhile(_ != ' ').toLong
}

private object ArrowRDD {

  /** Whether a task in this JVM finds our very classes, and so our [[PlannedRows]]. It does when they came with Spark's own
    * or with the jars of the application. A jar that was added to one session is loaded once more for its tasks, and so is
    * every jar when executors are told to prefer their own copy.
    */
  def tasksSeeOurClasses(conf: SparkConf): Boolean = {
    val ours = PlannedRows.getClass.getClassLoader
    val sparks = classOf[SparkContext].getClassLoader
    val came =
      (ours eq sparks) || (ours.getClass == classOf[MutableURLClassLoader] && (ours.getParent eq sparks))
    came && !conf.getBoolean("spark.executor.userClassPathFirst", false)
  }
}

private final class ArrowPartition(override val index: Int, val cargo: TaskSlices) extends Partition
