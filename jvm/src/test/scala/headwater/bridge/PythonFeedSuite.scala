package headwater.bridge

import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{ConcurrentLinkedQueue, CountDownLatch, TimeUnit}
import java.util.concurrent.atomic.{AtomicInteger, AtomicLong}

import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.{Random, Try, Using}

import headwater.buffer.Buffer
import headwater.core.{Arrivals, ArrowRows, Cursor, Feed, FeedReport, FeedThread, Json, RowGroup, RowSink}
import headwater.testing.{
  ArrowBytes,
  CapturedLog,
  InMemory,
  NoThreadLeft,
  Script,
  ScriptedPython,
  TestConnection
}
import headwater.{BridgeException, FeedFailedException, InvalidOptionException}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}
import org.scalatest.funsuite.AnyFunSuite

/** Feeds in a scripted Python, over a real bridge. */
class PythonFeedSuite extends AnyFunSuite with NoThreadLeft {
  import PythonFeedSuite._

  private val ids = new AtomicLong

  private final class Fixture(
      val bridge: Bridge,
      val python: ScriptedPython,
      shards: Int,
      exitTime: FiniteDuration
  ) {
    val id = s"feed${ids.incrementAndGet()}"
    val opening = Json.mapper.createObjectNode().put("source", "letters").put("onError", "fail")
    val feed =
      new PythonFeed(
        bridge,
        id,
        opening,
        shards,
        Script.arrowSchema,
        holdUntilCursor = false,
        _ => None,
        exitTime
      )

    def shard(index: Int = 0): TestConnection = python.started(s"$id.$index")
    def open(index: Int = 0): String = s"open $id.$index"
    def stop(index: Int = 0): String = s"stop $id.$index"
    def threads: Set[Thread] = ours.filter(_.getName.startsWith(s"headwater-feed-$id."))
    def status: String = bridge.status

    /** Runs the feed into a list until the end of `body`, and keeps the outcome of the run. */
    def running(body: Run => Unit): Unit = {
      val run = new Run(feed)
      try body(run)
      finally {
        feed.close(4.seconds.fromNow)
        run.awaitEnd()
      }
    }

    /** Runs the feed into a buffer, as a source does. */
    def inBuffer(maxRows: Long = 1000)(body: (FeedThread, Buffer) => Unit): Unit = {
      val buffer = new Buffer(maxRows, Long.MaxValue, first = 0)
      val thread = new FeedThread(feed, InMemory(buffer), s"headwater-feed-$id")
      try body(thread, buffer)
      finally assert(thread.stop(20000.millis.fromNow))
    }
  }

  private def withFeed(shards: Int = 1, exitTime: FiniteDuration = Duration.Zero)(
      body: Fixture => Unit
  ): Unit = {
    val bridge = new Bridge(unix = true)
    try
      Using.resource(new ScriptedPython(bridge.server)) { python =>
        body(new Fixture(bridge, python, shards, exitTime))
      }
    finally bridge.server.close()
  }

  private def millis(body: => Unit): Long = {
    val from = System.nanoTime()
    body
    TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - from)
  }

  test("Python receives the request to open, and its rows arrive in order") {
    withFeed() { f =>
      f.running { run =>
        val shard = f.shard()
        val request = f.python.awaitRequest(f.open())
        assert(request.path("source").asText == "letters" && request.path("onError").asText == "fail")
        assert(request.path("shard").asInt == 0 && request.path("shards").asInt == 1)
        (0 until 100).foreach(i => shard.send(ArrowBytes.batch(Seq(2L * i, 2L * i + 1))))
        Script.await(s"got ${run.values}")(run.values.length == 200)
        assert(run.values == (0L until 200L) && run.rowGroups.forall(_.cursor.isEmpty))
        assert(run.isAlive && run.caughtUps == 0)
      }
      assert(f.opening.size == 2, "the order is not changed by being sent")
    }
  }

  test("cursors arrive with their rows and their shard, whatever they contain") {
    withFeed(shards = 3) { f =>
      f.running { run =>
        val cursor = """{"id":"ü€","n":[1,null]}"""
        f.shard(2).send(ArrowBytes.batch(Seq(5, 6), "headwater.cursor" -> cursor))
        Script.await("no rows came")(run.rows.nonEmpty)
        f.shard(0).send(ArrowBytes.batch(Seq(7), "headwater.cursor" -> "1", "somebody.else" -> "x"))
        Script.await("no rows came")(run.rows.length == 2)
        f.shard(1).send(ArrowBytes.batch(Seq(8)))
        Script.await("no rows came")(run.rows.length == 3)
        assert(run.rowGroups.map(_.cursor) == Seq(Some(Cursor(2, cursor)), Some(Cursor(0, "1")), None))
        assert(run.values == Seq(5, 6, 7, 8))
      }
    }
  }

  test("the end of the stream ends the run, and a feed that has ended has caught up") {
    withFeed() { f =>
      f.running { run =>
        f.shard().send(ArrowBytes.batch(Seq(1)) ++ ArrowBytes.end)
        run.awaitEnd()
        assert(run.failure.isEmpty && run.values == Seq(1) && run.caughtUps == 1)
        f.python.feed(s"${f.id}.0").awaitDisconnect()
      }
      assert(f.python.requestLines == Seq(f.open(), f.stop()), "Python may forget it")
    }
  }

  test("an empty batch has no rows") {
    withFeed() { f =>
      f.running { run =>
        f.shard().send(ArrowBytes.note() ++ ArrowBytes.note("headwater.cursor" -> "1") ++ ArrowBytes.end)
        run.awaitEnd()
        assert(run.failure.isEmpty && run.rows.isEmpty)
      }
    }
  }

  test("a failure in Python fails the run, after the rows before it") {
    withFeed() { f =>
      f.running { run =>
        val traceback = "ValueError: nö\n  File \"letters.py\", line 3"
        f.shard()
          .send(
            ArrowBytes.batch(Seq(1, 2)) ++ ArrowBytes.batch(Seq(3)) ++
              ArrowBytes.note("headwater.failure" -> traceback)
          )
        run.awaitEnd()
        val error = run.failure.get
        assert(error.isInstanceOf[FeedFailedException] && error.getMessage == traceback)
        assert(run.values == Seq(1, 2, 3) && run.caughtUps == 0)
      }
    }
  }

  test("a failure in Python has no stack of the JVM, which would hide the traceback") {
    withFeed() { f =>
      f.running { run =>
        f.shard().send(ArrowBytes.note("headwater.failure" -> "ValueError: no"))
        run.awaitEnd()
        assert(run.failure.get.getStackTrace.isEmpty)
      }
    }
  }

  test("the status of each shard is kept, and requested again with the version that was received") {
    withFeed(shards = 2) { f =>
      val versions = new ConcurrentLinkedQueue[String]
      f.python.onStatus = request => {
        val (feed, version) = (request.path("feed").asText, request.path("version").asLong)
        versions.add(s"${feed.last} $version")
        if (version == 0 && feed.endsWith(".0"))
          f.python.respond(
            request,
            """{"version":7,"state":"restarting","restarts":2,"badRows":3,"lastError":"OSError: no","lastErrorAt":5}"""
          )
        else if (version == 0) f.python.respond(request, """{"version":1,"state":"running","badRows":4}""")
        else if (version == 1)
          f.python.respond(
            request,
            """{"version":2,"state":"running","badRows":5,"lastError":"OSError: a","lastErrorAt":9}"""
          )
      }
      f.running { _ =>
        Script.await(s"asked were $versions")(versions.contains("0 7") && versions.contains("1 2"))
        val expected =
          FeedReport("restarting", restarts = 2, badRows = 8, Some(FeedReport.LastError("OSError: a", 9)))
        assert(f.feed.report.contains(expected))
      }
    }
  }

  test("a feed that Python has stopped is not asked again, and one that has said nothing is starting") {
    withFeed() { f =>
      val count = new AtomicInteger
      f.python.onStatus = request => {
        count.incrementAndGet()
        f.python.respond(request, """{"version":0,"stopped":true}""")
      }
      f.running { _ =>
        f.shard()
        Script.await("no status was requested")(count.get == 1)
        assert(f.feed.report.contains(FeedReport.Starting))
      }
      assert(count.get == 1)
    }
  }

  test("a connection that is lost anywhere but at the end fails the run") {
    val whole = ArrowBytes.schema ++ ArrowBytes.batch(Seq(1))
    Seq(0, 5, ArrowBytes.schema.length, ArrowBytes.schema.length + 9, whole.length - 1, whole.length)
      .foreach { cut =>
        withFeed() { f =>
          f.running { run =>
            val shard = f.python.feed(s"${f.id}.0")
            shard.send(whole.take(cut))
            shard.close()
            run.awaitEnd()
            val error = run.failure.get
            assert(error.isInstanceOf[FeedFailedException], s"cut at $cut")
            assert(error.getMessage.startsWith("the connection to Python was lost: java.io.EOFException"))
            assert(run.values == (if (cut == whole.length) Seq(1) else Nil))
          }
        }
      }
  }

  test("bytes that are not an Arrow stream fail the run") {
    withFeed() { f =>
      f.running { run =>
        f.shard().send("Traceback (most recent call last)".getBytes(UTF_8))
        run.awaitEnd()
        assert(run.failure.get.getMessage.contains("not an Arrow stream"))
      }
    }
  }

  test("rows with another schema than announced are refused before any is appended") {
    withFeed() { f =>
      f.running { run =>
        val other = new Schema(
          java.util.List.of(new Field("value", FieldType.nullable(new ArrowType.Int(32, true)), null))
        )
        f.python.feed(s"${f.id}.0").send(ArrowBytes.schema(other) ++ ArrowBytes.batch(Seq(1)))
        run.awaitEnd()
        val error = run.failure.get
        assert(error.isInstanceOf[BridgeException])
        assert(error.getMessage.contains("Int(32, true)") && error.getMessage.contains("Int(64, true)"))
        assert(run.rows.isEmpty)
      }
    }
  }

  test("a feed that Python cannot open fails with Python's message") {
    Seq[(String, Class[_])](
      """{"message":"TypeError: no"}""" -> classOf[BridgeException],
      """{"kind":"option","message":"TypeError: no"}""" -> classOf[InvalidOptionException]
    ).foreach { case (said, kind) =>
      withFeed() { f =>
        f.python.onOpen = f.python.refuse(_, said)
        f.running { run =>
          run.awaitEnd()
          assert(run.failure.get.getClass == kind && run.failure.get.getMessage == "TypeError: no")
        }
      }
    }
  }

  test("a cursor that no start could read is refused before its rows are durable, with the limit") {
    Seq(
      1 -> "9" * 1001 -> "a number of more than 1000 digits",
      1 -> s"""{"at":[-${"9" * 1500}]}""" -> "a number of more than 1000 digits",
      1 -> ("[" * 101 + "]" * 101) -> "nested more than 100 levels deep",
      4 -> s"\"${"x" * (2 << 20)}\"" -> "it has 2097154 bytes, and the limit is 2097152 (8 MiB for all shards)",
      1 -> "{" -> "it is not JSON",
      1 -> "1,2" -> "it is not JSON",
      1 -> "" -> "it is empty"
    ).foreach { case ((shards, cursor), reason) =>
      withClue(cursor.take(50)) {
        withFeed(shards) { f =>
          f.running { run =>
            val shard = f.shard()
            shard.send(ArrowBytes.batch(Seq(1), "headwater.cursor" -> "1"))
            Script.await("no row came")(run.values == Seq(1))
            shard.send(ArrowBytes.batch(Seq(2), "headwater.cursor" -> cursor))
            run.awaitEnd()
            assert(run.values == Seq(1))
            assert(run.failure.get.getMessage.contains(" of shard 0 is refused: "), run.failure)
            assert(run.failure.get.getMessage.contains(reason), run.failure)
            assert(run.failure.get.getMessage.length < 1000)
          }
        }
      }
    }
  }

  test("the largest cursors of 256 shards are accepted, and fit into the header of a segment") {
    assert(Cursor.fault(s"\"${"x" * ((8 << 20) / 256 - 2)}\"", 256).isEmpty)
    assert(Cursor.fault("9" * 1000, 256).isEmpty && Cursor.fault("[" * 100 + "]" * 100, 256).isEmpty)
    assert(Cursor.fault("{\"" + "k" * 60000 + "\":1}", 1).isEmpty, "long names")
  }

  test("without a Python process the run fails at once, with a remedy") {
    val bridge = new Bridge(unix = true)
    try {
      val feed = new PythonFeed(
        bridge,
        "alone",
        Json.mapper.createObjectNode(),
        2,
        Script.arrowSchema,
        holdUntilCursor = false,
        _ => None
      )
      val run = new Run(feed)
      run.awaitEnd()
      assert(run.failure.get.isInstanceOf[BridgeException])
      assert(run.failure.get.getMessage.contains("call hw.attach(spark)"))
      assert(millis(feed.close(4.seconds.fromNow)) < 2000)
    } finally bridge.server.close()
  }

  test("when Python dies while it opens or runs a feed, the run fails, and close does not wait") {
    withFeed() { f =>
      f.python.onOpen = _ => ()
      val run = new Run(f.feed)
      f.python.awaitRequest(f.open())
      f.python.close()
      run.awaitEnd()
      assert(run.failure.get.getMessage.contains("is gone"))
      assert(millis(f.feed.close(4.seconds.fromNow)) < 2000)
    }
    withFeed() { f =>
      val run = new Run(f.feed)
      f.shard().send(ArrowBytes.batch(Seq(1)))
      Script.await("no row came")(run.values == Seq(1))
      f.python.close()
      run.awaitEnd()
      assert(run.failure.get.getMessage.contains("the connection to Python was lost"))
      assert(millis(f.feed.close(4.seconds.fromNow)) < 2000)
    }
  }

  test("when Python ends, its feeds wait for the end of the JVM before they fail") {
    withFeed(exitTime = 1.hour) { f =>
      val run = new Run(f.feed)
      f.shard().send(ArrowBytes.batch(Seq(1)))
      Script.await("no row came")(run.values == Seq(1))
      val thread = f.threads.head
      f.python.close()
      Script.await("it does not wait")(thread.getState == Thread.State.TIMED_WAITING)
      f.feed.close(4.seconds.fromNow)
      run.awaitEnd()
      assert(run.failure.isEmpty, "a feed that is closed meanwhile has not failed")
    }
  }

  test("a feed that is closed before it runs sends no request, leaves nothing, and its run returns") {
    withFeed(shards = 2) { f =>
      f.feed.close(4.seconds.fromNow)
      val run = new Run(f.feed)
      run.awaitEnd()
      assert(run.failure.isEmpty && f.python.requestLines.isEmpty && f.status == "{}")
      intercept[java.io.IOException](f.python.connect(s"${f.id}.0"))
    }
  }

  test(
    "a feed that is closed while Python opens it ends at once, and is stopped once, after the request to open"
  ) {
    withFeed(shards = 2) { f =>
      f.python.onOpen = _ => () // for instance a source whose __init__ hangs
      f.inBuffer() { (thread, _) =>
        (0 to 1).foreach(i => f.python.awaitRequest(f.open(i)))
        assert(
          millis(
            assert(thread.stop(4000.millis.fromNow), f.threads.map(_.getStackTrace.mkString("\n")))
          ) < 2000
        )
        assert(f.threads.isEmpty && thread.failure.isEmpty)
        assert(f.python.requestLines.take(2).toSet == Set(f.open(0), f.open(1)))
        assert(f.python.requestLines.drop(2).sorted == Seq(f.stop(0), f.stop(1)))
        intercept[java.io.IOException](f.python.connect(s"${f.id}.0"))
      }
    }
  }

  test("a feed that is closed before Python has connected ends at once") {
    withFeed() { f =>
      f.python.onOpen = f.python.respond(_, "{}")
      f.inBuffer() { (thread, _) =>
        f.python.awaitRequest(f.open())
        assert(millis(assert(thread.stop(4000.millis.fromNow))) < 2000)
        assert(f.threads.isEmpty && thread.failure.isEmpty)
      }
      assert(f.python.requestLines == Seq(f.open(), f.stop()))
    }
  }

  test(
    "a feed that is closed while it waits for rows ends at once, and is stopped once for each shard"
  ) {
    withFeed(shards = 3) { f =>
      f.inBuffer() { (thread, buffer) =>
        val shards = (0 to 2).map(f.shard(_))
        shards.head.send(ArrowBytes.batch(Seq(1)))
        Script.await("no row came")(buffer.latest == 0)
        assert(f.status.contains(s""""${f.id}":{"waitingRows":1,"""))
        assert(millis(assert(thread.stop(4000.millis.fromNow))) < 2000)
        shards.foreach(_.awaitDisconnect())
        assert(f.threads.isEmpty && thread.failure.isEmpty && f.status == "{}")
        assert(f.python.requestLines.drop(3).sorted == Seq(f.stop(0), f.stop(1), f.stop(2)))
      }
    }
  }

  test("a feed that is closed in the middle of a message ends at once, without a failure") {
    withFeed() { f =>
      f.inBuffer() { (thread, _) =>
        f.shard().send(ArrowBytes.batch(1L to 1000L).take(500))
        assert(millis(assert(thread.stop(4000.millis.fromNow))) < 2000)
        assert(thread.failure.isEmpty)
      }
    }
  }

  test("a feed that is closed while a full buffer blocks it ends at once") {
    withFeed(shards = 2) { f =>
      f.inBuffer(maxRows = 1) { (thread, buffer) =>
        (0 to 1).foreach(i => f.shard(i).send(ArrowBytes.batch(Seq(1, 2, 3))))
        Script.await("it was not blocked")(buffer.isBlocked)
        assert(millis(assert(thread.stop(4000.millis.fromNow))) < 2000)
        assert(f.threads.isEmpty && thread.failure.isEmpty && buffer.latest == 0)
        assert(f.python.requestLines.drop(2).sorted == Seq(f.stop(0), f.stop(1)))
      }
    }
  }

  test("close waits until Python has stopped the feed") {
    withFeed() { f =>
      val stopping = new CountDownLatch(1)
      f.python.onStop = _ => stopping.countDown()
      f.running { _ =>
        f.shard()
        @volatile var closed = false
        val closer = new Thread(() => { f.feed.close(4.seconds.fromNow); closed = true })
        closer.start()
        assert(stopping.await(20, TimeUnit.SECONDS))
        assert(!closed)
        f.python.onStop = f.python.respond(_, """{"state":"stopped"}""")
        f.python.respond(f.python.awaitRequest(f.stop()), """{"state":"stopped"}""")
        closer.join(20000)
        assert(closed)
      }
    }
  }

  test("close waits at most 4 s in total for a missing response, and logs it") {
    withFeed(shards = 3) { f =>
      f.python.onStop = _ => ()
      CapturedLog(classOf[PythonFeed]) { log =>
        f.inBuffer() { (thread, _) =>
          (0 to 2).foreach(f.shard(_))
          val took = millis(assert(thread.stop(4000.millis.fromNow)))
          assert(took >= 3000 && took <= 4000, "the thread has the rest")
          assert(f.threads.isEmpty)
        }
        (0 to 2).foreach { i =>
          assert(log.has("WARN", s"feed ${f.id}.$i: Python was told to stop it: does not respond"))
        }
      }
    }
  }

  test("close works on an interrupted thread, and keeps the interrupt and the connection") {
    withFeed() { f =>
      f.inBuffer() { (thread, _) =>
        f.shard()
        Thread.currentThread().interrupt()
        val stopped = thread.stop(4000.millis.fromNow)
        assert(Thread.interrupted() && stopped)
        assert(f.bridge.isConnected && f.python.requestLines == Seq(f.open(), f.stop()))
      }
    }
  }

  test("a feed that Python had to abandon is logged") {
    withFeed() { f =>
      f.python.onStop = f.python.respond(_, """{"state":"abandoned"}""")
      CapturedLog(classOf[PythonFeed]) { log =>
        f.inBuffer() { (thread, _) =>
          f.shard()
          assert(thread.stop(4000.millis.fromNow))
        }
        assert(log.has("WARN", s"feed ${f.id}.0: Python was told to stop it: abandoned"))
      }
    }
  }

  test("close completes even if Python cannot stop the feed") {
    withFeed(shards = 2) { f =>
      f.python.onStop = f.python.refuse(_, """{"kind":"option","message":"KeyError"}""")
      f.inBuffer() { (thread, _) =>
        (0 to 1).foreach(f.shard(_))
        CapturedLog(classOf[PythonFeed]) { log =>
          assert(thread.stop(4000.millis.fromNow))
          (0 to 1).foreach(i =>
            assert(log.has("WARN", s"feed ${f.id}.$i: Python was told to stop it: KeyError"))
          )
        }
        assert(f.status == "{}")
      }
    }
  }

  test("a feed has caught up when all its shards have") {
    withFeed(shards = 3) { f =>
      f.running { run =>
        val (a, b, c) = (f.shard(0), f.shard(1), f.shard(2))
        val mark = ArrowBytes.note("headwater.caught_up" -> "")
        a.send(
          ArrowBytes.batch(Seq(1), "headwater.caught_up" -> "") ++ mark ++ mark ++ ArrowBytes.batch(Seq(2))
        )
        Script.await("no rows")(run.values == Seq(1, 2))
        b.send(mark ++ ArrowBytes.batch(Seq(3)))
        Script.await("no rows")(run.values.contains(3L))
        assert(run.caughtUps == 0, "one is still behind")
        c.send(ArrowBytes.batch(Seq(4)) ++ ArrowBytes.end)
        Script.await("who has ended is not behind")(run.caughtUps == 1)
        assert(run.values.contains(4L), "the rows before it are in")
        a.send(mark ++ ArrowBytes.batch(Seq(5)))
        Script.await("it goes on")(run.values.contains(5L))
        assert(run.caughtUps == 1 && run.isAlive)
      }
    }
  }

  test("rows that come with the caught-up mark are appended before it counts") {
    withFeed() { f =>
      f.inBuffer() { (thread, buffer) =>
        val seen = new AtomicLong(-2)
        f.shard().send(ArrowBytes.batch(1L to 5L, "headwater.caught_up" -> ""))
        Script.await("it was not said") {
          if (thread.isCaughtUp) seen.compareAndSet(-2, buffer.latest); seen.get > -2
        }
        assert(seen.get == 4 && !thread.isFinished)
      }
    }
  }

  test("a shard that fails ends the others, whatever they are doing, and fails the run") {
    withFeed(shards = 4) { f =>
      f.python.onOpen = { request =>
        if (request.path("shard").asInt < 2) f.python.connect(request.path("feed").asText)
        if (request.path("shard").asInt < 3) f.python.respond(request, "{}")
      }
      f.running { run =>
        val reading = f.shard(1)
        (0 to 3).foreach(i => f.python.awaitRequest(f.open(i))) // 2 is not connected, 3 is not even opened
        f.shard(0).send(ArrowBytes.batch(Seq(1)) ++ ArrowBytes.note("headwater.failure" -> "ValueError: no"))
        val took = millis(run.awaitEnd())
        assert(took < 5000, s"$took ms")
        assert(run.failure.get.getMessage == "ValueError: no" && run.values == Seq(1))
        reading.awaitDisconnect()
        assert(f.threads.isEmpty)
      }
      assert(f.python.requestLines.drop(4).sorted == (0 to 3).map(f.stop(_)))
    }
  }

  test("a shard that ends does not affect the others") {
    withFeed(shards = 2) { f =>
      f.running { run =>
        f.shard(0).send(ArrowBytes.end)
        val other = f.shard(1)
        f.python.feed(s"${f.id}.0").awaitDisconnect()
        other.send(ArrowBytes.batch(Seq(9)))
        Script.await("no row came")(run.values == Seq(9))
        assert(run.isAlive)
        other.send(ArrowBytes.end)
        run.awaitEnd()
        assert(run.failure.isEmpty)
      }
    }
  }

  test("a closed row sink ends the feed, without a failure") {
    withFeed() { f =>
      val run = new Run(f.feed, most = 2)
      f.shard().send(ArrowBytes.batch(Seq(1)) ++ ArrowBytes.batch(Seq(2)) ++ ArrowBytes.batch(Seq(3)))
      run.awaitEnd()
      assert(run.failure.isEmpty && run.values == Seq(1, 2))
      f.feed.close(4.seconds.fromNow)
    }
  }

  test("an interrupt of the thread it runs in does not end a feed") {
    withFeed() { f =>
      f.running { run =>
        val shard = f.shard()
        run.thread.interrupt()
        shard.send(ArrowBytes.batch(Seq(1)))
        Script.await("no row came")(run.values == Seq(1))
        run.thread.interrupt()
        shard.send(ArrowBytes.batch(Seq(2)))
        Script.await("no row came")(run.values == Seq(1, 2))
        assert(run.isAlive && f.bridge.isConnected)
      }
    }
  }

  test("a feed that is closed at any moment leaves no thread or connection, and stops opened shards once") {
    val random = new Random(7)
    (1 to 60).foreach { round =>
      withFeed(shards = 2) { f =>
        f.python.onOpen = { request =>
          val shard = Try(f.python.connect(request.path("feed").asText)) // it may be closed by now
          f.python.respond(request, "{}")
          shard.foreach(s => Try(s.send(ArrowBytes.schema ++ ArrowBytes.batch(Seq(1, 2, 3)))))
        }
        val buffer = new Buffer(maxRows = 2, Long.MaxValue, first = 0)
        val thread = new FeedThread(f.feed, InMemory(buffer), s"headwater-feed-${f.id}")
        val until = System.nanoTime() + random.nextInt(3000000)
        while (System.nanoTime() < until) Thread.onSpinWait() // this is what the test is about
        assert(millis(assert(thread.stop(4000.millis.fromNow))) < 3000, s"round $round")
        assert(f.threads.isEmpty && f.status == "{}" && thread.failure.isEmpty)
        (0 to 1).foreach { i =>
          val about = f.python.requestLines.filter(_.endsWith(s".$i"))
          assert(about.isEmpty || about == Seq(f.open(i), f.stop(i)), s"round $round")
        }
      }
    }
  }
}

object PythonFeedSuite {

  /** Runs a feed into a list, in a thread of its own. */
  private final class Run(feed: Feed, most: Int = Int.MaxValue) extends RowSink {
    private val taken = new ConcurrentLinkedQueue[RowGroup]
    private val marks = new AtomicInteger
    @volatile var failure: Option[Throwable] = None

    val thread = new Thread(
      () =>
        try feed.run(this)
        catch { case e: Throwable => failure = Some(e) },
      "run-of-a-feed"
    )
    thread.setDaemon(true)
    thread.start()

    def rowGroups: Seq[RowGroup] = taken.asScala.toSeq
    def rows: Seq[ArrowRows] = rowGroups.flatMap(_.rows)
    def values: Seq[Long] = rows.flatMap(ArrowStreamSuite.longs)
    def caughtUps: Int = marks.get
    def isAlive: Boolean = thread.isAlive
    def awaitEnd(): Unit = {
      thread.join(60000)
      if (isAlive) throw new AssertionError(s"the run goes on: ${thread.getStackTrace.mkString("\n")}")
    }

    override def append(rowGroup: RowGroup): Boolean = {
      taken.add(rowGroup)
      taken.size < most
    }
    override def caughtUp(): Unit = marks.incrementAndGet()
    override def status: Buffer.Status = Buffer.Status(0, 0, -1, 0, 0, 0, Arrivals.NoRows)
  }
}
