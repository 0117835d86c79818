package headwater.task

import scala.concurrent.duration._
import scala.jdk.CollectionConverters._

import headwater.DataLossException
import headwater.buffer.StoredBatch
import headwater.core.{ArrowRows, Slice}
import headwater.log.{DamagedException, StoredSlices}
import org.apache.hadoop.conf.Configuration
import org.apache.spark.{SparkConf, SparkContext, TaskContext, TaskKilledException}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.internal.Logging
import org.apache.spark.sql.{classic, SparkSession}
import org.apache.spark.util.{CollectionAccumulator, MutableURLClassLoader, SerializableConfiguration}

/** Divides the batches of a stream into tasks, on the driver, and counts the losses that its tasks report. */
final class BatchTasks(spark: SparkSession, failOnDataLoss: Boolean) {
  private[this] val context = spark.sparkContext

  /** The losses that tasks report, each once however often its rows were read. Only where losses are allowed. */
  private[this] val lossReports = Option.unless(failOnDataLoss)(new CollectionAccumulator[String])
  lossReports.foreach(context.register(_))

  /** How many rows tasks found damaged and skipped. */
  def rowsLost: Long =
    lossReports.fold(0L)(_.value.asScala.toSet[String].iterator.map(LossReport.rowsOf).sum)

  private[this] lazy val hadoop = context.broadcast(
    new SerializableConfiguration(spark.asInstanceOf[classic.SparkSession].sessionState.newHadoopConf())
  )

  /** Reads the rows in the tasks. Belongs into the part of a task that Spark broadcasts: an accumulator that travels with a
    * partition reports nothing.
    */
  val reader = new TaskReader(lossReports)

  /** The slices of each task. The batch runs: its losses are reported. */
  def of(batch: StoredBatch): IndexedSeq[TaskSlices] = {
    batch.reportLosses()
    val byId = seeDriver
    val slices = PlannedRows.get(batch.rowsId, context.getLocalProperty(PlannedRows.QueryIdProperty))
    // A task that carries its rows must be small; one that reads files need not be.
    val travelWithTask = !byId && slices.exists(_.rows.isInstanceOf[ArrowRows])
    val maxBytes = if (travelWithTask) TaskSplitter.MaxBytes else Long.MaxValue
    val ends = TaskSplitter.ends(slices, context.defaultParallelism, maxBytes).toIndexedSeq
    ends.indices.map { i =>
      TaskSlices(batch.rowsId, if (i == 0) 0 else ends(i - 1), ends(i), byId)
    }
  }

  /** For tasks that read whatever arrives. */
  def hadoopForAll: Broadcast[SerializableConfiguration] = hadoop

  /** Whether tasks find what the driver keeps for them in this JVM. */
  def seeDriver: Boolean = context.isLocal && BatchTasks.tasksSeeOurClasses(context.getConf)

  /** For tasks that read segments from Hadoop file systems. */
  def hadoopFor(batch: StoredBatch): Option[Broadcast[SerializableConfiguration]] =
    Option.when(batch.needsHadoop)(hadoop)
}

private[headwater] object BatchTasks {

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

/** Reads slices in a task. */
final class TaskReader(lossReports: Option[CollectionAccumulator[String]]) extends Serializable with Logging {

  /** Closed when the task ends. */
  def open(
      slices: Iterator[Slice],
      hadoop: Option[Broadcast[SerializableConfiguration]],
      task: TaskContext
  ): Iterator[Slice] = {
    val stored = new StoredSlices(
      slices,
      () => hadoop.fold(new Configuration)(_.value.value),
      damaged,
      () => endIfCancelled(task)
    )
    task.addTaskCompletionListener[Unit](_ => stored.close())
    stored
  }

  /** Spark deletes a temporary checkpoint when its query is stopped, and may cancel the tasks of the last batch only after
    * that. So a task whose file is gone waits for a moment: if it is cancelled, no rows are lost.
    */
  private def endIfCancelled(task: TaskContext): Unit = {
    val deadline = TaskReader.CancelTime.fromNow
    while (!task.isInterrupted() && deadline.hasTimeLeft()) Thread.sleep(10)
    if (task.isInterrupted()) throw new TaskKilledException("the query was stopped")
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

private object TaskReader {
  private val CancelTime = 2.seconds
}

/** A loss as a task reports it: as a String, since every class loader has the same String class. */
private object LossReport {
  def of(rows: Range, what: String): String = s"${rows.size} from ${rows.start}: $what"
  def rowsOf(loss: String): Long = loss.takeWhile(_ != ' ').toLong
}
