package headwater.core

import java.util.concurrent.CountDownLatch

import headwater.buffer.Buffer
import headwater.testing.{InMemory, NoThreadLeft, NumberedRows, Script}
import org.scalatest.funsuite.AnyFunSuite

class FeedThreadSuite extends AnyFunSuite with NoThreadLeft {

  private def withFeed(work: RowSink => Unit)(body: (FeedThread, Buffer) => Unit): Unit = {
    val buffer = new Buffer(100, Long.MaxValue, first = 0)
    val feed = new Feed {
      override def run(out: RowSink): Unit = work(out)
      override def close(): Unit = ()
    }
    val thread = new FeedThread(feed, InMemory(buffer), "headwater-feed-test")
    try body(thread, buffer)
    finally assert(thread.stop(20000))
  }

  test("a feed has caught up when it says so, and is not over by that") {
    val (say, end) = (new CountDownLatch(1), new CountDownLatch(1))
    withFeed { out => say.await(); out.caughtUp(); out.caughtUp(); end.await() } { (thread, _) =>
      assert(!thread.isCaughtUp && !thread.isOver)
      say.countDown()
      Script.await("it was not seen")(thread.isCaughtUp)
      assert(!thread.isOver)
      end.countDown()
      Script.await("its end was not seen")(thread.isOver)
      assert(thread.isCaughtUp)
    }
  }

  test("a feed that is over, or has failed, has caught up without a word") {
    withFeed(_ => ())((thread, _) => Script.await("not caught up")(thread.isCaughtUp && thread.isOver))
    withFeed(_ => throw new IllegalStateException("no")) { (thread, _) =>
      Script.await("not caught up")(thread.isCaughtUp && thread.isOver)
      assert(thread.failure.map(_.getMessage) == Some("no"))
    }
  }

  test("who waits for a feed to catch up is woken by its word, and finds the rows before it") {
    val (say, end) = (new CountDownLatch(1), new CountDownLatch(1))
    withFeed { out => say.await(); out.give(NumberedRows.rows(0, 7)); out.caughtUp(); end.await() } {
      (thread, buffer) =>
        @volatile var found = -2L
        val waiting = new Thread(() => {
          buffer.awaitCatchUp(Long.MaxValue)(thread.isCaughtUp)
          found = buffer.latest
        })
        waiting.start()
        Script.await("it does not wait")(waiting.getState == Thread.State.TIMED_WAITING)
        say.countDown()
        waiting.join(20000)
        assert(found == 6)
        end.countDown()
    }
  }

  test("several threads may give at once, and the outlet tells what waits") {
    withFeed { out =>
      val givers = (0 until 4).map(g =>
        new Thread(() => (0 until 5).foreach(i => out.give(NumberedRows.rows(g * 100 + i, 1))))
      )
      givers.foreach(_.start())
      givers.foreach(_.join())
      assert(out.status.waitingRows == 20)
    } { (thread, buffer) =>
      Script.await("it does not end")(thread.isOver)
      assert(thread.failure.isEmpty && buffer.latest == 19)
    }
  }
}
