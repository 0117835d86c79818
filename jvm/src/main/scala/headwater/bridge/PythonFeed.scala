package headwater.bridge

import java.io.IOException
import java.nio.channels.SocketChannel
import java.util.concurrent.{CompletableFuture, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean
import javax.annotation.concurrent.GuardedBy

import scala.concurrent.duration._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.core.{
  ArrowRows,
  Cursor,
  Feed,
  FeedReport,
  Json,
  OffsetJson,
  RowGroup,
  RowSink,
  Uninterruptibly,
  WallClock
}
import headwater.{BridgeException, FeedFailedException}
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.internal.Logging

/** A feed that runs in Python: some shards side by side, each with a thread in Python and a connection here.
  * Everything that must stay in order travels on one connection: rows, cursors, the report that the shard has
  * caught up, its failure, and its end.
  *
  * @param id
  *   the shards are named `id.0`, `id.1`, …
  * @param openRequest
  *   the request to open the source, without the shard
  * @param holdUntilCursor
  *   rows are held until a cursor follows them, so that both become durable together
  * @param since
  *   the cursor after which a shard resumes
  * @param exitTime
  *   how long the feed waits for the end of this JVM before it fails because Python has ended
  * @param wallClock
  *   in microseconds since the epoch
  */
private[headwater] final class PythonFeed(
    bridge: Bridge,
    id: String,
    openRequest: ObjectNode,
    shardCount: Int,
    arrowSchema: Schema,
    holdUntilCursor: Boolean,
    since: Int => Option[String],
    exitTime: FiniteDuration = Bridge.ExitTime,
    wallClock: () => Long = WallClock.micros
) extends Feed
    with Logging {
  import PythonFeed._

  private[this] val shards = (0 until shardCount).map(new Shard(_))

  @GuardedBy("this") private[this] var closing = false
  @GuardedBy("this") private[this] var failure: Option[Throwable] = None
  @GuardedBy("this") private[this] var shardsBehind = shardCount

  override def run(out: RowSink): Unit = {
    synchronized(
      if (!closing) bridge.feedStarted(id, out)
    ) // close(), which calls feedEnded, may have come first
    val threads = shards.map(_.start(out))
    threads.foreach(Uninterruptibly.join(_))
    synchronized(failure).foreach(throw _)
  }

  /** Sends cursors to acknowledge to Python, by shard. Does not wait for a response. */
  def acknowledge(cursors: Map[Int, String]): Unit = cursors.foreach { case (shard, cursor) =>
    if (!isClosing)
      bridge.request(
        "acknowledge",
        Json.mapper.createObjectNode().put("feed", s"$id.$shard").put("cursor", cursor)
      )
  }

  /** Asks Python to end all shards, and waits until it has, or reports that it cannot. */
  override def close(deadline: Deadline): Unit = {
    synchronized {
      closing = true
      notifyAll()
    }
    val responses = shards.flatMap(shard => shard.stop(deadline).map(shard -> _))
    responses.foreach { case (shard, response) =>
      val state =
        try Uninterruptibly.get(response, deadline).fold("does not respond")(_.path("state").asText)
        catch { case NonFatal(e) => e.getMessage }
      if (state != "stopped") logWarning(s"feed ${shard.name}: Python was told to stop it: $state")
    }
    bridge.feedEnded(id)
  }

  override def report: Option[FeedReport] = Some(FeedReport.all(shards.map(_.report)))

  private def isClosing: Boolean = synchronized(closing)

  private def isEnding: Boolean = synchronized(closing || failure.nonEmpty)

  private def failed(e: Throwable): Unit = {
    val first = synchronized {
      val first = failure.isEmpty && !closing
      if (first) failure = Some(e)
      notifyAll()
      first
    }
    if (first) shards.foreach(_.disconnect())
  }

  /** When Python ends, after Ctrl-C for instance, this JVM usually does as well. The feed has not failed then. Python
    * closes the connections of feeds first, so it takes a moment to see that it ends.
    */
  private def awaitExit(): Unit = synchronized {
    val deadline = exitTime.fromNow
    val noticeable = (exitTime / 5).fromNow
    def isExiting = !bridge.isConnected || noticeable.hasTimeLeft()
    while (!closing && failure.isEmpty && isExiting && deadline.hasTimeLeft()) wait(20)
  }

  private def caughtUp(out: RowSink): Unit = {
    val all = synchronized {
      shardsBehind -= 1
      shardsBehind == 0
    }
    if (all) out.caughtUp()
  }

  private final class Shard(index: Int) {
    val name: String = s"$id.$index"
    private[this] val connection = bridge.server.expect(name)
    @GuardedBy("this") private[this] var opened: Option[CompletableFuture[JsonNode]] = None
    @GuardedBy("this") private[this] var reported = FeedReport.Starting
    private[this] val caughtUpReported = new AtomicBoolean
    private[this] var heldRows = Vector.empty[ArrowRows] // used by the reading thread only

    def start(out: RowSink): Thread = {
      val thread = BridgeServer.daemon(s"headwater-feed-$name").newThread(() => run(out))
      thread.start()
      thread
    }

    def report: FeedReport = synchronized(reported)

    /** None if Python was never asked to open the shard. */
    def stop(deadline: Deadline): Option[CompletableFuture[JsonNode]] = {
      disconnect()
      Option.when(synchronized(opened).nonEmpty)(
        bridge.stop(name, deadline)
      )
    }

    def disconnect(): Unit = {
      bridge.server.cancelExpected(name)
      synchronized(opened).foreach(_.cancel(false)) // Python may never respond, and the thread waits for it
      if (!connection.cancel(false) && !connection.isCompletedExceptionally) connection.join().close()
    }

    private def run(out: RowSink): Unit =
      try
        if (open()) {
          requestStatus(version = 0)
          read(connected(), out)
        }
      catch {
        case e: IOException =>
          awaitExit()
          if (!isClosing) failed(new FeedFailedException(s"the connection to Python was lost: $e", e))
        case e: Throwable => failed(e)
      } finally disconnect()

    /** Sends the request under the lock, so that the request to stop cannot overtake it. */
    private def open(): Boolean = {
      val request = openRequest.deepCopy().put("feed", name).put("shard", index).put("shards", shardCount)
      since(index).foreach(request.put("since", _))
      val response = synchronized {
        opened = Option.when(!isEnding)(bridge.request("open", request))
        opened
      }
      response.foreach(Uninterruptibly.get(_, OpenTimeout.fromNow).getOrElse(timedOut()))
      response.nonEmpty
    }

    private def connected(): SocketChannel =
      Uninterruptibly.get(connection, OpenTimeout.fromNow).getOrElse(timedOut())

    private def timedOut(): Nothing =
      throw new BridgeException(s"Python did not start the feed within ${OpenTimeout.toSeconds} s")

    /** Python responds when its status has a newer version than this. A progress report must not wait for Python, so
      * the last status is kept here.
      */
    private def requestStatus(version: Long): Unit = if (!isEnding) {
      val request = Json.mapper.createObjectNode().put("feed", name).put("version", version)
      bridge.request("status", request).thenAccept { response =>
        if (!response.path("stopped").asBoolean) {
          synchronized { reported = PythonStatus.read(response) }
          StatusPause.execute(() => requestStatus(response.path("version").asLong))
        }
      }
    }

    private def read(channel: SocketChannel, out: RowSink): Unit = {
      val stream = new ArrowStream(channel, MaxMessageBytes)
      val schema = stream.schema()
      if (schema != arrowSchema)
        throw new BridgeException(s"Python sends rows of another schema, $schema, than it said, $arrowSchema")
      var next = stream.next()
      while (next.exists(receive(_, out))) next = stream.next()
      reportCaughtUp(out) // a shard that has ended is not behind
    }

    private def receive(batch: ArrowStream.Batch, out: RowSink): Boolean = {
      batch.metadata.get(FailureKey).foreach(what => throw FeedFailedException.inPython(what))
      val cursor = batch.metadata.get(CursorKey).map(Cursor(index, _))
      cursor.foreach(check)
      if (batch.rows > 0) heldRows :+= ArrowRows(batch.rows, batch.bytes, None, index, wallClock())
      val isComplete = cursor.nonEmpty || !holdUntilCursor
      val open = !isComplete || cursor.isEmpty && heldRows.isEmpty || out.append(RowGroup(heldRows, cursor))
      if (isComplete) heldRows = Vector.empty
      if (batch.metadata.contains(CaughtUpKey)) reportCaughtUp(out)
      open
    }

    /** Before its rows are durable: the log would have a cursor that no start can read. */
    private def check(cursor: Cursor): Unit = Cursor.fault(cursor.json, shardCount).foreach { fault =>
      throw new FeedFailedException(
        s"the cursor ${OffsetJson.shorten(cursor.json)} of shard $index is refused: $fault"
      )
    }

    private def reportCaughtUp(out: RowSink): Unit = if (!caughtUpReported.getAndSet(true)) caughtUp(out)
  }
}

private[headwater] object PythonFeed {

  /** Keys in the metadata of a batch, which may have no rows. */
  private val CursorKey = "headwater.cursor"
  private val CaughtUpKey = "headwater.caught_up"
  private val FailureKey = "headwater.failure"

  /** A row may have 64 MiB, plus Arrow's overhead; more would not fit into a task's message. */
  private val MaxMessageBytes = 65 << 20

  private val OpenTimeout = 30.seconds

  /** A status may change with every row. */
  private val StatusPause = CompletableFuture.delayedExecutor(200, TimeUnit.MILLISECONDS)
}

/** The fields of a status that Python sends of a feed, and of a watch. */
private[headwater] object PythonStatus {
  def read(status: JsonNode): FeedReport = FeedReport(
    status.path("state").asText,
    status.path("restarts").asLong,
    status.path("badRows").asLong,
    Option.when(status.hasNonNull("lastError"))(
      FeedReport.LastError(status.path("lastError").asText, status.path("lastErrorAt").asLong)
    )
  )
}
