package headwater.buffer

import scala.concurrent.duration.Deadline

import headwater.core.{Durability, RowGroup, Store}
import org.apache.spark.internal.Logging

/** Rows in memory: they live as long as the query. */
private[headwater] final class MemoryStore(override val run: String, override val buffer: Buffer)
    extends Store
    with Logging {
  override val next: Long = buffer.latest + 1

  override def durability: Durability = Durability.Memory
  override def cursors: Map[Int, String] = Map.empty
  override def append(rowGroup: RowGroup): Boolean = rowGroup.rows.forall(buffer.append)
  override def commit(end: Long): Unit = buffer.commit(end)
  override def isFlushed: Boolean = true
  override def failure: Option[Throwable] = None
  override def metrics: Map[String, Long] = Map.empty

  override def close(deadline: Deadline, availableNow: Boolean): Unit = {
    val waiting = buffer.clear()
    val gone = s"$waiting rows that no batch had taken are gone with the buffer"
    if (waiting > 0 && availableNow)
      logWarning(s"$gone, which was full, or was filled too late for this run")
    else if (waiting > 0) logInfo(gone)
  }
}
