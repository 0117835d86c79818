package headwater.bridge

import java.util.concurrent.CompletableFuture

import scala.collection.mutable
import scala.concurrent.duration._

import com.fasterxml.jackson.databind.JsonNode
import headwater.BridgeException
import headwater.core.{Json, Uninterruptibly}
import org.apache.spark.sql.{ForeachWriter, Row}

/** Hands each row to a function in the driver's Python, without waiting for others: Spark's own `foreach` of PySpark sends
  * rows to a worker in batches. For tasks in the driver's JVM.
  *
  * Some rows are on their way at a time. A batch has ended when Python has handled all of its rows.
  *
  * @param sink
  *   what Python calls the function
  */
final class PythonRowWriter(sink: String) extends ForeachWriter[Row] {
  @transient private[this] lazy val unanswered = mutable.Queue.empty[CompletableFuture[JsonNode]]

  override def open(partition: Long, epoch: Long): Boolean = true

  /** @param row one column, a JSON object */
  override def process(row: Row): Unit = {
    while (
      unanswered.nonEmpty && (unanswered.head.isDone || unanswered.size >= PythonRowWriter.MaxUnanswered)
    )
      answer()
    val body = Json.mapper.createObjectNode().put("sink", sink).put("row", row.getString(0))
    unanswered += Bridge.current.request("row", body)
  }

  override def close(error: Throwable): Unit = if (error == null) while (unanswered.nonEmpty) answer()

  /** Throws what the function has raised. */
  private def answer(): Unit =
    if (Uninterruptibly.get(unanswered.dequeue(), PythonRowWriter.Timeout.fromNow).isEmpty)
      throw new BridgeException(
        s"The function that foreach was given did not return within ${PythonRowWriter.Timeout.toMinutes} minutes"
      )
}

private object PythonRowWriter {
  private val MaxUnanswered = 256
  private val Timeout = 10.minutes
}
