package headwater.adapters

import java.nio.file.{Files, Path}
import java.util.Optional
import java.util.concurrent.CompletableFuture

import scala.concurrent.duration.Deadline
import scala.jdk.CollectionConverters._

import headwater.core.{
  Arrivals,
  FeedReport,
  Json,
  PartitionKeyType,
  PartitionedOptions,
  Positions,
  SourceOptions,
  VectorOffset
}
import headwater.log.LocalFiles
import headwater.partition.PartitionWatch.{PartitionErrors, Snapshot}
import headwater.partition._
import headwater.testing.CapturedLog
import headwater.{BridgeException, DataLossException, FeedFailedException, InvalidOffsetException}
import org.apache.spark.sql.connector.read.streaming.ReadLimit
import org.apache.spark.sql.execution.streaming.Offset
import org.apache.spark.sql.types.StructType
import org.scalatest.funsuite.AnyFunSuite

/** The contract of a V1 source, with a scripted watch and without tasks. */
class PartitionedSourceSuite extends AnyFunSuite {

  private final class ScriptedWatch extends PartitionWatch {
    @volatile var snapshot: Option[Snapshot] = None
    @volatile var failure: Option[Throwable] = None
    @volatile var arrivals: Arrivals.Status = Arrivals.NoRows
    @volatile var isClosed = false
    @volatile var known = Set.empty[String]
    @volatile var requests = Seq.empty[Map[String, (Long, Long)]]
    @volatile var response: Map[String, (Long, Long)] => CompletableFuture[Map[String, Long]] = _ =>
      CompletableFuture.failedFuture(new UnsupportedOperationException)

    def show(latest: (String, Long)*): Unit = show(
      Snapshot(PartitionKeyType.Numbers, latest.toMap, starts(latest), Set.empty, true, Map.empty)
    )
    def show(what: Snapshot): Unit = snapshot = Some(what)

    /** As in Python: 0, for partitions that were not known. */
    def starts(latest: Seq[(String, Long)]): Map[String, Long] = latest.map(_._1 -> 0L).toMap -- known

    override def awaitComplete(nanos: Long): Boolean = snapshot.exists(_.isComplete)
    override def after(wanted: Map[String, (Long, Long)]): CompletableFuture[Map[String, Long]] = {
      requests :+= wanted
      response(wanted)
    }
  }

  private final class Fixture(folder: Path, written: Map[String, String], hasGaps: Boolean)
      extends AutoCloseable {
    val watch = new ScriptedWatch
    var committed = Seq.empty[Map[String, Long]]
    var tasks = Seq.empty[String]
    var reports = Seq.empty[String]
    var nanos = 0L
    private val options = PartitionedOptions.read(new SourceOptions("shards", written, PythonProvider.Names))
    private val stream = new PartitionedStream(
      "shards",
      "shards()",
      options,
      () => new StartPositions(new LocalFiles(folder, durable = true), "shards", Map.empty),
      known => {
        watch.known = known
        new RunningPartitions {
          override def watch: PartitionWatch = Fixture.this.watch
          override def reader: PythonReader = PythonReader(Array.empty, "", "", Nil, Map.empty)
          override def committed(positions: Positions): Unit = Fixture.this.committed :+= positions.at
          override def close(deadline: Deadline): Unit = Fixture.this.watch.isClosed = true
        }
      },
      hasGaps,
      () => 2,
      () => nanos
    )
    val source = new V1Source(
      stream,
      new StructType().add("n", "long"),
      options.limits,
      (batch: PartitionedBatch) => {
        tasks = batch.tasks
        batch.onReports(() => reports)
        null
      },
      () => ()
    )

    def latest(start: Offset = null, limit: ReadLimit = ReadLimits.of(options.limits)): Offset =
      source.latestOffset(start, limit).asInstanceOf[Offset]

    def batch(start: Option[Offset], end: Offset): Seq[(String, Long, Long)] = {
      source.getBatch(start, end)
      for {
        task <- tasks
        range <- Json.mapper.readTree(task).path("ranges").elements.asScala.toSeq
      } yield (range.path("p").asText, range.path("start").asLong, range.path("end").asLong)
    }

    def metrics: Map[String, String] = source.metrics(Optional.empty()).asScala.toMap

    override def close(): Unit = source.stop()
  }

  private def withSource[T](
      folder: Path = newFolder,
      hasGaps: Boolean = false,
      written: Map[String, String] = Map.empty
  )(
      body: Fixture => T
  ): T = {
    val fixture = new Fixture(folder, written, hasGaps)
    try body(fixture)
    finally fixture.close()
  }

  test("a commit is passed on with the offsets at which its batch ends") {
    withSource() { fixture =>
      fixture.watch.show("0" -> 5L, "1" -> 3L)
      val end = fixture.latest()
      fixture.batch(None, end)
      assert(fixture.committed.isEmpty)
      fixture.source.commit(end)
      assert(fixture.committed == Seq(Map("0" -> 5L, "1" -> 3L)))
    }
  }

  test("metrics tell of errors and arrivals") {
    withSource() { fixture =>
      fixture.latest()
      assert(fixture.metrics("state") == "starting" && fixture.metrics("restarts") == "0")
      val report =
        FeedReport("restarting", restarts = 4, lastError = Some(FeedReport.LastError("OSError: no", 0)))
      fixture.watch.show(
        Snapshot(PartitionKeyType.Numbers, Map("0" -> 5L), Map("0" -> 0L), Set.empty, true, Map.empty, report)
      )
      fixture.watch.arrivals = Arrivals.Status(Some(1500), 2.5, 0)
      val metrics = fixture.metrics
      assert(metrics("state") == "restarting" && metrics("restarts") == "4" && metrics("badRows") == "0")
      assert(metrics("lastError") == "OSError: no" && metrics("lastErrorAt") == "1970-01-01T00:00:00.000Z")
      assert(metrics("lastRowAt") == "1970-01-01T00:00:01.500Z" && metrics("rowsPerSecond") == "2.5")
    }
  }

  private def newFolder = Files.createTempDirectory("headwater-partitioned")
  private def at(next: (String, Long)*): Offset =
    new SparkOffset(VectorOffset("shards", Positions(PartitionKeyType.Numbers, next)))
  private def next(offset: Offset): Map[String, Long] = VectorOffset.parse(offset.json).next.at
  private def fromLog(offset: Offset) = new Offset { override val json: String = offset.json }

  test("a partition that is gone leaves the metrics, and its offset stays") {
    withSource(written = Map("failOnDataLoss" -> "false")) { fixture =>
      fixture.watch.show("0" -> 5L, "1" -> 7L)
      val first = fixture.latest()
      fixture.batch(None, first)
      assert(fixture.metrics("partitionCount") == "2")
      val starts = Map("0" -> 0L, "1" -> 0L)
      fixture.watch.show(
        Snapshot(PartitionKeyType.Numbers, Map("0" -> 6L), starts, Set("1"), isComplete = true, Map.empty)
      )
      assert(next(fixture.latest(first)) == Map("0" -> 6, "1" -> 7))
      assert(fixture.metrics("partitionCount") == "1")
      assert(!Json.mapper.readTree(fixture.metrics("partitions")).has("1"), fixture.metrics("partitions"))
    }
  }

  test("there is no offset before the partitions have responded and have a row") {
    withSource() { fixture =>
      assert(fixture.latest() == null)
      fixture.watch.show()
      assert(fixture.latest() == null)
      fixture.watch.show("0" -> 0L, "1" -> 0L)
      assert(fixture.latest() == null)
      fixture.watch.show("0" -> 0L, "1" -> 3L)
      assert(fixture.latest() == at("0" -> 0, "1" -> 3))
    }
  }

  test(
    "the first batch begins at the start positions, also after a restart, whatever the watch reports then"
  ) {
    val folder = newFolder
    val end = withSource(folder) { fixture =>
      fixture.watch.show(
        Snapshot(
          PartitionKeyType.Numbers,
          Map("0" -> 9L, "1" -> 4L),
          Map("0" -> 5L, "1" -> 4L),
          Set.empty,
          true,
          Map.empty
        )
      )
      val end = fixture.latest()
      assert(fixture.batch(None, fromLog(end)) == Seq(("0", 5, 9)))
      end
    }
    withSource(folder) { fixture =>
      assert(fixture.batch(None, fromLog(end)) == Seq(("0", 5, 9)))
      assert(fixture.watch.known == Set("0", "1"))
      fixture.watch.show("0" -> 12L, "1" -> 4L)
      assert(fixture.latest(fromLog(end)) == at("0" -> 12, "1" -> 4))
    }
  }

  test("the start of a new partition is stored before it is used") {
    val folder = newFolder
    val (one, two) = withSource(folder) { fixture =>
      fixture.watch.show("0" -> 3L)
      val one = fixture.latest()
      fixture.batch(None, one)
      fixture.watch.show(
        Snapshot(
          PartitionKeyType.Numbers,
          Map("0" -> 3L, "7" -> 6L),
          Map("0" -> 0L, "7" -> 2L),
          Set.empty,
          true,
          Map.empty
        )
      )
      val two = fixture.latest(one)
      assert(two == at("0" -> 3, "7" -> 6))
      (one, two)
    }
    withSource(folder)(fixture => assert(fixture.batch(Some(fromLog(one)), fromLog(two)) == Seq(("7", 2, 6))))
    Files.delete(folder.resolve("start-00000002.json"))
    withSource(folder) { fixture =>
      val error = intercept[InvalidOffsetException](fixture.batch(Some(one), two))
      assert(error.getMessage.contains("partition '7' up to 6, and where that began is not known"))
    }
  }

  test("a new partition without rows causes no batch") {
    withSource() { fixture =>
      fixture.watch.show("0" -> 3L)
      val one = fixture.latest()
      fixture.watch.show("0" -> 3L, "1" -> 0L)
      assert(fixture.latest(one) eq one)
    }
  }

  test("a limit is exact, shared in proportion to what waits, and starves no partition") {
    withSource(written = Map("maxRowsPerTrigger" -> "10")) { fixture =>
      fixture.watch.show("0" -> 1000L, "1" -> 10L, "2" -> 0L)
      val ends = Iterator
        .iterate(at("0" -> 0, "1" -> 0, "2" -> 0))(start => fixture.latest(start))
        .take(20)
        .toSeq
      val taken = ends.zip(ends.tail).map { case (from, to) =>
        next(to).map { case (p, end) => p -> (end - next(from)(p)) }
      }
      assert(taken.forall(_.values.sum == 10))
      assert(taken.takeWhile(_("1") > 0).map(_("1")).sum == 10, "some rows of each that has any")
    }
  }

  Seq(false, true).foreach { hasGaps =>
    test(s"fewer rows than partitions are shared in turns${if (hasGaps) ", with gaps too" else ""}") {
      withSource(hasGaps = hasGaps, written = Map("maxRowsPerTrigger" -> "1")) { fixture =>
        fixture.watch.response = wanted =>
          CompletableFuture.completedFuture(wanted.map { case (p, (start, rows)) => p -> (start + rows) })
        fixture.watch.show((0 to 3).map(_.toString -> 100L): _*)
        val none = at((0 to 3).map(_.toString -> 0L): _*)
        val ends = Iterator.iterate(none)(start => fixture.latest(start)).take(9).toSeq
        assert(ends.map(next(_).values.sum) == (0 to 8))
        assert(ends.last == at((0 to 3).map(_.toString -> 2L): _*))
      }
    }
  }

  test("minRowsPerTrigger is waited for until the delay is over") {
    withSource(written = Map("minRowsPerTrigger" -> "10", "maxTriggerDelay" -> "1m")) { fixture =>
      fixture.watch.show("0" -> 9L)
      assert(fixture.latest() == null)
      fixture.watch.show("0" -> 9L, "1" -> 1L)
      assert(fixture.latest() == at("0" -> 9, "1" -> 1))
      fixture.watch.show("0" -> 10L, "1" -> 1L)
      assert(fixture.latest(at("0" -> 9, "1" -> 1)) == at("0" -> 9, "1" -> 1))
      fixture.nanos += 60000000000L
      assert(fixture.latest(at("0" -> 9, "1" -> 1)) == at("0" -> 10, "1" -> 1))
    }
  }

  test("an AvailableNow run ends where the partitions ended when it began") {
    withSource(written = Map("maxRowsPerTrigger" -> "4")) { fixture =>
      fixture.source.prepareForTriggerAvailableNow()
      fixture.watch.show("0" -> 5L, "1" -> 1L)
      val one = fixture.latest()
      fixture.watch.show("0" -> 500L, "1" -> 1L, "2" -> 8L)
      val two = fixture.latest(one)
      assert(two == at("0" -> 5, "1" -> 1, "2" -> 0))
      assert(fixture.latest(two) eq two)
    }
  }

  test("AvailableNow fails if the partitions do not respond, instead of reading nothing") {
    withSource() { fixture =>
      fixture.source.prepareForTriggerAvailableNow()
      val error = intercept[FeedFailedException](fixture.latest())
      assert(error.getMessage.contains("did not report its partitions within 10000 ms"))
    }
  }

  test("a partition that moved backwards or disappeared fails the query, or keeps its position") {
    val start = at("0" -> 5, "1" -> 5)
    val gone = Snapshot(PartitionKeyType.Numbers, Map("0" -> 6L), Map.empty, Set("1"), true, Map.empty)
    withSource() { fixture =>
      fixture.watch.show("0" -> 4L, "1" -> 9L)
      val error = intercept[DataLossException](fixture.latest(start))
      assert(
        error.getMessage.contains(
          "partition '0' went backwards: it ends at offset 4, and the query has read it up to 5"
        )
      )
      fixture.watch.show(gone)
      assert(
        intercept[DataLossException](fixture.latest(start)).getMessage
          .contains("partition '1' is gone, at offset 5")
      )
    }
    withSource(written = Map("failOnDataLoss" -> "false")) { fixture =>
      CapturedLog(classOf[PartitionedStream]) { log =>
        fixture.watch.show("0" -> 4L, "1" -> 9L)
        assert(fixture.latest(start) == at("0" -> 5, "1" -> 9))
        fixture.watch.show(gone)
        assert(fixture.latest(start) == at("0" -> 6, "1" -> 5))
        fixture.latest(start)
        assert(log.lines.count(_.contains("has lost rows")) == 2, "each is said once")
      }
    }
  }

  test("offsets never move backwards, and belong to one source and one partition key type") {
    withSource() { fixture =>
      fixture.watch.show("0" -> 4L)
      val backwards = intercept[InvalidOffsetException](fixture.batch(Some(at("0" -> 9)), at("0" -> 4)))
      assert(backwards.getMessage.contains("ends before it begins, in partition '0'"))
      val other = new SparkOffset(VectorOffset("others", Positions(PartitionKeyType.Numbers, Seq("0" -> 1L))))
      assert(
        intercept[InvalidOffsetException](fixture.latest(other)).getMessage
          .contains("belongs to source 'others'")
      )
      val named = new SparkOffset(VectorOffset("shards", Positions(PartitionKeyType.Names, Seq("a" -> 1L))))
      assert(
        intercept[InvalidOffsetException](fixture.latest(named)).getMessage.contains("cannot be told apart")
      )
    }
  }

  test("with gaps the author's code states how far rows reach, and is asked ahead") {
    withSource(hasGaps = true, written = Map("maxRowsPerTrigger" -> "10")) { fixture =>
      fixture.watch.response = wanted =>
        CompletableFuture.completedFuture(wanted.map { case (p, (start, rows)) => p -> (start + rows * 100) })
      fixture.watch.show("0" -> 1000000L)
      val one = fixture.latest()
      assert(one == at("0" -> 1000))
      assert(fixture.watch.requests == Seq(Map("0" -> (0L, 10L)), Map("0" -> (1000L, 10L))))
      assert(fixture.latest(one) == at("0" -> 2000))
      assert(fixture.watch.requests.size == 3, "the second was answered before it was needed")
      fixture.watch.response = _ => new CompletableFuture
      fixture.latest(at("0" -> 2000))
      val slow = at("0" -> 3000)
      assert(fixture.latest(slow) eq slow, "a slow answer makes the batch later")
    }
    withSource(hasGaps = true, written = Map("maxRowsPerTrigger" -> "10")) { fixture =>
      fixture.watch.show("0" -> 1000000L)
      fixture.watch.response = _ => CompletableFuture.completedFuture(Map("0" -> 7L))
      val error = intercept[FeedFailedException](fixture.latest(at("0" -> 4000)))
      assert(error.getMessage.contains("after('0', 4000, …) gave 7"))
    }
  }

  test("a failing after() is retried after pauses, or fails the query") {
    val gone =
      CompletableFuture.failedFuture[Map[String, Long]](new BridgeException("after('0'): OSError: gone"))
    withSource(hasGaps = true, written = Map("maxRowsPerTrigger" -> "10")) { fixture =>
      fixture.watch.response = _ => gone
      fixture.watch.show("0" -> 1000000L)
      val error = intercept[FeedFailedException](fixture.latest())
      assert(error.getMessage == "Source 'shards' failed: after('0'): OSError: gone")
    }
    val patient = Map("maxRowsPerTrigger" -> "10", "onError" -> "restart", "maxRestarts" -> "2")
    withSource(hasGaps = true, written = patient) { fixture =>
      fixture.watch.response = _ => gone
      fixture.watch.show("0" -> 1000000L)
      assert(fixture.latest() == null)
      assert(fixture.latest() == null)
      assert(fixture.watch.requests.size == 1, "not before the pause is over")
      fixture.nanos += 500000000L
      assert(fixture.latest() == null)
      fixture.nanos += 500000000L
      assert(fixture.latest() == null)
      assert(fixture.watch.requests.size == 2, "pauses grow")
      fixture.watch.response = _ => CompletableFuture.completedFuture(Map("0" -> 50L))
      fixture.nanos += 500000000L
      assert(fixture.latest() == at("0" -> 50))
      fixture.watch.response = _ => gone
      fixture.latest(at("0" -> 60))
      fixture.nanos += 500000000L
      fixture.latest(at("0" -> 60))
      fixture.nanos += 1000000000L
      intercept[FeedFailedException](fixture.latest(at("0" -> 60)))
    }
  }

  test("AvailableNow waits for the response of after(), and does not end without it") {
    withSource(hasGaps = true, written = Map("maxRowsPerTrigger" -> "10")) { fixture =>
      val late = new CompletableFuture[Map[String, Long]]
      fixture.watch.response = _ => late
      fixture.watch.show("0" -> 1000000L)
      fixture.source.prepareForTriggerAvailableNow()
      val answering = new Thread(() => { Thread.sleep(1500); late.complete(Map("0" -> 50L)) })
      answering.start()
      assert(fixture.latest() == at("0" -> 50))
      answering.join()
    }
  }

  test("a partition that has not reached its start position has lost nothing") {
    withSource() { fixture =>
      val seen =
        Snapshot(
          PartitionKeyType.Numbers,
          Map("0" -> 5L, "1" -> 5L),
          Map("0" -> 9L, "1" -> 0L),
          Set.empty,
          true,
          Map.empty
        )
      fixture.watch.show(seen)
      assert(fixture.latest() == at("0" -> 9, "1" -> 5))
      fixture.watch.show(seen.copy(latest = Map("0" -> 12L, "1" -> 5L)))
      assert(fixture.latest(at("0" -> 9, "1" -> 5)) == at("0" -> 12, "1" -> 5))
    }
  }

  test("progress reports rows, lag and errors, in total and for each partition") {
    withSource() { fixture =>
      fixture.watch.show(
        Snapshot(
          PartitionKeyType.Numbers,
          Map("0" -> 10L, "10" -> 4L, "9" -> 2L),
          Map("0" -> 0L, "9" -> 2L, "10" -> 0L),
          Set.empty,
          true,
          Map("9" -> PartitionErrors(3, "TimeoutError"))
        )
      )
      val end = at("0" -> 4, "9" -> 2, "10" -> 4)
      fixture.latest() // stores the start positions
      fixture.batch(None, end)
      assert(fixture.metrics("rowsInBatch") == "8", "as many as there are offsets, until tasks have said")
      fixture.reports = Seq("""{"i":0,"rows":3,"bad":1,"lost":0}""", """{"i":1,"rows":2,"bad":0,"lost":2}""")
      fixture.reports ++= fixture.reports.take(1) // a task that ran twice
      val metrics = fixture.metrics
      assert(metrics("rowsInBatch") == "5" && metrics("badRows") == "1" && metrics("rowsLost") == "2")
      assert(metrics("waitingRows") == "6" && metrics("maxLag") == "6" && metrics("partitionCount") == "3")
      assert(
        metrics("partitions") ==
          """{"0":{"offset":4,"latest":10,"lag":6,"errors":0},"9":{"offset":2,"latest":2,"lag":0,"errors":3,"lastError":"TimeoutError"},"10":{"offset":4,"latest":4,"lag":0,"errors":0}}"""
      )
      fixture.latest(end)
      assert(fixture.metrics("rowsInBatch") == "0" && fixture.metrics("rowsRead") == "5")
      assert(fixture.source.reportLatestOffset() == at("0" -> 10, "9" -> 2, "10" -> 4))
    }
  }

  test("a failure of the watch fails the query, and stop ends the watch and releases the folder") {
    val folder = newFolder
    val stopped = withSource(folder) { fixture =>
      fixture.latest()
      fixture.watch.failure = Some(new FeedFailedException("ValueError: no (source.py:3)"))
      val error = intercept[FeedFailedException](fixture.latest())
      assert(error.getMessage.startsWith("Source 'shards' failed: ValueError: no"))
      fixture
    }
    assert(stopped.watch.isClosed)
    assert(intercept[IllegalStateException](withSource(folder) { fixture =>
      fixture.close(); fixture.latest()
    }).getMessage.contains("is stopped"))
    withSource(folder)(_.latest())
  }
}
