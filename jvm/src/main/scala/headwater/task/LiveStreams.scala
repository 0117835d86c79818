package headwater.task

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong

import headwater.core.LiveRows
import org.apache.spark.TaskKilledException

/** The streams of this JVM that are read in real-time mode, for tasks that run in it. */
private[headwater] object LiveStreams {
  private val ids = new AtomicLong
  private val rowsById = new ConcurrentHashMap[Long, LiveRows]

  def put(rows: LiveRows): Long = {
    val id = ids.incrementAndGet()
    rowsById.put(id, rows)
    id
  }

  def get(id: Long): LiveRows =
    Option(rowsById.get(id)).getOrElse(throw new TaskKilledException("the query was stopped"))

  def drop(id: Long): Unit = rowsById.remove(id)
}
