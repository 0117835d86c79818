package org.apache.spark.sql.headwater

import headwater.buffer.StoredBatch
import headwater.task.{BatchTasks, SliceColumns, SliceRows, TaskReader, TaskSlices}
import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.SerializableConfiguration

/** Rows of planned batches as streaming DataFrames. Calls that Spark keeps to its own packages are in this folder
  * and nowhere else: `internalCreateDataFrame` and `mapInArrow` are `private[sql]`.
  *
  * @param name
  *   what the plan shows
  */
final class StreamingFrames(
    spark: SparkSession,
    name: String,
    schema: StructType,
    arrowSchema: Array[Byte],
    tasks: BatchTasks
) {
  private[this] val session = spark.asInstanceOf[classic.SparkSession]
  private[this] val template = new PlanTemplate(session, schema)

  /** Losses are reported when the frame is run, not when it is planned. */
  def of(batch: StoredBatch): DataFrame = {
    val rdd = new ArrowRDD(
      session.sparkContext,
      arrowSchema,
      tasks.reader,
      tasks.hadoopFor(batch),
      () => tasks.of(batch)
    )
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
    reader: TaskReader,
    hadoop: Option[Broadcast[SerializableConfiguration]],
    @transient tasks: () => IndexedSeq[TaskSlices]
) extends RDD[InternalRow](context, Nil) {

  override protected def getPartitions: Array[Partition] =
    tasks().zipWithIndex.map { case (slices, i) => new ArrowPartition(i, slices): Partition }.toArray

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    val slices = split.asInstanceOf[ArrowPartition].taskSlices.slices
    new SliceRows(new SliceColumns(arrowSchema, reader.open(slices.iterator, hadoop, task)))
  }
}

private final class ArrowPartition(override val index: Int, val taskSlices: TaskSlices) extends Partition
