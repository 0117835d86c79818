package headwater.buffer

import javax.annotation.concurrent.GuardedBy

import scala.collection.mutable
import scala.concurrent.duration.Deadline

import headwater.core.{Cursor, Durability, RowGroup, Store}
import org.apache.spark.internal.Logging

/** Rows in memory: they live as long as the query. */
private[headwater] final class MemoryStore(override val run: String, override val buffer: Buffer)
    extends Store
    with Logging {
  override val next: Long = buffer.latest + 1

  @GuardedBy("this") private[this] var onCursors: Option[Map[Int, String] => Unit] = None
  @GuardedBy("this") private[this] val uncommitted =
    mutable.ArrayDeque.empty[(Long, Cursor)] // with the seq that has to be committed before it

  override def durability: Durability = Durability.Memory
  override def cursors: Map[Int, String] = Map.empty
  override def isFlushed: Boolean = true
  override def failure: Option[Throwable] = None
  override def metrics: Map[String, Long] = Map.empty

  override def append(rowGroup: RowGroup): Boolean = {
    val isOpen = rowGroup.rows.forall(buffer.append)
    if (isOpen) rowGroup.cursor.foreach(remember)
    isOpen
  }

  override def commit(end: Long): Unit = {
    buffer.commit(end)
    val (listener, cursors) = synchronized {
      (onCursors, uncommitted.removeHeadWhile { case (seq, _) => seq <= end })
    }
    if (cursors.nonEmpty)
      listener.foreach(_(cursors.map { case (_, Cursor(shard, json)) => shard -> json }.toMap))
  }

  /** Sets the listener for cursors whose rows, and all rows before them, were committed. */
  def onCommitted(listener: Map[Int, String] => Unit): Unit = synchronized { onCursors = Some(listener) }

  /** Other feeds of the source may have added rows since: then the cursor waits for those too. */
  private def remember(cursor: Cursor): Unit = synchronized {
    val entry = buffer.latest -> cursor
    def isSame(last: (Long, Cursor)): Boolean = last._1 == entry._1 && last._2.shard == cursor.shard
    if (onCursors.nonEmpty) {
      if (uncommitted.lastOption.exists(isSame)) uncommitted.removeLast()
      uncommitted += entry
    }
  }

  override def close(deadline: Deadline, availableNow: Boolean): Unit = {
    val waiting = buffer.clear()
    val gone = s"$waiting rows that no batch had taken are gone with the buffer"
    if (waiting > 0 && availableNow)
      logWarning(s"$gone, which was full, or was filled too late for this run")
    else if (waiting > 0) logInfo(gone)
  }
}
