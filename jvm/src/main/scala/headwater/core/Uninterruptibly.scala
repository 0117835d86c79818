package headwater.core

import java.util.concurrent.{CompletableFuture, TimeUnit, TimeoutException}

import scala.concurrent.duration.Deadline

/** Blocking calls that an interrupt does not cut short: `query.stop()` interrupts the thread that has to wait for
  * a feed's end. The thread's interrupt flag is set again afterwards. Deadlines are on the monotonic clock.
  */
private[headwater] object Uninterruptibly {

  def join(thread: Thread): Unit = retryOnInterrupt(thread.join())

  def join(thread: Thread, deadline: Deadline): Unit = retryOnInterrupt {
    var left = deadline.timeLeft.toMillis // read once: join(0) would wait for ever
    while (thread.isAlive && left > 0) {
      thread.join(left)
      left = deadline.timeLeft.toMillis
    }
  }

  /** None when the deadline passed; throws the exception that the future failed with. */
  def get[T](future: CompletableFuture[T], deadline: Deadline): Option[T] = retryOnInterrupt {
    try Some(future.get(math.max(0L, deadline.timeLeft.toNanos), TimeUnit.NANOSECONDS))
    catch {
      case _: TimeoutException => None
      case e: java.util.concurrent.ExecutionException => throw e.getCause
    }
  }

  /** Repeats the call after an interrupt, so the call must keep its own deadline. */
  private def retryOnInterrupt[T](blockingCall: => T): T = {
    var interrupted = false
    try {
      var result: Option[T] = None
      while (result.isEmpty) {
        try result = Some(blockingCall)
        catch { case _: InterruptedException => interrupted = true }
      }
      result.get
    } finally if (interrupted) Thread.currentThread().interrupt()
  }
}
