package headwater.core

import scala.concurrent.duration.Deadline

import headwater.buffer.Buffer

/** Where the rows of a source wait for Spark: in memory, or in a log. Thread-safe. */
private[headwater] trait Store {

  /** Identifies the run of the rows, in every offset. Only offsets of the same run refer to rows in this store. */
  def run: String

  /** For offsets and error messages. */
  def durability: Durability

  /** The rows that Spark can read. */
  def buffer: Buffer

  /** The seq of the first row that a feed appends now. */
  def next: Long

  /** The last durable cursor of each shard. */
  def cursors: Map[Int, String]

  /** Appends rows of a feed. Blocks while there is no room; returns false when the feed must end. */
  def append(rowGroup: RowGroup): Boolean

  /** Spark will not ask again for the rows up to `end`. */
  def commit(end: Long): Unit

  /** All rows that were appended are in the buffer. */
  def isFlushed: Boolean

  /** Why the store cannot continue. */
  def failure: Option[Throwable]

  /** For progress reports. */
  def metrics: Map[String, Long]

  /** Releases everything. The feed has ended before.
    *
    * @param availableNow
    *   the query ran with Trigger.AvailableNow
    */
  def close(deadline: Deadline, availableNow: Boolean): Unit
}

/** Where rows wait for Spark. */
sealed abstract class Durability(val name: String)

object Durability {
  case object Memory extends Durability("memory")
  case object Log extends Durability("log")

  def named(name: String): Durability = if (name == Log.name) Log else Memory
}
