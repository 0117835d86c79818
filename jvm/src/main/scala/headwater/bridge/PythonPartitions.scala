package headwater.bridge

import java.util.Base64
import java.util.concurrent.{CompletableFuture, TimeUnit}
import javax.annotation.concurrent.GuardedBy

import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.core.{Arrivals, Json, PartitionKeyType, PartitionedOptions, Positions, Uninterruptibly}
import headwater.partition.{PartitionWatch, PythonReader, RunningPartitions}
import headwater.{BridgeException, FeedFailedException}
import org.apache.spark.internal.Logging

/** The partitions of a source written in Python: the Python process watches them, tasks read them. */
private[headwater] final class PythonPartitions private (
    bridge: Bridge,
    id: String,
    override val watch: PythonPartitionWatch,
    override val reader: PythonReader
) extends RunningPartitions {

  override def committed(positions: Positions): Unit = watch.committed(positions)

  override def close(deadline: Deadline): Unit = {
    watch.close(deadline)
    bridge.feedEnded(id)
  }
}

private[headwater] object PythonPartitions {

  /** @param known
    *   partitions whose start is known
    * @param id
    *   the id of the feed in Python
    * @param offsets
    *   the position of the query
    * @param badRows
    *   how many rows did not fit the schema
    */
  def open(
      options: PartitionedOptions,
      openRequest: ObjectNode,
      known: Set[String],
      id: String,
      offsets: () => Map[String, Long],
      badRows: () => Long
  ): PythonPartitions = {
    val bridge = Bridge.current
    openRequest
      .put("failOnDataLoss", options.failOnDataLoss)
      .put("callTimeoutMs", TimeUnit.NANOSECONDS.toMillis(options.callTimeout))
    options.startFrom.writeTo(openRequest.putObject("startFrom"))
    val knownPartitions = openRequest.putArray("known")
    known.foreach(knownPartitions.add)
    val watch = new PythonPartitionWatch(bridge, id, openRequest)
    val reader = watch.start()
    bridge.feedStarted(id, () => statusJson(offsets(), badRows(), watch))
    new PythonPartitions(bridge, id, watch, reader)
  }

  private def statusJson(offsets: Map[String, Long], badRows: Long, watch: PartitionWatch): ObjectNode = {
    val status = Json.mapper.createObjectNode()
    val snapshot = watch.snapshot
    val latest = snapshot.fold(Map.empty[String, Long])(_.latest)
    val byPartition = status.putObject("offsets")
    (offsets -- snapshot.fold(Set.empty[String])(_.gone)).foreach { case (partition, offset) =>
      byPartition.put(partition, offset)
    }
    status
      .put("badRows", badRows)
      .put(
        "waitingRows",
        latest.map { case (p, until) => math.max(0L, until - offsets.getOrElse(p, until)) }.sum
      )
      .setAll[ObjectNode](Bridge.arrivals(watch.arrivals))
  }
}

/** Watches partitions through Python. Python calls the author's code in threads of its own and responds when
  * something has changed; the response is kept here, and the next one requested.
  */
private[headwater] final class PythonPartitionWatch(
    bridge: Bridge,
    feed: String,
    openRequest: ObjectNode,
    nanoTime: () => Long = () => System.nanoTime()
) extends PartitionWatch
    with Logging {
  import PythonPartitionWatch._
  import PartitionWatch._

  @GuardedBy("this") private[this] var current: Option[Snapshot] = None
  @GuardedBy("this") private[this] var failed: Option[Throwable] = None
  @GuardedBy("this") private[this] var closed = false
  @GuardedBy("this") private[this] var wantsCommits = false
  @GuardedBy("this") private[this] val arrived = new Arrivals(() => System.nanoTime())

  /** Returns the function that reads rows in tasks, when Python has begun to watch. */
  def start(): PythonReader = {
    val response = Uninterruptibly
      .get(bridge.request("watch", openRequest.deepCopy().put("feed", feed)), OpenTimeout.fromNow)
      .getOrElse(
        throw new BridgeException(
          s"Python did not begin to watch the partitions within ${OpenTimeout.toSeconds} s"
        )
      )
    synchronized { wantsCommits = response.path("committed").asBoolean }
    requestPositions(version = 0)
    readerIn(response.path("reader"))
  }

  override def snapshot: Option[Snapshot] = synchronized(current)

  override def failure: Option[Throwable] = synchronized(failed)

  override def arrivals: Arrivals.Status = synchronized(arrived.status)

  /** Tells the source that Spark has committed a batch, if it wants to know. Does not wait for it. */
  def committed(positions: Positions): Unit = if (synchronized(wantsCommits && !closed)) {
    val request = Json.mapper.createObjectNode().put("feed", feed)
    val offsets = request.putObject("offsets")
    positions.at.foreach { case (partition, offset) => offsets.put(partition, offset) }
    bridge.request("committed", request)
  }

  override def awaitComplete(nanos: Long): Boolean = synchronized {
    val deadline = nanoTime() + nanos
    def millisLeft: Long = (deadline - nanoTime()) / 1000000
    var left = millisLeft // read once: wait(0) would wait for ever
    while (!current.exists(_.isComplete) && failed.isEmpty && !closed && left > 0) {
      wait(left)
      left = millisLeft
    }
    current.exists(_.isComplete)
  }

  override def after(wanted: Map[String, (Long, Long)]): CompletableFuture[Map[String, Long]] = {
    val request = Json.mapper.createObjectNode().put("feed", feed)
    val wantedRows = request.putObject("wanted")
    wanted.foreach { case (partition, (start, rows)) => wantedRows.putArray(partition).add(start).add(rows) }
    bridge.request("after", request).thenApply(response => longs(response.path("ends")))
  }

  def close(deadline: Deadline): Unit = {
    synchronized {
      closed = true
      notifyAll()
    }
    val state =
      try
        Uninterruptibly
          .get(bridge.stop(feed, deadline), deadline)
          .fold("does not respond")(_.path("state").asText)
      catch { case NonFatal(e) => e.getMessage }
    if (state != "stopped")
      logWarning(s"the watch of partitions $feed: Python was told to stop it: $state")
  }

  private def requestPositions(version: Long): Unit = {
    val request = Json.mapper.createObjectNode().put("feed", feed).put("version", version)
    bridge.request("positions", request).whenComplete { (response, error) =>
      // When Python ends, this JVM usually does as well, and the watch has not failed.
      if (error != null && !bridge.isConnected)
        CompletableFuture
          .delayedExecutor(Bridge.ExitTime.toMillis, TimeUnit.MILLISECONDS, (task: Runnable) => task.run())
          .execute(() => received(response, Option(error)))
      else received(response, Option(error))
    }
  }

  /** Runs in the reader thread of the connection, if that is there. */
  private def received(response: JsonNode, error: Option[Throwable]): Unit = {
    val continue = synchronized {
      try {
        error.foreach(throw _)
        if (response.hasNonNull("failure"))
          throw FeedFailedException.inPython(response.path("failure").asText)
        val isStopped = response.path("stopped").asBoolean
        if (!isStopped) update(read(response))
        !isStopped && !closed
      } catch {
        case NonFatal(e) =>
          failed = failed.orElse(Some(e))
          false
      } finally notifyAll()
    }
    if (continue) requestPositions(response.path("version").asLong)
  }

  @GuardedBy("this") private def update(next: Snapshot): Unit = {
    val known = current.fold(Map.empty[String, Long])(_.latest)
    val rows = next.latest.map { case (p, latest) => math.max(0L, latest - known.getOrElse(p, latest)) }.sum
    if (rows > 0) arrived.add(rows, bytes = 0)
    current = Some(next)
  }
}

private[headwater] object PythonPartitionWatch {
  import PartitionWatch._

  private val OpenTimeout = 60.seconds

  private def readerIn(node: JsonNode): PythonReader = PythonReader(
    Base64.getDecoder.decode(node.path("function").asText),
    node.path("executable").asText,
    node.path("version").asText,
    node.path("includes").elements.asScala.map(_.asText).toSeq,
    node.path("environment").fields.asScala.map(entry => entry.getKey -> entry.getValue.asText).toMap
  )

  private def read(response: JsonNode): Snapshot = Snapshot(
    PartitionKeyType
      .named(response.path("partitions").asText)
      .getOrElse(PartitionKeyType.Names), // unknown while there are no partitions
    longs(response.path("latest")),
    longs(response.path("starts")),
    response.path("gone").elements.asScala.map(_.asText).toSet,
    response.path("complete").asBoolean,
    response
      .path("failing")
      .fields
      .asScala
      .map { entry =>
        entry.getKey -> PartitionErrors(
          entry.getValue.path("errors").asLong,
          entry.getValue.path("last").asText
        )
      }
      .toMap,
    PythonStatus.read(response.path("status"))
  )

  private def longs(node: JsonNode): Map[String, Long] =
    node.fields.asScala.map(entry => entry.getKey -> entry.getValue.asLong).toMap
}
