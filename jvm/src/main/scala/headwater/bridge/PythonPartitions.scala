package headwater.bridge

import java.util.concurrent.CompletableFuture
import javax.annotation.concurrent.GuardedBy

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.core.{Json, PartitionKeyType, PartitionedOptions, Uninterruptibly}
import headwater.partition.{PartitionBatch, PartitionWatch, RunningPartitions}
import headwater.{BridgeException, FeedFailedException}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.headwater.PartitionFrames

/** The partitions of a source that is written in Python: the driver's Python watches them, tasks read them. */
private[headwater] final class PythonPartitions private (
    bridge: Bridge,
    id: String,
    override val watch: PartitionWatch,
    frames: PartitionFrames
) extends RunningPartitions {

  override def frame(tasks: Seq[String]): PartitionBatch = {
    val (frame, reports) = frames.of(tasks)
    PartitionBatch(frame, reports)
  }

  override def close(): Unit = {
    watch.close()
    bridge.ended(id)
  }
}

private[headwater] object PythonPartitions {

  /** @param known
    *   partitions whose start is known
    * @param id
    *   what Python calls it
    * @param offsets
    *   where the query stands
    */
  def open(
      spark: SparkSession,
      loaded: LoadedSource,
      options: PartitionedOptions,
      opening: ObjectNode,
      known: Set[String],
      id: String,
      offsets: () => Map[String, Long]
  ): RunningPartitions = {
    val bridge = Bridge.current
    opening.put("failOnDataLoss", options.failOnDataLoss)
    options.startFrom.writeTo(opening.putObject("startFrom"))
    val named = opening.putArray("known")
    known.foreach(named.add)
    val watch = new PythonPartitionWatch(bridge, id, opening)
    watch.start()
    try {
      val reader = bridge.takeReader(id)
      bridge.started(id, () => statusOf(offsets(), watch))
      val frames =
        new PartitionFrames(spark, loaded.description, loaded.schema, loaded.arrowSchema, reader)
      new PythonPartitions(bridge, id, watch, frames)
    } catch { case e: Throwable => watch.close(); throw e }
  }

  private def statusOf(offsets: Map[String, Long], watch: PartitionWatch): ObjectNode = {
    val told = Json.mapper.createObjectNode()
    val latest = watch.seen.fold(Map.empty[String, Long])(_.latest)
    val by = told.putObject("offsets")
    offsets.foreach { case (partition, offset) => by.put(partition, offset) }
    told.put(
      "waitingRows",
      latest.map { case (p, until) => math.max(0L, until - offsets.getOrElse(p, until)) }.sum
    )
  }
}

/** The watch of a source in the driver's Python. */
private[headwater] final class PythonPartitionWatch(bridge: Bridge, feed: String, opening: ObjectNode)
    extends PartitionWatch
    with Logging {
  import PythonPartitionWatch._
  import PartitionWatch._

  @GuardedBy("this") private[this] var told: Option[Seen] = None
  @GuardedBy("this") private[this] var failed: Option[Throwable] = None
  @GuardedBy("this") private[this] var closed = false

  /** Returns when Python has begun; it has handed over what reads rows by then. */
  def start(): Unit = {
    Uninterruptibly
      .get(bridge.ask("watch", opening.deepCopy().put("feed", feed)), Uninterruptibly.deadlineIn(OpenMillis))
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
    val request = Json.mapper.createObjectNode().put("feed", feed)
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
        Uninterruptibly
          .get(
            bridge.ask("stop", Json.mapper.createObjectNode().put("feed", feed)),
            Uninterruptibly.deadlineIn(StopMillis)
          )
          .fold("does not answer")(_.path("state").asText)
      catch { case NonFatal(e) => e.getMessage }
    if (said != "stopped")
      logWarning(s"the watch of partitions $feed: Python was told to stop it: $said")
  }

  private def ask(version: Long): Unit = {
    val request = Json.mapper.createObjectNode().put("feed", feed).put("version", version)
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

private[headwater] object PythonPartitionWatch {
  import PartitionWatch._

  private val OpenMillis = 60000L

  /** Python gives it three seconds. */
  private val StopMillis = 3500L

  private def read(answer: JsonNode): Seen = Seen(
    PartitionKeyType.named(answer.path("partitions").asText).getOrElse(PartitionKeyType.Names), // unknown while there is none
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
