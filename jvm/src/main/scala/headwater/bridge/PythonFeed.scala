package headwater.bridge

import java.io.IOException
import java.nio.channels.SocketChannel
import java.util.concurrent.CompletableFuture
import java.util.concurrent.atomic.AtomicBoolean
import javax.annotation.concurrent.GuardedBy

import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.core.{ArrowRows, Cursor, Feed, Json, RowGroup, RowSink, Uninterruptibly}
import headwater.{BridgeException, FeedFailedException}
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.internal.Logging

/** A source at work in the driver's Python: some shards side by side, each a thread there and a connection here. What
  * belongs in one order travels on one connection: rows, the cursors after them, that it has caught up, what it failed
  * with, and the end.
  *
  * @param id
  *   its shards are called `id.0`, `id.1`, …
  * @param opening
  *   what Python is told to open, but for the shard
  * @param inParcels
  *   rows are handed on up to a cursor, so that they become durable together with it
  * @param since
  *   the cursor that a shard goes on after
  */
private[headwater] final class PythonFeed(
    bridge: Bridge,
    id: String,
    opening: ObjectNode,
    shardCount: Int,
    arrowSchema: Schema,
    inParcels: Boolean,
    since: Int => Option[String]
) extends Feed
    with Logging {
  import PythonFeed._

  private[this] val shards = (0 until shardCount).map(new Shard(_))

  @GuardedBy("this") private[this] var closing = false
  @GuardedBy("this") private[this] var failure: Option[Throwable] = None
  @GuardedBy("this") private[this] var behind = shardCount

  override def run(out: RowSink): Unit = {
    synchronized(
      if (!closing) bridge.started(id, out)
    ) // close, which says that it has ended, may have come first
    val threads = shards.map(_.start(out))
    threads.foreach(Uninterruptibly.join(_, Uninterruptibly.deadlineIn(Forever)))
    synchronized(failure).foreach(throw _)
  }

  /** Tells Python which cursors are durable, by shard. It does not wait for an answer. */
  def durable(cursors: Map[Int, String]): Unit = cursors.foreach { case (shard, cursor) =>
    if (!isClosing)
      bridge.ask("durable", Json.mapper.createObjectNode().put("feed", s"$id.$shard").put("cursor", cursor))
  }

  /** Asks Python to end all shards, and waits until it has, or says that it cannot. */
  override def close(): Unit = {
    synchronized { closing = true }
    val deadline = Uninterruptibly.deadlineIn(StopMillis)
    val answers = shards.flatMap(shard => shard.stop().map(shard -> _))
    answers.foreach { case (shard, answer) =>
      val said =
        try Uninterruptibly.get(answer, deadline).fold("does not answer")(_.path("state").asText)
        catch { case NonFatal(e) => e.getMessage }
      if (said != "stopped") logWarning(s"feed ${shard.name}: Python was told to stop it: $said")
    }
    bridge.ended(id)
  }

  private def isClosing: Boolean = synchronized(closing)

  private def isOver: Boolean = synchronized(closing || failure.nonEmpty)

  private def failed(e: Throwable): Unit = {
    val first = synchronized {
      val first = failure.isEmpty && !closing
      if (first) failure = Some(e)
      first
    }
    if (first) shards.foreach(_.disconnect())
  }

  private def caughtUp(out: RowSink): Unit = {
    val all = synchronized {
      behind -= 1
      behind == 0
    }
    if (all) out.caughtUp()
  }

  private final class Shard(index: Int) {
    val name: String = s"$id.$index"
    private[this] val connection = bridge.server.expect(name)
    @GuardedBy("this") private[this] var opened: Option[CompletableFuture[JsonNode]] = None
    private[this] val told = new AtomicBoolean
    private[this] var gathered = Vector.empty[ArrowRows] // the reading thread's own

    def start(out: RowSink): Thread = {
      val thread = BridgeServer.daemon(s"headwater-feed-$name").newThread(() => live(out))
      thread.start()
      thread
    }

    /** None where Python was never asked to open it. */
    def stop(): Option[CompletableFuture[JsonNode]] = {
      disconnect()
      Option.when(synchronized(opened).nonEmpty)(
        bridge.ask("stop", Json.mapper.createObjectNode().put("feed", name))
      )
    }

    def disconnect(): Unit = {
      bridge.server.expectNoMore(name)
      synchronized(opened).foreach(_.cancel(false)) // Python may never answer, and its thread waits for that
      if (!connection.cancel(false) && !connection.isCompletedExceptionally) connection.join().close()
    }

    private def live(out: RowSink): Unit =
      try if (open()) read(connected(), out)
      catch {
        case e: IOException =>
          if (!isClosing) failed(new FeedFailedException(s"the connection to Python was lost: $e", e))
        case e: Throwable => failed(e)
      } finally disconnect()

    /** Under the lock, so that the order to stop cannot overtake the one to open. */
    private def open(): Boolean = {
      val request = opening.deepCopy().put("feed", name).put("shard", index).put("shards", shardCount)
      since(index).foreach(request.put("since", _))
      val answer = synchronized {
        opened = Option.when(!isOver)(bridge.ask("open", request))
        opened
      }
      answer.foreach(Uninterruptibly.get(_, Uninterruptibly.deadlineIn(OpenMillis)).getOrElse(late()))
      answer.nonEmpty
    }

    private def connected(): SocketChannel =
      Uninterruptibly.get(connection, Uninterruptibly.deadlineIn(OpenMillis)).getOrElse(late())

    private def late(): Nothing =
      throw new BridgeException(s"Python did not start the feed within ${OpenMillis / 1000} s")

    private def read(channel: SocketChannel, out: RowSink): Unit = {
      val stream = new ArrowStream(channel, MaxMessageBytes)
      val schema = stream.schema()
      if (schema != arrowSchema)
        throw new BridgeException(s"Python sends rows of another schema, $schema, than it said, $arrowSchema")
      var next = stream.next()
      while (next.exists(take(_, out))) next = stream.next()
      tellCaughtUp(out) // who has ended is not behind
    }

    private def take(batch: ArrowStream.Batch, out: RowSink): Boolean = {
      batch.metadata.get(FailureKey).foreach(what => throw new FeedFailedException(what))
      val cursor = batch.metadata.get(CursorKey).map(Cursor(index, _))
      if (batch.rows > 0) gathered :+= ArrowRows(batch.rows, batch.bytes)
      val isWhole = cursor.nonEmpty || !inParcels
      val open = !isWhole || cursor.isEmpty && gathered.isEmpty || out.give(RowGroup(gathered, cursor))
      if (isWhole) gathered = Vector.empty
      if (batch.metadata.contains(CaughtUpKey)) tellCaughtUp(out)
      open
    }

    private def tellCaughtUp(out: RowSink): Unit = if (!told.getAndSet(true)) caughtUp(out)
  }
}

private[headwater] object PythonFeed {

  /** In the metadata of a batch, which may be one without rows. */
  private val CursorKey = "headwater.cursor"
  private val CaughtUpKey = "headwater.caught_up"
  private val FailureKey = "headwater.failure"

  /** A row may weigh 64 MiB, and what Arrow adds to it; more would not fit into a task's message. */
  private val MaxMessageBytes = 65 << 20

  private val OpenMillis = 30000L

  /** Python gives a feed three seconds. */
  private val StopMillis = 3500L

  private val Forever = Long.MaxValue / 2000000
}
