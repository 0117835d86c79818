package headwater.partition

import scala.concurrent.duration.Deadline

import headwater.core.Positions

/** The partitions of a running source: a watch over their offsets, and the function with which tasks read them. */
private[headwater] trait RunningPartitions {
  def watch: PartitionWatch
  def reader: PythonReader

  /** Spark has committed a batch that ends there. Does not block. */
  def committed(positions: Positions): Unit
  def close(deadline: Deadline): Unit
}

/** A Python function that reads ranges of partitions in Spark's workers, and the Python to run it with.
  *
  * @param function
  *   pickled as PySpark pickles functions
  * @param executable
  *   the Python of the workers
  * @param version
  *   its version, which Spark checks in the worker
  * @param includes
  *   files that PySpark adds to the worker's path, from `addPyFile`
  */
final case class PythonReader(
    function: Array[Byte],
    executable: String,
    version: String,
    includes: Seq[String],
    environment: Map[String, String]
)

/** One batch of a partitioned source.
  *
  * @param tasks
  *   the ranges that each task reads, as JSON
  * @param onReports
  *   to be called with the reports of tasks, as JSON; a report may be there twice
  */
final case class PartitionedBatch(
    tasks: Seq[String],
    reader: PythonReader,
    onReports: (() => Seq[String]) => Unit
)
