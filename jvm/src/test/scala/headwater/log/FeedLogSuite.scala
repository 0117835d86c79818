package headwater.log

import java.io.File
import java.util.UUID

import scala.collection.mutable

import headwater.adapters.StreamAdapter
import headwater.core.{Durability, SeqOffset}
import headwater.testing.{NoThreadLeft, RunningStream, Script, ScriptProvider}
import headwater.{DataLossException, FeedFailedException}
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, SparkDataStream}
import org.apache.spark.sql.execution.streaming.StreamExecution
import org.apache.spark.sql.streaming.{StreamTest, StreamingQuery, StreamingQueryException, Trigger}
import org.scalatest.concurrent.Eventually

class V1FeedLogSuite extends FeedLogSuite("v1")

class V2FeedLogSuite extends FeedLogSuite("v2")

/** Queries whose rows wait in a log: a restart continues exactly where the last run ended. */
abstract class FeedLogSuite(api: String) extends StreamTest with Eventually {
  import testImplicits._

  override protected def sparkConf = super.sparkConf.set("spark.headwater.api", api)

  override protected def afterEach(): Unit =
    try Script.await(s"left: ${threads()}")(threads().isEmpty)
    finally super.afterEach()

  private def threads() = NoThreadLeft.ours.map(_.getName).filter(_.matches("headwater-(feed|log)-.*"))

  private def newScript(): Script = Script("s" + UUID.randomUUID().toString.replace("-", ""))

  private def read(script: Script, options: (String, String)*): DataFrame =
    spark.readStream
      .format(classOf[ScriptProvider].getName)
      .option("source", script.name)
      .options((Seq("durability" -> "log") ++ options).toMap)
      .load()

  private def sourceOf(query: StreamExecution): StreamAdapter[_] = RunningStream.of(query)

  private def latest(source: StreamAdapter[_]): Long =
    Option(source.reportLatestOffset()).fold(-1L)(offset => SeqOffset.parse(offset.json).seq)

  /** Adds rows to the running feed, and waits until they can be offered. */
  private case class AddRows(script: Script, values: Long*) extends AddData {
    override def addData(query: Option[StreamExecution]): (SparkDataStream, AnyOffset) = {
      val source = sourceOf(query.get)
      script.caughtUp() // now there is a feed, and the rows of earlier runs
      val before = latest(source)
      script.add(values: _*)
      Script.await(s"rows are not durable: ${query.get.exception}")(latest(source) >= before + values.length)
      (source, source.reportLatestOffset())
    }
  }

  private type Snapshot = mutable.Buffer[Seq[Long]]

  private def start(script: Script, checkpoint: File, options: (String, String)*)(
      trigger: Trigger = Trigger.ProcessingTime(0)
  )(sink: Seq[Long] => Unit): StreamingQuery =
    read(script, options: _*).writeStream
      .option("checkpointLocation", checkpoint.getCanonicalPath)
      .trigger(trigger)
      .foreachBatch { (frame: DataFrame, _: Long) => sink(frame.as[Long].collect().toSeq) }
      .start()

  private def collecting(
      script: Script,
      checkpoint: File,
      options: (String, String)*
  ): (StreamingQuery, Snapshot) = {
    val seen = mutable.Buffer.empty[Seq[Long]]
    (start(script, checkpoint, options: _*)()(rows => seen.synchronized(seen += rows)), seen)
  }

  private def awaitRows(query: StreamingQuery, seen: Snapshot)(rows: Long*): Unit = {
    Script.await(s"not $rows but $seen, ${query.status}, ${query.exception}") {
      query.exception.nonEmpty || seen.synchronized(seen.flatten.length) >= rows.length
    }
    assert(seen.synchronized(seen.flatten.toSeq) == rows, query.exception)
  }

  private def rootCause(error: Throwable): Throwable =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).toSeq.last

  test("rows arrive once, in order, over restarts, and each run continues with the next seq") {
    val script = newScript()
    testStream(read(script))(
      StartStream(),
      AddRows(script, 1, 2, 3),
      CheckAnswer(1L, 2L, 3L),
      StopStream,
      StartStream(),
      AddRows(script, 4, 5),
      CheckNewAnswer(4L, 5L),
      StopStream,
      StartStream(),
      StopStream,
      StartStream(),
      AddRows(script, 6),
      CheckNewAnswer(6L),
      CheckAnswer(1L, 2L, 3L, 4L, 5L, 6L),
      Execute { query =>
        eventually(timeout(streamingTimeout)) {
          val source = query.lastProgress.sources.head
          val end = SeqOffset.parse(source.endOffset)
          assert(end.seq == 5 && end.durability == Durability.Log)
          assert(source.metrics.get("rowsLost") == "0" && source.metrics.get("logBytes").toLong > 0)
          assert(source.metrics.get("rowsRead") == "1") // since this start
        }
      }
    )
  }

  test("rows that no batch has taken wait for the next start") {
    val script = newScript()
    withTempDir { checkpoint =>
      val (first, none) =
        collecting(script, checkpoint, "minRowsPerTrigger" -> "100", "maxTriggerDelay" -> "1h")
      script.add(1, 2, 3)
      first.stop()
      assert(none.isEmpty)
      val (second, seen) = collecting(script, checkpoint)
      awaitRows(second, seen)(1, 2, 3)
      script.add(4)
      awaitRows(second, seen)(1, 2, 3, 4)
      second.stop()
    }
  }

  test("an unfinished batch is run again with the same rows") {
    val script = newScript()
    withTempDir { checkpoint =>
      val tried = mutable.Buffer.empty[Seq[Long]]
      val broken = start(script, checkpoint, "maxRowsPerTrigger" -> "2")() { rows =>
        tried.synchronized(tried += rows)
        throw new IllegalStateException("the sink is broken")
      }
      script.add(1, 2, 3)
      intercept[StreamingQueryException](broken.awaitTermination())
      assert(tried.nonEmpty)
      val (again, seen) = collecting(script, checkpoint)
      awaitRows(again, seen)(1, 2, 3)
      assert(seen.head == tried.head)
      again.stop()
    }
  }

  test("AvailableNow reads the log and the rows of the feed, in exact batches, and ends") {
    val script = newScript()
    withTempDir { checkpoint =>
      def run(values: Long*): Seq[Seq[Long]] = {
        val seen = mutable.Buffer.empty[Seq[Long]]
        val query = start(script, checkpoint, "maxRowsPerTrigger" -> "2", "availableNowWait" -> "1h")(
          Trigger.AvailableNow()
        )(rows => seen.synchronized(seen += rows))
        if (values.nonEmpty) script.add(values: _*)
        script.caughtUp()
        assert(query.awaitTermination(60000))
        seen.toSeq
      }
      assert(run(1, 2, 3, 4, 5) == Seq(Seq(1, 2), Seq(3, 4), Seq(5)))
      assert(run(6) == Seq(Seq(6)))
      assert(run() == Seq())
      val (left, _) = collecting(script, checkpoint, "minRowsPerTrigger" -> "100", "maxTriggerDelay" -> "1h")
      script.add(7, 8, 9)
      left.stop()
      assert(run(10) == Seq(Seq(7, 8), Seq(9, 10)))
    }
  }

  test("AvailableNow runs a failed batch first") {
    val script = newScript()
    withTempDir { checkpoint =>
      val broken = start(script, checkpoint)()(_ => throw new IllegalStateException("the sink is broken"))
      script.add(1, 2, 3)
      intercept[StreamingQueryException](broken.awaitTermination())
      val seen = mutable.Buffer.empty[Seq[Long]]
      val query = start(script, checkpoint, "availableNowWait" -> "1h")(Trigger.AvailableNow()) { rows =>
        seen.synchronized(seen += rows)
      }
      script.add(4)
      script.caughtUp()
      assert(query.awaitTermination(60000) && seen.flatten == Seq(1, 2, 3, 4))
    }
  }

  test("a failing feed fails the query after its rows, and a restart continues after them") {
    val script = newScript()
    testStream(read(script))(
      StartStream(),
      Execute { _ =>
        Script.await("no feed was started")(script.feedsMade > 0)
        script.offer(1, 2)
        script.offer(3)
        script.fail(new java.io.IOException("the line is dead"))
      },
      ExpectFailure[FeedFailedException](error => assert(error.getMessage.contains("the line is dead"))),
      StartStream(),
      AddRows(script, 4),
      CheckAnswer(1L, 2L, 3L, 4L)
    )
  }

  test("a missing log fails the query; with failOnDataLoss=false it continues with a new one") {
    val script = newScript()
    withTempDir { checkpoint =>
      val (first, seen) = collecting(script, checkpoint)
      script.add(1, 2, 3)
      awaitRows(first, seen)(1, 2, 3)
      first.processAllAvailable()
      first.stop()
      val folder = new File(checkpoint, "sources/0")
      folder.listFiles.foreach(_.delete())
      val error = intercept[StreamingQueryException](collecting(script, checkpoint)._1.awaitTermination())
      assert(rootCause(error).isInstanceOf[DataLossException], error)
      assert(
        rootCause(error).getMessage.contains(folder.getName) && rootCause(error).getMessage.contains("gone")
      )
      val (again, more) = collecting(script, checkpoint, "failOnDataLoss" -> "false")
      script.add(4)
      awaitRows(again, more)(4)
      again.stop()
    }
  }

  test(
    "a flipped bit fails the batch that reads it, naming file and position, or its rows are skipped"
  ) {
    val script = newScript()
    withTempDir { checkpoint =>
      val (first, _) = collecting(script, checkpoint, "minRowsPerTrigger" -> "100", "maxTriggerDelay" -> "1h")
      script.add(1, 2)
      script.add(3, 4)
      first.stop()
      val (second, _) =
        collecting(script, checkpoint, "minRowsPerTrigger" -> "100", "maxTriggerDelay" -> "1h")
      script.add(5, 6)
      second.stop()
      val segment =
        new File(checkpoint, "sources/0").listFiles.filter(_.getName.endsWith(".segment")).minBy(_.getName)
      val bytes = java.nio.file.Files.readAllBytes(segment.toPath)
      bytes(bytes.length - 5) = (bytes(bytes.length - 5) ^ 4).toByte
      java.nio.file.Files.write(segment.toPath, bytes)

      val error = intercept[StreamingQueryException](collecting(script, checkpoint)._1.awaitTermination())
      assert(
        error.getMessage.contains(segment.getName) && error.getMessage.contains("damaged at byte"),
        error
      )
      val (again, seen) = collecting(script, checkpoint, "failOnDataLoss" -> "false")
      awaitRows(again, seen)(1, 2, 5, 6)
      def lost = again.recentProgress.map(_.sources.head.metrics.get("rowsLost")).lastOption
      Script.await("the lost rows are not counted once")(lost.contains("2"))
      again.stop()
    }
  }

  test("durability=memory is refused while rows wait in the log, unless failOnDataLoss is false") {
    val script = newScript()
    val waits = Seq("minRowsPerTrigger" -> "100", "maxTriggerDelay" -> "1h")
    def inMemory(checkpoint: File, options: (String, String)*) =
      collecting(script, checkpoint, (("durability" -> "memory") +: options): _*)
    def takes(running: (StreamingQuery, Snapshot))(rows: Long*): Unit = {
      val (query, seen) = running
      awaitRows(query, seen)(rows: _*)
      query.processAllAvailable() // and its commit: a batch in memory cannot be run again
      query.stop()
    }
    def leaves(checkpoint: File, values: Long*): Unit = {
      val (query, _) = collecting(script, checkpoint, waits: _*)
      script.add(values: _*)
      query.stop()
    }
    def refused(checkpoint: File, rows: String): Unit = {
      val (query, seen) = inMemory(checkpoint)
      val error = rootCause(intercept[StreamingQueryException](query.awaitTermination()))
      assert(error.isInstanceOf[DataLossException] && error.getMessage.contains(s"taken the rows $rows of"))
      assert(seen.isEmpty)
    }
    withTempDir { checkpoint =>
      leaves(checkpoint, 1, 2, 3)
      refused(checkpoint, "0 to 2") // there is no batch yet
      val taking = collecting(script, checkpoint)
      takes(taking)(1, 2, 3)
      leaves(checkpoint, 4)
      refused(checkpoint, "3 to 3")
      val without = inMemory(checkpoint, "failOnDataLoss" -> "false")
      script.add(5)
      takes(without)(5)
      val again = inMemory(checkpoint) // the log was left before
      script.add(6)
      takes(again)(6)
    }
    withTempDir { checkpoint =>
      val query = inMemory(checkpoint)
      script.add(1)
      takes(query)(1)
      assert(!new File(checkpoint, "sources").exists(), "there was no log, and none is looked for")
      leaves(checkpoint, 2)
      refused(checkpoint, "1 to 1")
      val taking = collecting(script, checkpoint)
      takes(taking)(2)
      val back = inMemory(checkpoint)
      script.add(3)
      takes(back)(3)
    }
  }

  test("a second query on a checkpoint is refused, and the first continues") {
    val script = newScript()
    withTempDir { checkpoint =>
      val (first, seen) = collecting(script, checkpoint)
      script.add(1)
      awaitRows(first, seen)(1)
      // Spark refuses a query with the same id; we have to refuse other queries.
      val folder = new File(checkpoint, "sources/0").toURI.toString
      val source = ScriptProvider.factory(spark, script.name, Map("durability" -> "log"), folder).v1
      val error = intercept[java.io.IOException](source.latestOffset(null, source.getDefaultReadLimit))
      assert(error.getMessage.contains("one query at a time may use a checkpoint"))
      source.stop()
      script.add(2)
      awaitRows(first, seen)(1, 2)
      first.stop()
    }
  }

  test("a frame that is used after its commit fails, although the log still has its rows") {
    val script = newScript()
    withTempDir { checkpoint =>
      val kept = mutable.Buffer.empty[DataFrame]
      val query = read(script).writeStream
        .option("checkpointLocation", checkpoint.getCanonicalPath)
        .foreachBatch { (frame: DataFrame, _: Long) =>
          kept.synchronized(kept += frame)
          assert(frame.count() == frame.as[Long].collect().length)
          ()
        }
        .start()
      script.add(1, 2, 3)
      query.processAllAvailable()
      Script.await("no batch")(kept.synchronized(kept.length) == 1)
      script.add(4)
      Script.await("no second batch")(kept.synchronized(kept.length) == 2)
      query.stop()
      val error = rootCause(intercept[Exception](kept.head.as[Long].collect()))
      assert(
        error.isInstanceOf[DataLossException] && error.getMessage.contains("its batch was committed"),
        error
      )
    }
  }

  test("disk usage, threads and open files do not grow over many restarts") {
    val script = newScript()
    withTempDir { checkpoint =>
      val seen = mutable.Buffer.empty[Seq[Long]]
      def openFiles = new File("/proc/self/fd").list().length
      def round(i: Int): Unit = {
        val query =
          start(script, checkpoint, "logRetainBatches" -> "2")()(rows => seen.synchronized(seen += rows))
        Script.await("no feed")(script.feedsMade == i + 1)
        script.add(i.toLong)
        Script.await(s"${query.exception}")(seen.synchronized(seen.flatten.length) == i + 1)
        query.processAllAvailable()
        query.stop()
      }
      (0 until 5).foreach(round)
      val before = openFiles
      (5 until 15).foreach(round)
      assert(seen.flatten == (0L until 15L))
      assert(
        openFiles <= before + 5,
        new File("/proc/self/fd").listFiles.map(_.getCanonicalPath).mkString("\n")
      )
      val segments = new File(checkpoint, "sources/0").list().filter(_.endsWith(".segment"))
      assert(segments.length <= 5, segments.mkString(" "))
      assert(threads().isEmpty)
    }
  }
}
