package headwater

import org.apache.spark.internal.Logging

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
  def give(parcel: Parcel): Boolean

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

/** The classic: rows live as long as the query. */
private[headwater] final class MemoryStore(override val run: String, override val buffer: Buffer)
    extends Store
    with Logging {
  override val next: Long = buffer.latest + 1

  override def durability: Durability = Durability.Memory
  override def cursors: Map[Int, String] = Map.empty
  override def give(parcel: Parcel): Boolean = parcel.rows.forall(buffer.append)
  override def commit(end: Long): Unit = buffer.commit(end)
  override def isSettled: Boolean = true
  override def failure: Option[Throwable] = None
  override def metrics: Map[String, Long] = Map.empty

  override def close(availableNow: Boolean): Unit = {
    val waiting = buffer.clear()
    val gone = s"$waiting rows that no batch had taken are gone with the buffer"
    if (waiting > 0 && availableNow)
      logWarning(s"$gone, which was full, or was filled too late for this run")
    else if (waiting > 0) logInfo(gone)
  }
}
