package headwater.buffer

import java.util.concurrent.LinkedBlockingQueue

import scala.concurrent.duration._

import headwater.FeedFailedException
import headwater.core._
import headwater.testing.{NoThreadLeft, Script}
import org.scalatest.funsuite.AnyFunSuite

/** What an adapter other than V1 needs of a stream; V1SourceContractSuite has the rest. No Spark session. */
class BufferedStreamSuite extends AnyFunSuite with NoThreadLeft {

  private final class Fixture {
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
      () => 0L
    )

    def rows(slices: Seq[Slice]): Int = slices.map(_.count).sum
  }

  private def withStream(body: Fixture => Unit): Unit = {
    val fixture = new Fixture
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
      f.stream.open(f.stream.beginning)
      val live = f.stream.live(f.stream.beginning)
      assert(live.await(1.milli).isEmpty)
      f.batches.add(Seq(1, 2, 3))
      assert(f.rows(live.await(60.seconds)) == 3)
      f.batches.add(Seq(4))
      assert(f.rows(live.await(60.seconds)) == 1)
      assert(live.await(1.milli).isEmpty)
      assert(SeqOffset.parse(f.stream.newest.get.json).seq == 3)
    }
  }

  test("a live reader begins after its position and wakes up when the stream is stopped") {
    withStream { f =>
      f.stream.open(Beginning)
      f.batches.add(Seq(1, 2, 3))
      Script.await("no row arrived")(f.stream.newest.nonEmpty)
      val start = f.stream.latest(Beginning, Admission(maxRows = 2)).get
      val live = f.stream.live(start)
      assert(f.rows(live.await(60.seconds)) == 1)
      val waiting = new Thread(() => { live.await(60.seconds); () })
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
