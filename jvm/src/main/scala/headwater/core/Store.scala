package headwater.core

import headwater.buffer.Buffer

/** Where the rows of a source wait for Spark: in memory, or in a log. Any number of threads may use it. */
private[headwater] trait Store {

  /** Names the rows' life, in every offset: only offsets of the same run point to rows that are here. */
  def run: String

  /** For offsets and messages: where rows are. */
  def durability: Durability

  /** What Spark can be given. */
  def buffer: Buffer

  /** The seq of the first row that a feed gives now. */
  def next: Long

  /** Where the upstream stood when the last row was made durable, by shard. */
  def cursors: Map[Int, String]

  /** Takes rows from a feed. Blocks while there is no room; false when the feed has to end. */
  def give(parcel: RowGroup): Boolean

  /** Spark will not ask for the rows up to `end` again. */
  def commit(end: Long): Unit

  /** All that was given is in the buffer. */
  def isSettled: Boolean

  /** What keeps it from going on. */
  def failure: Option[Throwable]

  /** For progress reports. */
  def metrics: Map[String, Long]

  /** The end, of a feed that has ended: gives everything back, within a second.
    *
    * @param availableNow
    *   the query was to end with all rows that there were
    */
  def close(availableNow: Boolean): Unit
}

/** Where rows wait for Spark. */
sealed abstract class Durability(val name: String)

object Durability {
  case object Memory extends Durability("memory")
  case object Log extends Durability("log")

  def named(name: String): Durability = if (name == Log.name) Log else Memory
}
