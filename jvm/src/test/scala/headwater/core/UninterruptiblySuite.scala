package headwater.core

import java.util.concurrent.{CompletableFuture, CountDownLatch}

import scala.concurrent.duration._

import headwater.testing.Script
import org.scalatest.funsuite.AnyFunSuite

class UninterruptiblySuite extends AnyFunSuite {

  test("get returns the value, throws the failure, or returns None after the deadline") {
    val failed = new IllegalStateException("no")
    def in(millis: Long) = millis.millis.fromNow
    assert(Uninterruptibly.get(CompletableFuture.completedFuture(1), in(0)) == Some(1))
    assert(
      intercept[IllegalStateException](
        Uninterruptibly.get(CompletableFuture.failedFuture[Int](failed), in(0))
      ) eq failed
    )
    val from = System.nanoTime()
    assert(Uninterruptibly.get(new CompletableFuture[Int], in(100)).isEmpty)
    assert(System.nanoTime() - from >= 100000000L)
    assert(Uninterruptibly.get(new CompletableFuture[Int], in(-100)).isEmpty)
  }

  test("an interrupt neither ends a wait nor gets lost") {
    val future = new CompletableFuture[Int]
    val ended = new CountDownLatch(1)
    val joined = new Thread(() => ended.await())
    joined.start()
    val results = new java.util.concurrent.LinkedBlockingQueue[Any]
    val waiting = new Thread(() => {
      results.add(Uninterruptibly.get(future, 60000.millis.fromNow))
      results.add(Thread.interrupted())
      Thread.currentThread().interrupt()
      Uninterruptibly.join(joined, 60000.millis.fromNow)
      results.add(joined.isAlive)
      results.add(Thread.interrupted())
    })
    waiting.start()
    (1 to 3).foreach(_ => interruptWhenWaiting(waiting))
    assert(results.isEmpty)
    future.complete(5)
    Script.await("get did not return")(results.size == 2)
    interruptWhenWaiting(waiting)
    assert(results.size == 2)
    ended.countDown()
    waiting.join(20000)
    assert(results.toArray.toSeq == Seq[Any](Some(5), true, false, true))
  }

  test("interrupts do not extend the deadline") {
    @volatile var got: Option[Option[Int]] = None
    val waiting =
      new Thread(() => got = Some(Uninterruptibly.get(new CompletableFuture[Int], 300.millis.fromNow)))
    waiting.start()
    Script.await("it waits for ever") { waiting.interrupt(); !waiting.isAlive }
    assert(got == Some(None))
  }

  test("join gives up at its deadline") {
    val never = new CountDownLatch(1)
    val thread = new Thread(() => never.await())
    thread.start()
    Uninterruptibly.join(thread, 50.millis.fromNow)
    assert(thread.isAlive)
    never.countDown()
    Uninterruptibly.join(thread, 60000.millis.fromNow)
    assert(!thread.isAlive)
  }

  private def interruptWhenWaiting(thread: Thread): Unit = {
    Script.await(s"it does not wait, it is ${thread.getState}")(thread.getState == Thread.State.TIMED_WAITING)
    thread.interrupt()
  }
}
