package headwater.adapters

import java.nio.file.{Files, Path}
import java.util.Optional
import java.util.concurrent.CompletableFuture

import scala.jdk.CollectionConverters._

import headwater.core.{Json, PartitionKeyType, PartitionedOptions, Positions, SourceOptions, VectorOffset}
import headwater.log.LocalFiles
import headwater.partition.PartitionWatch.{Failing, Seen}
import headwater.partition.{PartitionBatch, PartitionWatch, RunningPartitions, StartPositions}
import headwater.testing.CapturedLog
import headwater.{BridgeException, DataLossException, FeedFailedException, InvalidOffsetException}
import org.apache.spark.sql.connector.read.streaming.ReadLimit
import org.apache.spark.sql.execution.streaming.Offset
import org.apache.spark.sql.types.StructType
import org.scalatest.funsuite.AnyFunSuite

/** Spark's contract, with a watch that says what the test says and without tasks. */
class PartitionedSourceSuite extends AnyFunSuite {

  private final class Scripted extends PartitionWatch {
    @volatile var seen: Option[Seen] = None
    @volatile var failure: Option[Throwable] = None
    @volatile var isClosed = false
    @volatile var known = Set.empty[String]
    @volatile var cuts = Seq.empty[Map[String, (Long, Long)]]
    @volatile var answer: Map[String, (Long, Long)] => CompletableFuture[Map[String, Long]] = _ =>
      CompletableFuture.failedFuture(new UnsupportedOperationException)

    def says(latest: (String, Long)*): Unit = says(
      Seen(PartitionKeyType.Numbers, latest.toMap, starts(latest), Set.empty, true, Map.empty)
    )
    def says(what: Seen): Unit = seen = Some(what)

    /** As Python does: of those that were not known, at 0. */
    def starts(latest: Seq[(String, Long)]): Map[String, Long] = latest.map(_._1 -> 0L).toMap -- known

    override def awaitComplete(nanos: Long): Boolean = seen.exists(_.isComplete)
    override def after(wanted: Map[String, (Long, Long)]): CompletableFuture[Map[String, Long]] = {
      cuts :+= wanted
      answer(wanted)
    }
    override def close(): Unit = isClosed = true
  }

  private final class Life(folder: Path, written: Map[String, String], hasGaps: Boolean)
      extends AutoCloseable {
    val watch = new Scripted
    var tasks = Seq.empty[String]
    var reports = Seq.empty[String]
    var nanos = 0L
    private val options = PartitionedOptions.read(new SourceOptions("shards", written, PythonProvider.Names))
    val source = new PartitionedSource(
      "shards",
      new StructType().add("n", "long"),
      options,
      () => new StartPositions(new LocalFiles(folder, durable = true), "shards", Map.empty),
      known => {
        watch.known = known
        new RunningPartitions {
          override def watch: PartitionWatch = Life.this.watch
          override def frame(told: Seq[String]): PartitionBatch = {
            tasks = told
            PartitionBatch(null, () => reports)
          }
          override def close(): Unit = Life.this.watch.close()
        }
      },
      hasGaps,
      () => 2,
      "shards()",
      () => nanos
    )

    def latest(start: Offset = null, limit: ReadLimit = options.readLimit): VectorOffset =
      source.latestOffset(start, limit).asInstanceOf[VectorOffset]

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

  private def live[T](
      folder: Path = newFolder,
      hasGaps: Boolean = false,
      written: Map[String, String] = Map.empty
  )(
      body: Life => T
  ): T = {
    val life = new Life(folder, written, hasGaps)
    try body(life)
    finally life.close()
  }

  private def newFolder = Files.createTempDirectory("headwater-partitioned")
  private def at(next: (String, Long)*) = VectorOffset("shards", Positions(PartitionKeyType.Numbers, next))
  private def fromLog(offset: Offset) = new Offset { override val json: String = offset.json }

  test("there is no offset until the partitions have answered and a row is there") {
    live() { life =>
      assert(life.latest() == null)
      life.watch.says()
      assert(life.latest() == null)
      life.watch.says("0" -> 0L, "1" -> 0L)
      assert(life.latest() == null)
      life.watch.says("0" -> 0L, "1" -> 3L)
      assert(life.latest() == at("0" -> 0, "1" -> 3))
    }
  }

  test("the first batch begins at the start positions, also after a restart, whatever the watch says then") {
    val folder = newFolder
    val end = live(folder) { life =>
      life.watch.says(
        Seen(PartitionKeyType.Numbers, Map("0" -> 9L, "1" -> 4L), Map("0" -> 5L, "1" -> 4L), Set.empty, true, Map.empty)
      )
      val end = life.latest()
      assert(life.batch(None, fromLog(end)) == Seq(("0", 5, 9)))
      end
    }
    live(folder) { life =>
      assert(life.batch(None, fromLog(end)) == Seq(("0", 5, 9)))
      assert(life.watch.known == Set("0", "1"))
      life.watch.says("0" -> 12L, "1" -> 4L)
      assert(life.latest(fromLog(end)) == at("0" -> 12, "1" -> 4))
    }
  }

  test("a new partition begins where it says, which is written down before it is used") {
    val folder = newFolder
    val (one, two) = live(folder) { life =>
      life.watch.says("0" -> 3L)
      val one = life.latest()
      life.batch(None, one)
      life.watch.says(
        Seen(PartitionKeyType.Numbers, Map("0" -> 3L, "7" -> 6L), Map("0" -> 0L, "7" -> 2L), Set.empty, true, Map.empty)
      )
      val two = life.latest(one)
      assert(two == at("0" -> 3, "7" -> 6))
      (one, two)
    }
    live(folder)(life => assert(life.batch(Some(fromLog(one)), fromLog(two)) == Seq(("7", 2, 6))))
    Files.delete(folder.resolve("start-00000002.json"))
    live(folder) { life =>
      val error = intercept[InvalidOffsetException](life.batch(Some(one), two))
      assert(error.getMessage.contains("partition '7' up to 6, and where that began is not known"))
    }
  }

  test("a new partition without rows makes no batch") {
    live() { life =>
      life.watch.says("0" -> 3L)
      val one = life.latest()
      life.watch.says("0" -> 3L, "1" -> 0L)
      assert(life.latest(one) eq one)
    }
  }

  test("a limit is kept to the row, shared by what waits, and starves nobody") {
    live(written = Map("maxRowsPerTrigger" -> "10")) { life =>
      life.watch.says("0" -> 1000L, "1" -> 10L, "2" -> 0L)
      val ends = Iterator
        .iterate(at("0" -> 0, "1" -> 0, "2" -> 0))(start => life.latest(start))
        .take(20)
        .toSeq
      val taken = ends.zip(ends.tail).map { case (from, to) =>
        to.next.at.map { case (p, end) => p -> (end - from.next.at(p)) }
      }
      assert(taken.forall(_.values.sum == 10))
      assert(taken.takeWhile(_("1") > 0).map(_("1")).sum == 10, "some rows of each that has any")
    }
  }

  Seq(false, true).foreach { hasGaps =>
    test(s"fewer rows than partitions are given to them in turns${if (hasGaps) ", with gaps too" else ""}") {
      live(hasGaps = hasGaps, written = Map("maxRowsPerTrigger" -> "1")) { life =>
        life.watch.answer = wanted =>
          CompletableFuture.completedFuture(wanted.map { case (p, (start, rows)) => p -> (start + rows) })
        life.watch.says((0 to 3).map(_.toString -> 100L): _*)
        val none = at((0 to 3).map(_.toString -> 0L): _*)
        val ends = Iterator.iterate(none)(start => life.latest(start)).take(9).toSeq
        assert(ends.map(_.next.at.values.sum) == (0 to 8))
        assert(ends.last == at((0 to 3).map(_.toString -> 2L): _*))
      }
    }
  }

  test("least rows are waited for, until the delay is over") {
    live(written = Map("minRowsPerTrigger" -> "10", "maxTriggerDelay" -> "1m")) { life =>
      life.watch.says("0" -> 9L)
      assert(life.latest() == null)
      life.watch.says("0" -> 9L, "1" -> 1L)
      assert(life.latest() == at("0" -> 9, "1" -> 1))
      life.watch.says("0" -> 10L, "1" -> 1L)
      assert(life.latest(at("0" -> 9, "1" -> 1)) == at("0" -> 9, "1" -> 1))
      life.nanos += 60000000000L
      assert(life.latest(at("0" -> 9, "1" -> 1)) == at("0" -> 10, "1" -> 1))
    }
  }

  test("an AvailableNow run ends where the partitions ended when it began") {
    live(written = Map("maxRowsPerTrigger" -> "4")) { life =>
      life.source.prepareForTriggerAvailableNow()
      life.watch.says("0" -> 5L, "1" -> 1L)
      val one = life.latest()
      life.watch.says("0" -> 500L, "1" -> 1L, "2" -> 8L)
      val two = life.latest(one)
      assert(two == at("0" -> 5, "1" -> 1, "2" -> 0))
      assert(life.latest(two) eq two)
    }
  }

  test("an AvailableNow run on partitions that do not answer fails, and is not taken for one without rows") {
    live() { life =>
      life.source.prepareForTriggerAvailableNow()
      val error = intercept[FeedFailedException](life.latest())
      assert(error.getMessage.contains("did not say within 10000 ms which partitions it has"))
    }
  }

  test("a partition that went backwards or is gone fails the query, or stays where it is") {
    val start = at("0" -> 5, "1" -> 5)
    val gone = Seen(PartitionKeyType.Numbers, Map("0" -> 6L), Map.empty, Set("1"), true, Map.empty)
    live() { life =>
      life.watch.says("0" -> 4L, "1" -> 9L)
      val error = intercept[DataLossException](life.latest(start))
      assert(
        error.getMessage.contains(
          "partition '0' went backwards: it ends at offset 4, and the query has read it up to 5"
        )
      )
      life.watch.says(gone)
      assert(
        intercept[DataLossException](life.latest(start)).getMessage
          .contains("partition '1' is gone, at offset 5")
      )
    }
    live(written = Map("failOnDataLoss" -> "false")) { life =>
      CapturedLog(classOf[PartitionedSource]) { log =>
        life.watch.says("0" -> 4L, "1" -> 9L)
        assert(life.latest(start) == at("0" -> 5, "1" -> 9))
        life.watch.says(gone)
        assert(life.latest(start) == at("0" -> 6, "1" -> 5))
        life.latest(start)
        assert(log.lines.count(_.contains("has lost rows")) == 2, "each is said once")
      }
    }
  }

  test("offsets never go backwards, and belong to one source and one way to name partitions") {
    live() { life =>
      life.watch.says("0" -> 4L)
      val backwards = intercept[InvalidOffsetException](life.batch(Some(at("0" -> 9)), at("0" -> 4)))
      assert(backwards.getMessage.contains("ends before it begins, in partition '0'"))
      val other = VectorOffset("others", Positions(PartitionKeyType.Numbers, Seq("0" -> 1L)))
      assert(
        intercept[InvalidOffsetException](life.latest(other)).getMessage
          .contains("belongs to source 'others'")
      )
      val named = VectorOffset("shards", Positions(PartitionKeyType.Names, Seq("a" -> 1L)))
      assert(
        intercept[InvalidOffsetException](life.latest(named)).getMessage.contains("cannot be told apart")
      )
    }
  }

  test("where offsets have gaps the author says how far rows go, and is asked ahead") {
    live(hasGaps = true, written = Map("maxRowsPerTrigger" -> "10")) { life =>
      life.watch.answer = wanted =>
        CompletableFuture.completedFuture(wanted.map { case (p, (start, rows)) => p -> (start + rows * 100) })
      life.watch.says("0" -> 1000000L)
      val one = life.latest()
      assert(one == at("0" -> 1000))
      assert(life.watch.cuts == Seq(Map("0" -> (0L, 10L)), Map("0" -> (1000L, 10L))))
      assert(life.latest(one) == at("0" -> 2000))
      assert(life.watch.cuts.size == 3, "the second was answered before it was needed")
      life.watch.answer = _ => new CompletableFuture
      life.latest(at("0" -> 2000))
      val slow = at("0" -> 3000)
      assert(life.latest(slow) eq slow, "a slow answer makes the batch later")
    }
    live(hasGaps = true, written = Map("maxRowsPerTrigger" -> "10")) { life =>
      life.watch.says("0" -> 1000000L)
      life.watch.answer = _ => CompletableFuture.completedFuture(Map("0" -> 7L))
      val error = intercept[FeedFailedException](life.latest(at("0" -> 4000)))
      assert(error.getMessage.contains("after('0', 4000, …) gave 7"))
    }
  }

  test("where the author cannot say how far rows go, that is tried again after pauses, or fails the query") {
    val gone =
      CompletableFuture.failedFuture[Map[String, Long]](new BridgeException("after('0'): OSError: gone"))
    live(hasGaps = true, written = Map("maxRowsPerTrigger" -> "10")) { life =>
      life.watch.answer = _ => gone
      life.watch.says("0" -> 1000000L)
      val error = intercept[FeedFailedException](life.latest())
      assert(error.getMessage == "Source 'shards' failed: after('0'): OSError: gone")
    }
    val patient = Map("maxRowsPerTrigger" -> "10", "onError" -> "restart", "maxRestarts" -> "2")
    live(hasGaps = true, written = patient) { life =>
      life.watch.answer = _ => gone
      life.watch.says("0" -> 1000000L)
      assert(life.latest() == null)
      assert(life.latest() == null)
      assert(life.watch.cuts.size == 1, "not before the pause is over")
      life.nanos += 500000000L
      assert(life.latest() == null)
      life.nanos += 500000000L
      assert(life.latest() == null)
      assert(life.watch.cuts.size == 2, "pauses grow")
      life.watch.answer = _ => CompletableFuture.completedFuture(Map("0" -> 50L))
      life.nanos += 500000000L
      assert(life.latest() == at("0" -> 50))
      life.watch.answer = _ => gone
      life.latest(at("0" -> 60))
      life.nanos += 500000000L
      life.latest(at("0" -> 60))
      life.nanos += 1000000000L
      intercept[FeedFailedException](life.latest(at("0" -> 60)))
    }
  }

  test("an AvailableNow run waits for the answer, and does not end without it") {
    live(hasGaps = true, written = Map("maxRowsPerTrigger" -> "10")) { life =>
      val late = new CompletableFuture[Map[String, Long]]
      life.watch.answer = _ => late
      life.watch.says("0" -> 1000000L)
      life.source.prepareForTriggerAvailableNow()
      val answering = new Thread(() => { Thread.sleep(1500); late.complete(Map("0" -> 50L)) })
      answering.start()
      assert(life.latest() == at("0" -> 50))
      answering.join()
    }
  }

  test("a partition that has not come as far as its start has lost nothing") {
    live() { life =>
      val seen =
        Seen(PartitionKeyType.Numbers, Map("0" -> 5L, "1" -> 5L), Map("0" -> 9L, "1" -> 0L), Set.empty, true, Map.empty)
      life.watch.says(seen)
      assert(life.latest() == at("0" -> 9, "1" -> 5))
      life.watch.says(seen.copy(latest = Map("0" -> 12L, "1" -> 5L)))
      assert(life.latest(at("0" -> 9, "1" -> 5)) == at("0" -> 12, "1" -> 5))
    }
  }

  test("progress says rows, lag and errors, for each partition too") {
    live() { life =>
      life.watch.says(
        Seen(
          PartitionKeyType.Numbers,
          Map("0" -> 10L, "10" -> 4L, "9" -> 2L),
          Map("0" -> 0L, "9" -> 2L, "10" -> 0L),
          Set.empty,
          true,
          Map("9" -> Failing(3, "TimeoutError"))
        )
      )
      val end = at("0" -> 4, "9" -> 2, "10" -> 4)
      life.latest() // which writes down where they begin
      life.batch(None, end)
      assert(life.metrics("rowsInBatch") == "8", "as many as there are offsets, until tasks have said")
      life.reports = Seq("""{"i":0,"rows":3,"bad":1,"lost":0}""", """{"i":1,"rows":2,"bad":0,"lost":2}""")
      life.reports ++= life.reports.take(1) // a task that ran twice
      val metrics = life.metrics
      assert(metrics("rowsInBatch") == "5" && metrics("badRows") == "1" && metrics("rowsLost") == "2")
      assert(metrics("waitingRows") == "6" && metrics("maxLag") == "6" && metrics("partitionCount") == "3")
      assert(
        metrics("partitions") ==
          """{"0":{"offset":4,"latest":10,"lag":6,"errors":0},"9":{"offset":2,"latest":2,"lag":0,"errors":3,"lastError":"TimeoutError"},"10":{"offset":4,"latest":4,"lag":0,"errors":0}}"""
      )
      life.latest(end)
      assert(life.metrics("rowsInBatch") == "0" && life.metrics("rowsRead") == "5")
      assert(life.source.reportLatestOffset() == at("0" -> 10, "9" -> 2, "10" -> 4))
    }
  }

  test("a failure of the watch fails the query, and stopping ends the watch and frees the folder") {
    val folder = newFolder
    val stopped = live(folder) { life =>
      life.latest()
      life.watch.failure = Some(new FeedFailedException("ValueError: no (source.py:3)"))
      val error = intercept[FeedFailedException](life.latest())
      assert(error.getMessage.startsWith("Source 'shards' failed: ValueError: no"))
      life
    }
    assert(stopped.watch.isClosed)
    assert(intercept[IllegalStateException](live(folder) { life =>
      life.close(); life.latest()
    }).getMessage.contains("is stopped"))
    live(folder)(_.latest())
  }
}
