package headwater.adapters

import java.lang.ref.WeakReference
import java.time.Instant
import java.time.temporal.ChronoUnit
import java.util.Optional
import java.util.concurrent.TimeUnit

import scala.concurrent.{Await, ExecutionContext, Future}
import scala.concurrent.duration._
import scala.jdk.CollectionConverters._

import headwater.buffer.{Buffer, BufferedStream}
import headwater.core.{ArrowRows, Feed, FeedThread, RowSink, SeqOffset}
import headwater.testing._
import headwater.{DataLossException, FeedFailedException, InvalidOffsetException}
import org.apache.spark.SparkException
import org.apache.spark.sql.connector.read.streaming.ReadLimit
import org.apache.spark.sql.execution.streaming.Offset
import org.apache.spark.sql.test.SharedSparkSession

class V1SourceContractSuite extends StreamContractSuite {
  override protected def newStream(factory: StreamFactory): TestedStream = new TestedV1(factory.v1)
}

class V2StreamContractSuite extends StreamContractSuite {
  override protected def newStream(factory: StreamFactory): TestedStream = new TestedV2(factory.v2, spark)

  test("the initial offset is the one of the beginning") {
    withSource() { (source, script) =>
      assert(source.initialOffset.map(_.json).contains(SeqOffset.beginning(script.name)))
    }
  }
}

/** The contract of a stream, call by call, as Spark's query thread makes the calls, for each of Spark's interfaces. */
abstract class StreamContractSuite extends SharedSparkSession {

  protected def newStream(factory: StreamFactory): TestedStream

  // Runs the frame of getBatch.
  override protected def sparkConf =
    super.sparkConf.set("spark.sql.streaming.unsupportedOperationCheck", "false")

  protected def withSource(options: (String, String)*)(body: (TestedStream, Script) => Unit): Unit = {
    val name = s"contract_${System.nanoTime()}"
    val source = newStream(ScriptProvider.factory(spark, name, options.toMap))
    try body(source, Script(name))
    finally {
      source.stop()
      assert(feedThreads(name).isEmpty)
    }
  }

  private def feedThreads(name: String) =
    Thread.getAllStackTraces.keySet.asScala.filter(t =>
      t.isAlive && t.getName.startsWith(s"headwater-feed-$name")
    )

  protected def latest(source: TestedStream, start: Offset = null): Offset =
    source.latestOffset(start, source.getDefaultReadLimit).asInstanceOf[Offset]

  /** An offset as Spark reads it from its offset log: not an instance of our class. */
  protected def fromLog(offset: Offset): Offset = {
    val text = offset.json
    new Offset { override val json: String = text }
  }

  protected def rows(batch: TestedBatch): Seq[Long] = batch.rows()

  /** On the driver, or in a task. */
  private def lossOf(run: => Any): DataLossException =
    Iterator
      .iterate[Throwable](intercept[Exception](run))(_.getCause)
      .collectFirst { case loss: DataLossException =>
        loss
      }
      .get

  private def seq(offset: Offset): Long = SeqOffset.parse(offset.json).seq

  test("the same window returns the same rows in the same order") {
    withSource() { (source, script) =>
      assert(latest(source) == null, "no data, no offset")
      script.add(1, 2, 3)
      val first = latest(source)
      script.add(4, 5)
      val second = latest(source, first)
      assert(rows(source.getBatch(None, first)) == Seq(1, 2, 3))
      assert(rows(source.getBatch(Some(first), second)) == Seq(4, 5))
      assert(rows(source.getBatch(Some(first), second)) == Seq(4, 5))
      assert(rows(source.getBatch(None, second)) == Seq(1, 2, 3, 4, 5), "a window that no batch ever had")
    }
  }

  test("offsets from Spark's offset log work like our own") {
    withSource() { (source, script) =>
      latest(source)
      script.add(1, 2, 3)
      val end = fromLog(latest(source))
      assert(latest(source, end) == end)
      assert(rows(source.getBatch(None, end)) == Seq(1, 2, 3))
      source.commit(end)
      script.add(4)
      assert(rows(source.getBatch(Some(end), fromLog(latest(source, end)))) == Seq(4))
    }
  }

  test("the offset of the beginning, which V2 needs, gives the rows from the first on") {
    withSource() { (source, script) =>
      val beginning = fromLog(new SparkOffset(SeqOffset.beginning(script.name)))
      assert(latest(source, beginning) == null, "no data, no offset: there must be no empty batch")
      assert(rows(source.getBatch(Some(beginning), beginning)).isEmpty)
      source.commit(beginning)
      script.add(1, 2)
      val end = latest(source, beginning)
      assert(rows(source.getBatch(Some(beginning), end)) == Seq(1, 2))
    }
  }

  test("an empty window has no rows") {
    withSource() { (source, script) =>
      latest(source)
      script.add(1)
      val end = latest(source)
      val empty = source.getBatch(Some(end), end)
      assert(rows(empty).isEmpty)
    }
  }

  test("a window that ends before its start is refused, and nothing is dropped") {
    withSource() { (source, script) =>
      latest(source)
      script.add(1, 2, 3)
      val end = latest(source)
      val back = SeqOffset.parse(end.json).copy(seq = 0)
      val error = intercept[InvalidOffsetException](source.getBatch(Some(end), new SparkOffset(back)))
      assert(error.getMessage.contains("asked for a batch that ends before it begins"))
      assert(rows(source.getBatch(None, end)) == Seq(1, 2, 3))
    }
  }

  test("a repeated or lower commit has no effect, and a lower one logs a warning") {
    withSource() { (source, script) =>
      latest(source)
      script.add(1, 2)
      val first = latest(source)
      script.add(3, 4)
      val second = latest(source, first)
      CapturedLog(classOf[BufferedStream]) { log =>
        source.commit(second)
        source.commit(second)
        assert(log.lines.isEmpty)
        source.commit(first)
        assert(log.has("WARN", "after a later one, ignored"), log.lines)
      }
      script.add(5)
      assert(rows(source.getBatch(Some(second), latest(source, second))) == Seq(5))
    }
  }

  test("a commit beyond the latest row is an error, and drops nothing") {
    withSource() { (source, script) =>
      latest(source)
      script.add(1, 2)
      val end = latest(source)
      val beyond = SeqOffset.parse(end.json).copy(seq = 2)
      val error = intercept[InvalidOffsetException](source.commit(new SparkOffset(beyond)))
      assert(error.getMessage.contains("its latest row is 1. Nothing was dropped"))
      assert(rows(source.getBatch(None, end)) == Seq(1, 2))
    }
  }

  test("a dropped window can be planned; running it reports the lost rows") {
    withSource() { (source, script) =>
      latest(source)
      script.add(1, 2, 3)
      val end = latest(source)
      source.commit(end)
      val frame = source.getBatch(None, end)
      val error = intercept[DataLossException](rows(frame))
      assert(
        error.getMessage.contains("lost the rows 0 to 2: they were dropped when a later batch was committed")
      )
      assert(error.getMessage.contains("Set the option failOnDataLoss to false"))
    }
  }

  test("with failOnDataLoss=false a dropped window returns the remaining rows, and counts the lost ones") {
    withSource("failOnDataLoss" -> "false") { (source, script) =>
      latest(source)
      script.add(1, 2)
      val first = latest(source)
      script.add(3)
      val second = latest(source, first)
      source.commit(first)
      assert(rows(source.getBatch(None, second)) == Seq(3))
      assert(source.metrics(Optional.empty()).get("rowsLost") == "2")
      assert(source.metrics(Optional.empty()).get("rowsInBatch") == "1")
    }
  }

  test(
    "a frame that is used after its commit or after the stop fails, and holds no rows"
  ) {
    withSource() { (source, script) =>
      latest(source)
      script.add(1, 2, 3)
      val end = latest(source)
      val (used, unused) = (source.getBatch(None, end), source.getBatch(None, end))
      assert(rows(used) == Seq(1, 2, 3))
      script.add(4)
      val next = latest(source, end)
      source.commit(end)
      val open = source.getBatch(Some(end), next)
      assert(lossOf(rows(unused)).getMessage.contains("its batch was committed"))
      val inTask = intercept[SparkException](rows(used)).getCause
      assert(inTask.isInstanceOf[DataLossException] && inTask.getMessage.contains("its batch was committed"))
      assert(rows(open) == Seq(4))
      source.stop()
      assert(intercept[SparkException](rows(open)).getCause.getMessage.contains("or its query stopped"))
    }
  }

  test(
    "tasks of a stopped batch find its rows until they have been cancelled, and the log says what becomes of them"
  ) {
    withSource() { (source, script) =>
      var drop: () => Unit = () => fail("nothing to drop")
      script.afterTasks = later => drop = later
      latest(source)
      script.add(1, 2, 3)
      val frame = source.getBatch(None, latest(source))
      CapturedLog(classOf[BufferedStream]) { log =>
        source.stop()
        assert(log.lines.count(_.startsWith("INFO")) == 1, log.lines)
        assert(log.has("INFO", "the rows 0 to 2 are in a batch that is not committed"), log.lines)
      }
      assert(lossOf(rows(frame)).getMessage.contains("or its query stopped"))
      spark.sparkContext.setLocalProperty("sql.streaming.queryId", "the query")
      try {
        assert(rows(frame) == Seq(1, 2, 3))
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", null)
        assert(intercept[SparkException](rows(frame)).getCause.getMessage.contains("or its query stopped"))
      } finally spark.sparkContext.setLocalProperty("sql.streaming.queryId", null)
      drop()
      assert(intercept[SparkException](rows(frame)).getCause.getMessage.contains("or its query stopped"))
    }
  }

  test("an interrupt in a call ends it as a stop, and is not left for Spark's next file") {
    withSource() { (source, script) =>
      latest(source)
      script.add(1)
      val end = latest(source)
      Seq[(String, () => Any)](
        "latestOffset" -> (() => latest(source)),
        "getBatch" -> (() => source.getBatch(None, end)),
        "commit" -> (() => source.commit(end))
      ).foreach { case (call, run) =>
        Thread.currentThread().interrupt()
        withClue(call) {
          intercept[InterruptedException](run())
          assert(!Thread.interrupted())
        }
      }
    }
  }

  test("after a restart seqs continue, the last window can be planned, and running it is data loss") {
    withSource() { (source, script) =>
      val run = "00000000000000aa"
      val before = new SparkOffset(SeqOffset(script.name, run, 9))
      val end = new SparkOffset(SeqOffset(script.name, run, 14))
      val frame = source.getBatch(Some(fromLog(before)), fromLog(end))
      assert(source.metrics(Optional.empty()).get("rowsLost") == "0", "nobody asked for the rows yet")
      assert(latest(source, fromLog(end)) == end, "no new rows: the offset stays, to the letter")
      script.add(15)
      val next = latest(source, fromLog(end))
      assert(seq(next) == 15 && SeqOffset.parse(next.json).run != run)
      assert(rows(source.getBatch(Some(fromLog(end)), next)) == Seq(15))
      source.commit(fromLog(end))
      val error = intercept[DataLossException](rows(frame))
      assert(
        error.getMessage.contains("lost the rows 10 to 14: they were in the memory of run 00000000000000aa")
      )
    }
  }

  test("a window that begins in an earlier run reports exactly the missing rows") {
    withSource() { (source, script) =>
      val old = new SparkOffset(SeqOffset(script.name, "00000000000000aa", 5))
      source.getBatch(None, fromLog(old))
      script.add(6, 7)
      val end = latest(source, fromLog(old))
      val error = intercept[DataLossException](rows(source.getBatch(None, end)))
      assert(error.getMessage.contains("lost the rows 0 to 5"))
    }
  }

  test("an offset of another source is refused by name") {
    withSource() { (source, script) =>
      val foreign = new SparkOffset(SeqOffset("somebody", "00000000000000aa", 5))
      Seq[() => Any](
        () => source.latestOffset(foreign, ReadLimit.allAvailable()),
        () => source.getBatch(None, foreign),
        () => source.commit(foreign)
      ).foreach { call =>
        val error = intercept[InvalidOffsetException](call())
        assert(
          error.getMessage.contains(s"belongs to source 'somebody' and is read by source '${script.name}'")
        )
      }
      assert(script.feedsMade == 0, "no feed was started for it")
    }
  }

  test("a limit of one row is respected, inside an Arrow batch too") {
    withSource("maxRowsPerTrigger" -> "1") { (source, script) =>
      latest(source)
      script.add(1, 2, 3)
      var start: Offset = null
      val batches = (1 to 3).map { _ =>
        val end = latest(source, start)
        val batch = rows(source.getBatch(Option(start), end))
        start = end
        batch
      }
      assert(batches == Seq(Seq(1), Seq(2), Seq(3)))
      assert(latest(source, start) == start)
    }
  }

  test("a limit of Long.MaxValue takes all") {
    withSource("maxRowsPerTrigger" -> Long.MaxValue.toString) { (source, script) =>
      latest(source)
      script.add(1, 2, 3)
      assert(seq(latest(source)) == 2)
    }
  }

  test("Trigger.Once reads everything, whatever the limits") {
    withSource("maxRowsPerTrigger" -> "1", "minRowsPerTrigger" -> "1") { (source, script) =>
      latest(source)
      script.add(1, 2, 3)
      assert(seq(source.latestOffset(null, ReadLimit.allAvailable()).asInstanceOf[Offset]) == 2)
    }
  }

  test("a byte limit admits as many rows as fit, and at least one") {
    val byteSize = Script.arrow(Seq(1L)).bytes.length
    withSource("maxBytesPerTrigger" -> (2 * byteSize + 1).toString) { (source, script) =>
      latest(source)
      (1L to 5L).foreach(script.add(_))
      assert(seq(latest(source)) == 1)
    }
    withSource("maxBytesPerTrigger" -> "1") { (source, script) =>
      latest(source)
      (1L to 5L).foreach(script.add(_))
      assert(seq(latest(source)) == 0)
    }
  }

  test("fewer than minRowsPerTrigger wait for more rows or for the delay") {
    withSource("minRowsPerTrigger" -> "3", "maxTriggerDelay" -> "10s") { (source, script) =>
      latest(source)
      script.add(1, 2)
      assert(latest(source) == null)
      script.add(3)
      val first = latest(source)
      assert(seq(first) == 2)
      source.getBatch(None, first)
      script.add(4)
      assert(latest(source, first) == first)
      script.nanoTime.addAndGet(TimeUnit.SECONDS.toNanos(10) - 1)
      assert(latest(source, first) == first)
      script.nanoTime.addAndGet(1)
      val second = latest(source, first)
      assert(seq(second) == 3)
      source.getBatch(Some(first), second)
      script.add(5)
      assert(latest(source, second) == second, "the delay counts from the last batch")
      script.end()
      Script.await("the feed's end was not seen")(seq(latest(source, second)) == 4)
    }
  }

  test("minRowsPerTrigger above the buffer's capacity does not stop the stream") {
    withSource("minRowsPerTrigger" -> "100", "bufferRows" -> "3", "maxTriggerDelay" -> "1h") {
      (source, script) =>
        latest(source)
        script.offer(1, 2, 3, 4)
        Script.await("the full buffer was not let through")(latest(source) != null)
        assert(seq(latest(source)) == 2)
    }
  }

  test("a batch may take the whole buffer, and the next one comes before its commit") {
    withSource("bufferRows" -> "3") { (source, script) =>
      latest(source)
      val step = script.offer(1L to 9L: _*)
      var start: Offset = null
      val batches = (1 to 3).map { _ =>
        Script.await(s"no batch after $start")(
          latest(source, start) != start && seq(latest(source, start)) % 3 == 2
        )
        val end = latest(source, start)
        val batch = rows(source.getBatch(Option(start), end))
        start = end
        batch
      }
      step.awaitDone()
      assert(batches == Seq(Seq(1, 2, 3), Seq(4, 5, 6), Seq(7, 8, 9)))
    }
  }

  test("AvailableNow ends at the first latestOffset") {
    withSource("availableNowWait" -> "1h", "maxRowsPerTrigger" -> "2") { (source, script) =>
      source.prepareForTriggerAvailableNow()
      val first = inBackground(latest(source))
      script.add(1, 2, 3)
      script.end()
      assert(seq(resultOf(first)) == 1)
      assert(seq(latest(source, resultOf(first))) == 2)
      val end = latest(source, resultOf(first))
      assert(latest(source, end) == end, "unchanged: this ends the query")
    }
  }

  test("AvailableNow does not wait for rows beyond a full buffer, and reads no later ones") {
    withSource("availableNowWait" -> "1h", "bufferRows" -> "2") { (source, script) =>
      source.prepareForTriggerAvailableNow()
      val first = inBackground(latest(source))
      val step = script.offer(1, 2, 3)
      val end = resultOf(first)
      assert(seq(end) == 1)
      assert(rows(source.getBatch(None, end)) == Seq(1, 2))
      step.awaitDone()
      assert(latest(source, end) == end)
    }
  }

  test("AvailableNow stops waiting for a live feed after availableNowWait") {
    withSource("availableNowWait" -> "3s", "minRowsPerTrigger" -> "50") { (source, script) =>
      source.prepareForTriggerAvailableNow()
      val first = inBackground(latest(source))
      script.add(7)
      Option(resultOf(first)).foreach(end =>
        assert(seq(end) == 0, "fewer than the least, but no more will come")
      )
    }
  }

  test(
    "AvailableNow stops waiting when the feed has caught up, and reads no later rows"
  ) {
    Seq(Seq.empty[Long], Seq(1L, 2L)).foreach { values =>
      withSource("availableNowWait" -> "1h") { (source, script) =>
        source.prepareForTriggerAvailableNow()
        val first = inBackground(latest(source))
        if (values.nonEmpty) script.add(values: _*)
        script.caughtUp()
        val end = resultOf(first)
        assert(Option(end).map(seq) == Option.when(values.nonEmpty)(values.length - 1L))
        script.add(3, 4) // the feed continues
        assert(latest(source, end) == end, "unchanged: this ends the query")
        if (end != null) assert(rows(source.getBatch(None, end)) == values)
      }
    }
  }

  test("AvailableNow does not wait for a feed that has already caught up") {
    withSource("availableNowWait" -> "1h") { (source, script) =>
      latest(source)
      script.add(1)
      script.caughtUp()
      script.add(2)
      source.prepareForTriggerAvailableNow()
      assert(seq(resultOf(inBackground(latest(source)))) == 1)
    }
  }

  test("minRowsPerTrigger still holds after a feed has caught up") {
    withSource("minRowsPerTrigger" -> "3", "maxTriggerDelay" -> "1h") { (source, script) =>
      latest(source)
      script.add(1, 2)
      script.caughtUp()
      assert(latest(source) == null)
      script.add(3)
      assert(seq(latest(source)) == 2)
    }
  }

  test("a failure after the feed has caught up is raised, after the rows before it") {
    withSource("availableNowWait" -> "1h") { (source, script) =>
      latest(source)
      script.add(1)
      script.caughtUp()
      script.fail(new RuntimeException("afterwards"))
      val end = latest(source)
      assert(seq(end) == 0)
      Script.await("the failure was not seen")(scala.util.Try(latest(source, end)).isFailure)
      assert(intercept[FeedFailedException](latest(source, end)).getMessage.contains("afterwards"))
    }
  }

  test("stop makes a waiting latestOffset return") {
    withSource("availableNowWait" -> "1h") { (source, script) =>
      source.prepareForTriggerAvailableNow()
      val waiting = inBackground(latest(source))
      script.add(1)
      source.stop()
      assert(seq(resultOf(waiting)) == 0)
    }
  }

  test("rows before a failure are read first, then the query fails") {
    withSource() { (source, script) =>
      latest(source)
      script.add(1, 2)
      script.fail(new RuntimeException("the upstream said no"))
      val end = latest(source)
      assert(rows(source.getBatch(None, end)) == Seq(1, 2))
      Script.await("the failure was not seen")(scala.util.Try(latest(source, end)).isFailure)
      val error = intercept[IllegalStateException](latest(source, end))
      assert(
        error.getMessage.contains("The feed of source") && error.getMessage.contains("the upstream said no")
      )
      assert(error.getCause.getMessage == "the upstream said no")
    }
  }

  test("rows appended right before a failure are read before it is raised") {
    (1 to 300).foreach { i =>
      withSource() { (source, script) =>
        latest(source)
        val steps = inBackground {
          script.add(1, 2, 3)
          script.fail(new RuntimeException("gone"))
        }
        var start: Offset = null
        var seen = Seq.empty[Long]
        val error = intercept[IllegalStateException] {
          while (true) {
            val end = latest(source, start)
            if (end != start) {
              seen ++= Seq.range(Option(start).fold(0L)(seq(_) + 1), seq(end) + 1)
              start = end
            }
          }
        }
        assert(seen == Seq(0, 1, 2) && error.getMessage.contains("gone"), s"round $i")
        resultOf(steps)
      }
    }
  }

  test("a feed that fails while AvailableNow waits fails the run, after its rows") {
    Seq(Seq.empty[Long], Seq(1L, 2L)).foreach { values =>
      withSource("availableNowWait" -> "1h") { (source, script) =>
        source.prepareForTriggerAvailableNow()
        val first = inBackground(scala.util.Try(latest(source)))
        if (values.nonEmpty) script.add(values: _*)
        script.fail(new RuntimeException("no more"))
        val after = resultOf(first).map(end => { assert(seq(end) == values.length - 1); latest(source, end) })
        assert(after.failed.get.getMessage.contains("no more"))
      }
    }
  }

  test("a failure after the end of an AvailableNow run does not fail it") {
    withSource("availableNowWait" -> "1h", "bufferRows" -> "2") { (source, script) =>
      source.prepareForTriggerAvailableNow()
      val first = inBackground(latest(source))
      val step = script.offer(1, 2, 3)
      val end = resultOf(first)
      assert(rows(source.getBatch(None, end)) == Seq(1, 2))
      step.awaitDone()
      script.fail(new RuntimeException("later"))
      assert(latest(source, end) == end)
    }
  }

  test("a kept frame and a stopped source hold no rows") {
    withSource() { (source, script) =>
      latest(source)
      script.add(1, 2, 3)
      val end = latest(source)
      val frame = source.getBatch(None, end)
      assert(rows(frame) == Seq(1, 2, 3))
      val batch = script.watchLast()
      script.add(4)
      val waiting = script.watchLast()
      source.commit(end)
      awaitCollected(batch)
      assert(isHeld(waiting))
      source.stop()
      awaitCollected(waiting)
      assert(frame != null && source != null, "both are alive until here")
    }
  }

  private def isHeld(rows: WeakReference[ArrowRows]): Boolean =
    rows.get != null // a local would hold them too

  private def awaitCollected(rows: WeakReference[ArrowRows]): Unit =
    Script.await("rows that nobody can read are still held") {
      System.gc()
      !isHeld(rows)
    }

  test("a batch that is planned after the stop holds no rows") {
    withSource() { (source, script) =>
      latest(source)
      script.add(1)
      val end = latest(source)
      val rowsOfIt = script.watchLast()
      source.stop()
      val late = source.getBatch(Some(end), end)
      awaitCollected(rowsOfIt)
      assert(lossOf(rows(late)).getMessage.contains("its query stopped"))
    }
  }

  test("stop may come before the start and twice, and a stopped source starts no feed") {
    withSource() { (source, script) =>
      source.stop()
      source.stop()
      assert(intercept[IllegalStateException](latest(source)).getMessage.contains("is stopped"))
      assert(script.feedsMade == 0)
    }
  }

  test("stop works on an interrupted thread, and keeps the interrupt") {
    withSource() { (source, script) =>
      latest(source)
      script.add(1)
      Thread.currentThread().interrupt()
      source.stop()
      assert(Thread.interrupted())
      assert(feedThreads(script.name).isEmpty)
    }
  }

  test("stop releases a feed that a full buffer has blocked") {
    withSource("bufferRows" -> "1") { (source, script) =>
      latest(source)
      val step = script.offer(1, 2, 3)
      Script.await("the feed was not blocked")(source.metrics(Optional.empty()).get("waitingRows") == "1")
      source.stop()
      step.awaitDone()
      assert(feedThreads(script.name).isEmpty)
    }
  }

  test("stop is bounded when the feed does not end") {
    @volatile var release = false
    val stubborn = new Feed {
      override def run(out: RowSink): Unit = while (!release) {
        try Thread.sleep(10)
        catch { case _: InterruptedException => }
      }
      override def close(deadline: Deadline): Unit = throw new IllegalStateException("closing fails too")
    }
    val buffer = new Buffer(1, 1, 0)
    val thread = new FeedThread(stubborn, InMemory(buffer), "headwater-feed-stubborn")
    assert(!thread.stop(100.millis.fromNow), "it says that the thread is still there")
    assert(!buffer.append(NumberedRows.rows(0, 1)), "its rows are refused")
    release = true
    assert(thread.stop(20000.millis.fromNow))
    assert(thread.failure.isEmpty)
  }

  test("blockedMs counts the time in which the feed is blocked, also while it is") {
    withSource("bufferRows" -> "1") { (source, script) =>
      def blockedMs = source.metrics(Optional.empty()).get("blockedMs")
      latest(source)
      val step = script.offer(1, 2)
      Script.await("the feed was not blocked")(source.metrics(Optional.empty()).get("waitingRows") == "1")
      script.nanoTime.addAndGet(TimeUnit.MILLISECONDS.toNanos(40))
      assert(blockedMs == "40")
      val end = latest(source)
      source.getBatch(None, end)
      step.awaitDone()
      script.nanoTime.addAndGet(TimeUnit.MILLISECONDS.toNanos(40))
      assert(blockedMs == "40")
    }
  }

  test("metrics report the state of the source") {
    withSource("maxRowsPerTrigger" -> "2") { (source, script) =>
      def metrics = source.metrics(Optional.empty()).asScala
      assert(metrics("rowsRead") == "0" && metrics("state") == "starting", "before the start, too")
      assert(!metrics.contains("lastRowAt") && !metrics.contains("lastError"))
      latest(source)
      val begun = Instant.now().truncatedTo(ChronoUnit.MILLIS)
      script.add(1, 2, 3)
      script.nanoTime.addAndGet(TimeUnit.MILLISECONDS.toNanos(40))
      val end = latest(source)
      source.getBatch(None, end)
      val lastRowAt = Instant.parse(metrics("lastRowAt"))
      assert(!lastRowAt.isBefore(begun) && !lastRowAt.isAfter(Instant.now()))
      assert(seq(source.reportLatestOffset().asInstanceOf[Offset]) == 2)
      val byteSize = Script.arrow(Seq(1, 2, 3)).bytes.length
      assert(
        metrics.toMap - "lastRowAt" == Map(
          "rowsInBatch" -> "2",
          "rowsRead" -> "3",
          "rowsLost" -> "0",
          "waitingRows" -> "1",
          "waitingBytes" -> (byteSize - byteSize * 2 / 3).toString,
          "blockedMs" -> "0",
          "lagMs" -> "40",
          "state" -> "running",
          "restarts" -> "0",
          "badRows" -> "0",
          "rowsPerSecond" -> "3.0",
          "bytesPerSecond" -> s"$byteSize.0"
        )
      )
      latest(source, end)
      assert(metrics("rowsInBatch") == "0", "a trigger without a batch has no rows")
    }
  }

  test("metrics tell that a feed has failed, and when") {
    withSource() { (source, script) =>
      def metrics = source.metrics(Optional.empty()).asScala
      latest(source)
      val begun = Instant.now().truncatedTo(ChronoUnit.MILLIS)
      script.fail(new IllegalStateException("the feed broke"))
      Script.await(s"metrics are $metrics")(metrics("state") == "failed")
      assert(metrics("lastError") == "java.lang.IllegalStateException: the feed broke")
      assert(!Instant.parse(metrics("lastErrorAt")).isBefore(begun))
    }
  }

  private def inBackground[T](body: => T): Future[T] = Future(body)(ExecutionContext.global)
  private def resultOf[T](future: Future[T]): T = Await.result(future, 60.seconds)
}
