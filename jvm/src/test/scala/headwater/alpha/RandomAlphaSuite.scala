package headwater.alpha

import java.util.concurrent.atomic.AtomicLong

import scala.concurrent.duration._
import scala.collection.mutable

import headwater.core.{Slice, WallClock}
import headwater.task.{SliceColumns, SliceRows}
import headwater.testing.TestSink
import org.scalatest.funsuite.AnyFunSuite

class RandomAlphaSuite extends AnyFunSuite {

  private val arrowSchema = RandomAlpha.arrowSchema.serializeAsMessage()

  /** Runs a feed until it has appended `rows` rows, and returns them as Spark sees them. */
  private def take(feed: RandomAlpha, rows: Int): Seq[(Long, String)] = {
    val taken = mutable.Buffer.empty[(Long, String)]
    feed.run(TestSink { batch =>
      new SliceRows(new SliceColumns(arrowSchema, Iterator(Slice.whole(batch))))
        .foreach(row => taken += row.getLong(0) -> row.getString(1))
      taken.length < rows
    })
    taken.toSeq.take(rows)
  }

  test("values have the requested length, and contain only letters and digits") {
    Seq(1, 5, 64, 65536).foreach { length =>
      val values = take(new RandomAlpha(length, rowsPerSecond = 0, seed = 7, first = 0), 20).map(_._2)
      assert(values.forall(_.matches(s"[A-Za-z0-9]{$length}")))
      if (length > 4) assert(values.distinct.length == 20)
    }
  }

  test("every character of the alphabet is about as likely as any other") {
    val counts = take(new RandomAlpha(100, 0, seed = 3, first = 0), 6200)
      .flatMap(_._2)
      .groupBy(identity)
      .view
      .mapValues(_.length)
    assert(counts.size == 62)
    // 10,000 each is expected, with a standard deviation of 99; the seed is fixed, so this is not flaky.
    assert(counts.values.forall(n => math.abs(n - 10000) < 500))
  }

  test("a row's value depends on the seed and its seq, not on where the feed began or how fast it is") {
    val all = take(new RandomAlpha(8, 0, seed = 42, first = 0), 9000).map(_._2)
    assert(take(new RandomAlpha(8, 0, seed = 42, first = 8500), 500).map(_._2) == all.slice(8500, 9000))
    assert(take(new RandomAlpha(8, 100000, seed = 42, first = 10), 50).map(_._2) == all.slice(10, 60))
    assert(take(new RandomAlpha(8, 0, seed = 43, first = 0), 100).map(_._2) != all.take(100))
  }

  test("timestamps are taken from the clock, in microseconds") {
    val clock = new AtomicLong(1700000000123456L)
    val rows = take(new RandomAlpha(3, 0, seed = 1, first = 0, () => clock.getAndAdd(7)), 10)
    assert(rows.map(_._1) == (0 until 10).map(1700000000123456L + 7 * _))
  }

  test("the wall clock is correct, with a resolution below a millisecond") {
    val before = System.currentTimeMillis()
    val readings = Seq.fill(1000)(WallClock.micros())
    val after = System.currentTimeMillis()
    assert(readings.forall(micros => before <= micros / 1000 && micros / 1000 <= after))
    assert(readings.exists(_ % 1000 != 0))
  }

  test("a paced feed produces no more rows than are due") {
    val from = System.nanoTime()
    var soFar = 0L
    new RandomAlpha(3, rowsPerSecond = 200, seed = 1, first = 0).run(TestSink { rows =>
      soFar += rows.count
      assert(soFar <= (System.nanoTime() - from) * 200 / 1000000000L)
      soFar < 100
    })
  }

  test("Arrow batches stay below the size from which arrays waste heap") {
    Seq(1, 9, 36, 37, 100, 1000, 65536).foreach { length =>
      var byteSize = 0
      new RandomAlpha(length, rowsPerSecond = 0, seed = 1, first = 0).run(TestSink { rows =>
        byteSize = rows.bytes.length
        false
      })
      assert(byteSize < 512 * 1024)
    }
  }

  test("close ends a feed that waits for its next row") {
    val feed = new RandomAlpha(3, rowsPerSecond = 1, seed = 1, first = 0)
    val thread = new Thread(() => feed.run(TestSink(_ => true)))
    thread.start()
    feed.close(4.seconds.fromNow)
    thread.join(20000)
    assert(!thread.isAlive)
  }
}
