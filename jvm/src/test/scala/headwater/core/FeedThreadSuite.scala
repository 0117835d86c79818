package headwater.core

import java.util.concurrent.CountDownLatch

import scala.concurrent.duration._

import headwater.buffer.Buffer
import headwater.testing.{InMemory, NoThreadLeft, NumberedRows, Script}
import org.scalatest.funsuite.AnyFunSuite

class FeedThreadSuite extends AnyFunSuite with NoThreadLeft {

  private def withFeed(work: RowSink => Unit)(body: (FeedThread, Buffer) => Unit): Unit = {
    val buffer = new Buffer(100, Long.MaxValue, first = 0)
    val feed = new Feed {
      override def run(out: RowSink): Unit = work(out)
      override def close(deadline: Deadline): Unit = ()
    }
    val thread = new FeedThread(feed, InMemory(buffer), "headwater-feed-test")
    try body(thread, buffer)
    finally assert(thread.stop(20000.millis.fromNow))
  }

  test("a feed that reports it has caught up is not finished") {
    val (say, end) = (new CountDownLatch(1), new CountDownLatch(1))
    withFeed { out => say.await(); out.caughtUp(); out.caughtUp(); end.await() } { (thread, _) =>
      assert(!thread.isCaughtUp && !thread.isFinished)
      say.countDown()
      Script.await("it was not seen")(thread.isCaughtUp)
      assert(!thread.isFinished)
      end.countDown()
      Script.await("its end was not seen")(thread.isFinished)
      assert(thread.isCaughtUp)
    }
  }

  test("a feed that is finished or failed has caught up") {
    withFeed(_ => ())((thread, _) => Script.await("not caught up")(thread.isCaughtUp && thread.isFinished))
    withFeed(_ => throw new IllegalStateException("no")) { (thread, _) =>
      Script.await("not caught up")(thread.isCaughtUp && thread.isFinished)
      assert(thread.failure.map(_.getMessage) == Some("no"))
    }
  }

  test("a caught-up report wakes the waiting thread, which then finds the rows before it") {
    val (say, end) = (new CountDownLatch(1), new CountDownLatch(1))
    withFeed { out => say.await(); out.append(NumberedRows.rows(0, 7)); out.caughtUp(); end.await() } {
      (thread, buffer) =>
        @volatile var latest = -2L
        val waiting = new Thread(() => {
          buffer.awaitCatchUp(Long.MaxValue)(thread.isCaughtUp)
          latest = buffer.latest
        })
        waiting.start()
        Script.await("it does not wait")(waiting.getState == Thread.State.TIMED_WAITING)
        say.countDown()
        waiting.join(20000)
        assert(latest == 6)
        end.countDown()
    }
  }

  test("several threads may append at once, and the sink reports what waits") {
    withFeed { out =>
      val givers = (0 until 4).map(g =>
        new Thread(() => (0 until 5).foreach(i => out.append(NumberedRows.rows(g * 100 + i, 1))))
      )
      givers.foreach(_.start())
      givers.foreach(_.join())
      assert(out.status.waitingRows == 20)
    } { (thread, buffer) =>
      Script.await("it does not end")(thread.isFinished)
      assert(thread.failure.isEmpty && buffer.latest == 19)
    }
  }
}
