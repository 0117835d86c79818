package headwater.buffer

import java.util.concurrent.LinkedBlockingQueue

import scala.concurrent.duration._

import headwater.{DataLossException, FeedFailedException}
import headwater.core._
import headwater.testing.{NoThreadLeft, Script}
import org.scalatest.funsuite.AnyFunSuite

/** What an adapter other than V1 needs of a stream; V1SourceContractSuite has the rest. No Spark session. */
class BufferedStreamSuite extends AnyFunSuite with NoThreadLeft {

  private final class Fixture(shards: Int) {
    val batches = new LinkedBlockingQueue[Seq[Long]]

    val stream = new BufferedStream(
      "numbers",
      "numbers()",
      BufferedOptions.read(new SourceOptions("numbers", Map.empty, OptionTable.feed), Durability.Memory),
      _ => new MemoryStore("00000000000000aa", new Buffer(1000, 1 << 20, 0)),
      _ =>
        new Feed {
          override def run(out: RowSink): Unit = {
            var batch = batches.take()
            while (batch.nonEmpty && out.append(Script.arrow(batch))) batch = batches.take()
          }
          override def close(deadline: Deadline): Unit = batches.add(Nil)
        },
      () => 0L,
      shards = shards
    )

    def rows(slices: Seq[Slice]): Int = slices.map(_.count).sum
  }

  private def withStream(body: Fixture => Unit): Unit = withShards(1)(body)

  private def withShards(shards: Int)(body: Fixture => Unit): Unit = {
    val fixture = new Fixture(shards)
    try body(fixture)
    finally fixture.stream.stop(20.seconds.fromNow)
  }

  test("a stream that is not open has no batch and no newest row, and says so") {
    withStream { f =>
      assert(f.stream.newest.isEmpty && f.stream.failure.isEmpty)
      assert(
        intercept[IllegalStateException](f.stream.latest(Beginning, Admission())).getMessage
          .contains("not open")
      )
    }
  }

  test("live rows arrive in order, each once, and an empty wait ends with its timeout") {
    withStream { f =>
      f.stream.open(Beginning)
      val live = f.stream.live
      assert(live.begin(Beginning) == Seq(-1L))
      assert(live.await(0, -1, 1.milli) == ArrivedRows(Nil, -1))
      f.batches.add(Seq(1, 2, 3))
      val first = live.await(0, -1, 60.seconds)
      assert(f.rows(first.slices) == 3 && first.slices.head.seq == 0 && first.end == 2)
      f.batches.add(Seq(4))
      val second = live.await(0, 2, 60.seconds)
      assert(f.rows(second.slices) == 1 && second.slices.head.seq == 3 && second.end == 3)
      assert(live.await(0, 3, 1.milli).slices.isEmpty)
    }
  }

  test("a live batch ends where its slowest reader is, and the next one repeats nothing") {
    withShards(2) { f =>
      f.stream.open(Beginning)
      val live = f.stream.live
      assert(live.begin(Beginning) == Seq(-1L, -1L))
      f.batches.add(Seq(1, 2, 3, 4))
      Script.await("no row arrived")(f.stream.newest.nonEmpty)
      val end = live.end(Vector(3, 1))
      assert(end.asInstanceOf[SeqOffset].seq == 1 && f.stream.metrics("rowsInBatch") == "2")
      f.stream.commit(end)
      assert(live.begin(end) == Seq(3L, 1L))
    }
  }

  test("a live batch without rows ends at the beginning") {
    withStream { f =>
      f.stream.open(Beginning)
      f.stream.live.begin(Beginning)
      assert(f.stream.live.end(Vector(-1)) == Beginning)
    }
  }

  test("rows in memory that all live readers have handed on are dropped") {
    withStream { f =>
      f.stream.open(Beginning)
      val live = f.stream.live
      live.begin(Beginning)
      f.batches.add(Seq(1, 2, 3))
      live.await(0, -1, 60.seconds)
      live.await(0, 1, 60.seconds)
      val plan = f.stream.plan(Beginning, f.stream.newest.get)
      assert(intercept[DataLossException](plan.reportLosses()).getMessage.contains("lost the rows 0 to 1"))
    }
  }

  test("a live reader wakes up when the stream is stopped") {
    withStream { f =>
      f.stream.open(Beginning)
      val live = f.stream.live
      live.begin(Beginning)
      val waiting = new Thread(() => { live.await(0, -1, 60.seconds); () })
      waiting.start()
      f.stream.stop(20.seconds.fromNow)
      Uninterruptibly.join(waiting, 20.seconds.fromNow)
      assert(!waiting.isAlive)
    }
  }

  test("a store that cannot be opened is an error of open, and stop still works") {
    val broken = new BufferedStream(
      "numbers",
      "numbers()",
      BufferedOptions.read(new SourceOptions("numbers", Map.empty, OptionTable.feed), Durability.Memory),
      _ => throw new FeedFailedException("the folder is locked"),
      _ => throw new AssertionError("no store, no feed"),
      () => 0L
    )
    assert(intercept[FeedFailedException](broken.open(Beginning)).getMessage == "the folder is locked")
    broken.stop(1.second.fromNow)
  }
}
