package headwater.buffer

import java.util.concurrent.ThreadLocalRandom
import java.util.concurrent.atomic.{AtomicBoolean, AtomicLong, AtomicReference}

import scala.concurrent.duration._

import headwater.testing.{NumberedRows, Script}
import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

/** A producer, a query that plans batches, a committer, a reader that reads again what was planned, and a stop at
  * any moment: whatever the interleaving, nothing is lost, repeated or reordered, and nobody waits for ever.
  */
class BufferConcurrencySuite extends AnyFunSuite with ScalaCheckPropertyChecks {

  implicit override val generatorDrivenConfig: PropertyCheckConfiguration =
    PropertyCheckConfiguration(minSuccessful = 150)

  private val limits = Gen.oneOf(Gen.choose(1L, 50L), Gen.const(Long.MaxValue))

  test("the laws hold with a concurrent producer, query, reader and stop") {
    forAll(Gen.choose(1L, 40L), Gen.choose(1L, 2000L), limits, limits, Gen.choose(0, 3000)) {
      (maxRows, maxBytes, rowsPerBatch, bytesPerBatch, stopAfter) =>
        val buffer = new Buffer(maxRows, maxBytes, first = 0)
        val committed = new AtomicLong(-1)
        val planned = new AtomicLong(-1)
        val stop = new AtomicBoolean(false)
        val failure = new AtomicReference[Throwable]

        def thread(name: String)(body: => Unit): Thread = {
          val t = new Thread(
            () =>
              try body
              catch { case e: Throwable => failure.compareAndSet(null, e) },
            name
          )
          t.setDaemon(true)
          t.start()
          t
        }

        val producer = thread("producer") {
          var id = 0L
          var open = true
          while (open) {
            val count = ThreadLocalRandom.current.nextInt(1, 30)
            open = buffer.append(NumberedRows.rows(id, count, ThreadLocalRandom.current.nextInt(8, 500)))
            id += count
          }
        }

        val query = thread("query") {
          var start = -1L
          while (!stop.get) {
            val end = buffer.endWithin(start, rowsPerBatch, bytesPerBatch)
            assert(end >= start && (rowsPerBatch == Long.MaxValue || end - start <= rowsPerBatch))
            if (end > start) {
              if (start >= 0) committed.set(start)
              val window = buffer.read(start, end)
              assert(window.goneUpTo == start && NumberedRows.ids(window.slices) == (start + 1 to end))
              buffer.take(end)
              planned.set(end)
              start = end
            } else Thread.`yield`()
            val status = buffer.status
            assert(status.waitingRows <= maxRows)
            assert(status.waitingBytes <= maxBytes || status.waitingRows == 1)
          }
        }

        // Spark commits from the query's thread; here a commit may come at any later moment.
        val committer = thread("committer") {
          while (!stop.get) if (committed.get >= 0) buffer.commit(committed.get) else Thread.`yield`()
        }

        val reader = thread("reader") {
          while (!stop.get) {
            val end = planned.get
            val start = math.max(-1, end - 20)
            val window = buffer.read(start, end)
            // Rows may be gone only if their commit has begun.
            assert(window.goneUpTo == start || window.goneUpTo <= committed.get)
            assert(NumberedRows.ids(window.slices) == (window.goneUpTo + 1 to end))
          }
        }

        Script.await(s"stuck after ${planned.get} rows: ${buffer.status}")(
          planned.get >= stopAfter || failure.get != null
        )
        buffer.close()
        stop.set(true)
        Seq(producer, query, committer, reader).foreach { t =>
          t.join(20000)
          if (t.isAlive) fail(s"${t.getName} hangs:\n${t.getStackTrace.mkString("\n")}")
        }
        Option(failure.get).foreach(e => throw e)
    }
  }

  test("rows of several concurrent feeds are not lost, repeated or reordered") {
    forAll(Gen.choose(2, 6), Gen.choose(1L, 40L), Gen.choose(1L, 2000L), limits) {
      (feeds, maxRows, maxBytes, rowsPerBatch) =>
        val buffer = new Buffer(maxRows, maxBytes, first = 0)
        val perFeed = 300
        val failure = new AtomicReference[Throwable]
        val producers = (0 until feeds).map { feed =>
          val thread = new Thread(() =>
            try {
              var done = 0
              while (done < perFeed) {
                val count = math.min(perFeed - done, ThreadLocalRandom.current.nextInt(1, 30))
                val bytes = ThreadLocalRandom.current.nextInt(8, 500)
                assert(buffer.append(NumberedRows.rows(feed * 1000000L + done, count, bytes)))
                done += count
              }
            } catch { case e: Throwable => failure.compareAndSet(null, e) }
          )
          thread.setDaemon(true)
          thread.start()
          thread
        }
        var start = -1L
        var ids = Vector.empty[Long]
        val deadline = 60000.millis.fromNow
        while (ids.length < feeds * perFeed && failure.get == null) { // without the sleep of Script.await
          assert(deadline.hasTimeLeft(), s"stuck after $start: ${buffer.status}")
          val end = buffer.endWithin(start, rowsPerBatch, Long.MaxValue)
          if (end > start) {
            ids ++= NumberedRows.ids(buffer.read(start, end).slices)
            buffer.take(end)
            buffer.commit(math.max(-1, start))
            start = end
          } else Thread.`yield`()
          val status = buffer.status
          assert(
            status.waitingRows <= maxRows && (status.waitingBytes <= maxBytes || status.waitingRows == 1)
          )
        }
        producers.foreach(_.join(20000))
        Option(failure.get).foreach(e => throw e)
        assert(producers.forall(!_.isAlive) && !buffer.isBlocked)
        (0 until feeds).foreach { feed =>
          assert(ids.filter(_ / 1000000 == feed).map(_ % 1000000) == (0L until perFeed.toLong))
        }
    }
  }
}
