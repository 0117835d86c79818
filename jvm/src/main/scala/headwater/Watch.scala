package headwater

import java.util.concurrent.CompletableFuture
import javax.annotation.concurrent.GuardedBy

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.internal.Logging

/** What Python sees of the partitions of a source, as it was told last: which there are, and how far each goes.
  *
  * Python asks the author's code, in threads of its own, and answers when something has changed; here the answer is kept,
  * and the next is asked for. So whoever wants to know how things stand never waits for the author's code.
  */
private[headwater] trait Watch extends AutoCloseable {

  /** None until Python has answered for the first time. */
  def seen: Option[Watch.Seen]

  /** What Python has given up for. */
  def failure: Option[Throwable]

  /** Waits until every partition has answered, or failed to; false if that did not come in time. */
  def awaitComplete(nanos: Long): Boolean

  /** For each partition, an end behind that start such that at most so many rows lie between. */
  def after(wanted: Map[String, (Long, Long)]): CompletableFuture[Map[String, Long]]
}

private[headwater] object Watch {

  /** @param latest
    *   one past the last offset, of the partitions that have answered
    * @param starts
    *   where those begin whose start was not known
    * @param gone
    *   partitions that are not there any more
    * @param isComplete
    *   all that are there have answered, or failed to
    * @param failing
    *   by partition; what fails for all of them has the empty name
    */
  final case class Seen(
      naming: Naming,
      latest: Map[String, Long],
      starts: Map[String, Long],
      gone: Set[String],
      isComplete: Boolean,
      failing: Map[String, Failing]
  )

  /** @param errors in a row */
  final case class Failing(errors: Long, last: String)
}

/** The watch of a source in the driver's Python. */
private[headwater] final class PythonWatch(bridge: Bridge, feed: String, opening: ObjectNode)
    extends Watch
    with Logging {
  import PythonWatch._
  import Watch._

  @GuardedBy("this") private[this] var told: Option[Seen] = None
  @GuardedBy("this") private[this] var failed: Option[Throwable] = None
  @GuardedBy("this") private[this] var closed = false

  /** Returns when Python has begun; it has handed over what reads rows by then. */
  def start(): Unit = {
    Waiting
      .get(bridge.ask("watch", opening.deepCopy().put("feed", feed)), Waiting.deadlineIn(OpenMillis))
      .getOrElse(
        throw new BridgeException(
          s"Python did not begin to watch the partitions within ${OpenMillis / 1000} s"
        )
      )
    ask(version = 0)
  }

  override def seen: Option[Seen] = synchronized(told)

  override def failure: Option[Throwable] = synchronized(failed)

  override def awaitComplete(nanos: Long): Boolean = synchronized {
    val deadline = System.nanoTime() + nanos
    def left: Long = (deadline - System.nanoTime()) / 1000000
    while (!told.exists(_.isComplete) && failed.isEmpty && !closed && left > 0) wait(left)
    told.exists(_.isComplete)
  }

  override def after(wanted: Map[String, (Long, Long)]): CompletableFuture[Map[String, Long]] = {
    val request = Peer.Json.createObjectNode().put("feed", feed)
    val asked = request.putObject("wanted")
    wanted.foreach { case (partition, (start, rows)) => asked.putArray(partition).add(start).add(rows) }
    bridge.ask("after", request).thenApply(answer => longs(answer.path("ends")))
  }

  override def close(): Unit = {
    synchronized {
      closed = true
      notifyAll()
    }
    val said =
      try
        Waiting
          .get(
            bridge.ask("stop", Peer.Json.createObjectNode().put("feed", feed)),
            Waiting.deadlineIn(StopMillis)
          )
          .fold("does not answer")(_.path("state").asText)
      catch { case NonFatal(e) => e.getMessage }
    if (said != "stopped")
      logWarning(s"the watch of partitions $feed: Python was told to stop it: $said")
  }

  private def ask(version: Long): Unit = {
    val request = Peer.Json.createObjectNode().put("feed", feed).put("version", version)
    bridge.ask("positions", request).whenComplete((answer, error) => answered(answer, Option(error)))
  }

  /** In the thread that listens to Python. */
  private def answered(answer: JsonNode, error: Option[Throwable]): Unit = {
    val goesOn = synchronized {
      try {
        error.foreach(throw _)
        if (answer.hasNonNull("failure")) throw new FeedFailedException(answer.path("failure").asText)
        val isStopped = answer.path("stopped").asBoolean
        if (!isStopped) told = Some(read(answer))
        !isStopped && !closed
      } catch {
        case NonFatal(e) =>
          failed = failed.orElse(Some(e))
          false
      } finally notifyAll()
    }
    if (goesOn) ask(answer.path("version").asLong)
  }
}

private[headwater] object PythonWatch {
  import Watch._

  private val OpenMillis = 60000L

  /** Python gives it three seconds. */
  private val StopMillis = 3500L

  private def read(answer: JsonNode): Seen = Seen(
    Naming.named(answer.path("partitions").asText).getOrElse(Naming.Names), // unknown while there is none
    longs(answer.path("latest")),
    longs(answer.path("starts")),
    answer.path("gone").elements.asScala.map(_.asText).toSet,
    answer.path("complete").asBoolean,
    answer
      .path("failing")
      .fields
      .asScala
      .map { entry =>
        entry.getKey -> Failing(entry.getValue.path("errors").asLong, entry.getValue.path("last").asText)
      }
      .toMap
  )

  private def longs(node: JsonNode): Map[String, Long] =
    node.fields.asScala.map(entry => entry.getKey -> entry.getValue.asLong).toMap
}
