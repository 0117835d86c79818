package headwater.partition

import org.apache.spark.sql.DataFrame

/** Reads the partitions of a running source: a watch over their offsets, and frames whose tasks read ranges of them. */
private[headwater] trait RunningPartitions extends AutoCloseable {
  def watch: PartitionWatch

  /** @param tasks the ranges that each task reads, as JSON */
  def frame(tasks: Seq[String]): PartitionBatch
}

/** The rows of one batch.
  *
  * @param reports
  *   the reports of tasks so far, as JSON; a report may be there twice
  */
private[headwater] final case class PartitionBatch(frame: DataFrame, reports: () => Seq[String])
