package headwater.adapters

import java.util.UUID

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import headwater.core.SeqOffset
import headwater.testing.{RunningStream, Script, ScriptProvider}
import headwater.{DataLossException, FeedFailedException, InvalidOffsetException}
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, SparkDataStream}
import org.apache.spark.sql.execution.streaming.StreamExecution
import org.apache.spark.sql.functions._
import org.apache.spark.sql.streaming.{StreamTest, StreamingQuery, StreamingQueryException, Trigger}
import org.scalatest.concurrent.Eventually

class V1FeedQuerySuite extends FeedQuerySuite("v1")

class V2FeedQuerySuite extends FeedQuerySuite("v2")

/** Queries in the style of Spark's own suites: rows arrive once, in order, whatever the query does. */
abstract class FeedQuerySuite(api: String) extends StreamTest with Eventually {
  import testImplicits._

  override protected def sparkConf = super.sparkConf.set("spark.headwater.api", api)

  override protected def afterEach(): Unit =
    try assert(feedThreads().isEmpty, "a feed outlived its query")
    finally super.afterEach()

  private def feedThreads() =
    Thread.getAllStackTraces.keySet.asScala.map(_.getName).filter(_.startsWith("headwater-feed-"))

  private def newScript(): Script = Script("s" + UUID.randomUUID().toString.replace("-", ""))

  private def read(script: Script, options: (String, String)*): DataFrame =
    spark.readStream
      .format(classOf[ScriptProvider].getName)
      .option("source", script.name)
      .options(options.toMap)
      .load()

  private def sourceOf(query: StreamExecution): StreamAdapter[_] = RunningStream.of(query)

  /** Adds rows to the running feed; later checks wait until the query has committed them. */
  private case class AddRows(script: Script, values: Long*) extends AddData {
    override def addData(query: Option[StreamExecution]): (SparkDataStream, AnyOffset) = {
      script.add(values: _*)
      val source = sourceOf(query.get)
      (source, source.reportLatestOffset())
    }
  }

  /** Every trigger reports progress, also without a batch. */
  private val startReportingAll =
    StartStream(additionalConfs = Map("spark.sql.streaming.noDataProgressEventInterval" -> "1"))

  private def awaitIdleTriggers(query: StreamExecution): Unit = {
    def idle = query.recentProgress.count(_.numInputRows == 0)
    val before = idle
    Script.await(s"the query does not idle: ${query.status}")(idle > before + 5)
  }

  private def lastSource(query: StreamExecution) = query.lastProgress.sources.head

  test("rows of a running query arrive once, in order") {
    val script = newScript()
    testStream(read(script))(
      StartStream(),
      AddRows(script, 1, 2, 3),
      CheckAnswer(1L, 2L, 3L),
      AddRows(script, 4),
      AddRows(script, 5, 6),
      CheckAnswer(1L, 2L, 3L, 4L, 5L, 6L)
    )
  }

  test("without data there is no batch") {
    val script = newScript()
    testStream(read(script))(
      startReportingAll,
      Execute { query =>
        Script.await("the feed was not started")(script.feedsMade == 1)
        awaitIdleTriggers(query)
        assert(query.lastExecution == null)
      }
    )
  }

  test("limits are exact in every batch, and progress agrees with the rows") {
    val script = newScript()
    testStream(read(script, "maxRowsPerTrigger" -> "2"))(
      StartStream(),
      AddRows(script, 1, 2, 3, 4, 5),
      CheckAnswer(1L, 2L, 3L, 4L, 5L),
      Execute { query =>
        eventually(timeout(streamingTimeout)) {
          val batches = query.recentProgress.filter(_.numInputRows > 0).map(_.sources.head)
          val ends = batches.map(source => SeqOffset.parse(source.endOffset))
          assert(ends.map(_.seq).toSeq == Seq(1, 3, 4))
          assert(ends.map(_.run).distinct.length == 1)
          assert(batches.map(_.numInputRows).toSeq == Seq(2, 2, 1))
          assert(batches.map(_.metrics.get("rowsInBatch")).toSeq == Seq("2", "2", "1"))
          assert(batches.head.startOffset == null && SeqOffset.parse(batches(1).startOffset).seq == 1)
          assert(batches.forall(source => SeqOffset.parse(source.latestOffset).seq == 4))
          assert(batches.forall(_.description == s"script[${script.name}]"))
        }
      }
    )
  }

  test("a batch takes the whole buffer, and the next one still comes") {
    val script = newScript()
    testStream(read(script, "bufferRows" -> "3"))(
      StartStream(),
      AddRows(script, 1 to 20 map (_.toLong): _*),
      CheckAnswer(1 to 20 map (_.toLong): _*),
      Execute { query => assert(query.recentProgress.forall(_.numInputRows <= 3)) }
    )
  }

  test("after a clean stop a restart continues with the next seq, and loses nothing that was committed") {
    val script = newScript()
    testStream(read(script))(
      StartStream(),
      AddRows(script, 1, 2, 3),
      CheckAnswer(1L, 2L, 3L),
      StopStream,
      StartStream(),
      AddRows(script, 4, 5),
      CheckNewAnswer(4L, 5L),
      Execute { query =>
        eventually(timeout(streamingTimeout))(assert(SeqOffset.parse(lastSource(query).endOffset).seq == 4))
        assert(lastSource(query).metrics.get("rowsLost") == "0")
      },
      StopStream,
      StartStream(),
      StopStream
    )
  }

  test(
    "an unfinished batch is lost with its process, and the query reports it when it runs the batch"
  ) {
    val script = newScript()
    withTempDir { checkpoint =>
      def start(fail: Boolean, options: (String, String)*): (StreamingQuery, mutable.Buffer[Seq[Long]]) = {
        val seen = mutable.Buffer.empty[Seq[Long]]
        val query = read(script, options: _*).writeStream
          .option("checkpointLocation", checkpoint.getCanonicalPath)
          .foreachBatch { (frame: DataFrame, _: Long) =>
            if (fail) throw new IllegalStateException("the sink is broken")
            seen.synchronized(seen += frame.as[Long].collect().toSeq)
            ()
          }
          .start()
        (query, seen)
      }

      val (broken, _) = start(fail = true)
      script.add(1, 2, 3)
      intercept[StreamingQueryException](broken.awaitTermination())

      val (lost, _) = start(fail = false)
      val error = intercept[StreamingQueryException](lost.awaitTermination())
      assert(rootCause(error).isInstanceOf[DataLossException])
      assert(rootCause(error).getMessage.contains("lost the rows 0 to 2: they were in the memory of run"))

      val (goesOn, seen) = start(fail = false, "failOnDataLoss" -> "false")
      script.add(4, 5)
      eventually(timeout(streamingTimeout)) {
        assert(seen.synchronized(seen.toSeq) == Seq(Seq(), Seq(4L, 5L)))
        val progress = goesOn.recentProgress.map(_.sources.head)
        assert(progress.map(_.metrics.get("rowsLost")).last == "3")
        assert(progress.map(_.metrics.get("rowsInBatch")).take(2).toSeq == Seq("0", "2"))
      }
      goesOn.stop()
    }
  }

  test("AvailableNow with limits runs several batches and ends while the feed continues") {
    val script = newScript()
    withTempDir { checkpoint =>
      def run(values: Long*): Seq[(Long, Seq[Long])] = {
        val seen = mutable.Buffer.empty[(Long, Seq[Long])]
        val query = read(
          script,
          "maxRowsPerTrigger" -> "2",
          "bufferRows" -> "5",
          "availableNowWait" -> "1h"
        ).writeStream
          .option("checkpointLocation", checkpoint.getCanonicalPath)
          .trigger(Trigger.AvailableNow())
          .foreachBatch { (frame: DataFrame, id: Long) => seen += id -> frame.as[Long].collect().toSeq; () }
          .start()
        script.offer(
          values: _*
        ) // more than the buffer holds: the feed is blocked
        assert(query.awaitTermination(60000))
        seen.toSeq
      }
      assert(run(1, 2, 3, 4, 5, 6, 7) == Seq(0 -> Seq(1, 2), 1 -> Seq(3, 4), 2 -> Seq(5)))
      assert(run(8, 9, 10, 11, 12, 13) == Seq(3 -> Seq(8, 9), 4 -> Seq(10, 11), 5 -> Seq(12)))
    }
  }

  test("AvailableNow on a feed that ends without a row ends without a batch") {
    val script = newScript()
    val query = read(script, "availableNowWait" -> "1h").writeStream
      .trigger(Trigger.AvailableNow())
      .format("noop")
      .start()
    script.end()
    assert(query.awaitTermination(60000))
    assert(query.recentProgress.forall(_.numInputRows == 0))
  }

  test("a feed that returns is drained, then the query idles") {
    val script = newScript()
    testStream(read(script))(
      startReportingAll,
      AddRows(script, 1, 2),
      Execute { _ => script.end() },
      CheckAnswer(1L, 2L),
      Execute { query =>
        awaitIdleTriggers(query)
        assert(query.isActive)
      }
    )
  }

  test("a failing feed fails the query with its own error, after its rows") {
    val script = newScript()
    testStream(read(script))(
      StartStream(),
      AddRows(script, 1, 2),
      CheckAnswer(1L, 2L),
      Execute { _ => script.fail(new java.io.IOException("the line is dead")) },
      ExpectFailure[FeedFailedException] { error =>
        assert(
          error.getMessage.contains("the line is dead") && error.getCause.isInstanceOf[java.io.IOException]
        )
      }
    )
  }

  test("a batch can be run several times, with the same rows each time") {
    val script = newScript()
    val seen = mutable.Buffer.empty[(Long, Long, Seq[Long])]
    val query = read(script).writeStream
      .foreachBatch { (frame: DataFrame, _: Long) =>
        seen.synchronized(seen += ((frame.count(), frame.count(), frame.as[Long].collect().toSeq)))
        ()
      }
      .start()
    script.add(1, 2, 3)
    eventually(timeout(streamingTimeout)) {
      assert(seen.synchronized(seen.toSeq) == Seq((3L, 3L, Seq(1L, 2L, 3L))))
      // Spark counts scans; the exact number is in the metrics.
      val source = query.lastProgress.sources.head
      assert(source.numInputRows > 3 && source.metrics.get("rowsInBatch") == "3")
    }
    query.stop()
  }

  test("a union with itself reads each row twice from one feed") {
    val script = newScript()
    val rows = read(script)
    testStream(rows.union(rows))(
      StartStream(),
      AddRows(script, 1, 2),
      CheckAnswer(1L, 1L, 2L, 2L),
      Execute { query =>
        eventually(timeout(streamingTimeout)) {
          assert(lastSource(query).metrics.get("rowsInBatch") == "2")
          assert(lastSource(query).numInputRows == 4)
          assert(script.feedsMade == 1)
        }
      }
    )
  }

  test("two queries of one definition have two feeds, and both are exact") {
    val script = newScript()
    val rows = read(script)
    testStream(rows)(StartStream(), AddRows(script, 1, 2), CheckAnswer(1L, 2L))
    testStream(rows)(StartStream(), AddRows(script, 3), CheckAnswer(3L))
    assert(script.feedsMade == 2)
  }

  test("a union whose order changed between runs is refused by name") {
    val (one, two) = (newScript(), newScript())
    withTempDir { checkpoint =>
      def start(rows: DataFrame) =
        rows.writeStream.option("checkpointLocation", checkpoint.getCanonicalPath).format("noop").start()
      val query = start(read(one).union(read(two)))
      one.add(1)
      two.add(2)
      query.processAllAvailable()
      query.stop()
      val error = intercept[StreamingQueryException](start(read(two).union(read(one))).awaitTermination())
      assert(rootCause(error).isInstanceOf[InvalidOffsetException])
      val message = rootCause(error).getMessage
      assert(message.startsWith("The checkpoint belongs to source"))
      assert(
        message.contains(one.name) && message.contains(two.name) && message.contains("in the same order")
      )
    }
  }

  test("if another source of the query cannot be created, no feed is left running") {
    val script = newScript()
    val broken = spark.readStream.format(classOf[ScriptProvider].getName).option("source", "broken").load()
    val query = read(script).union(broken).writeStream.format("noop").start()
    assert(
      intercept[StreamingQueryException](query.awaitTermination()).getMessage
        .contains("this source cannot be made")
    )
    assert(script.feedsMade == 0)
  }

  test("dropDuplicates with a watermark, a no-data batch and a restart repeats nothing") {
    val script = newScript()
    val unique = read(script)
      .select($"value", timestamp_seconds($"value").as("time"))
      .withWatermark("time", "1 second")
      .dropDuplicates("value", "time")
      .select($"value")
    testStream(unique)(
      StartStream(),
      AddRows(script, 10, 11, 10, 11, 12),
      CheckAnswer(10L, 11L, 12L),
      AddRows(script, 12, 20, 20),
      CheckNewAnswer(20L),
      StopStream,
      StartStream(),
      AddRows(script, 20, 21, 5),
      CheckNewAnswer(21L)
    )
  }

  test("stopping a query that is idle, busy or unused leaves no thread") {
    val script = newScript()
    testStream(read(script, "bufferRows" -> "1"))(
      StartStream(),
      Execute { _ => script.offer(1, 2, 3, 4, 5) },
      StopStream,
      StartStream(),
      StopStream,
      Execute("no feed thread") { _ => assert(feedThreads().isEmpty) }
    )
  }

  private def rootCause(error: Throwable): Throwable =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).toSeq.last
}
