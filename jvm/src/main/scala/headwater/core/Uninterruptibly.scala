package headwater.core

import java.util.concurrent.{CompletableFuture, TimeUnit, TimeoutException}

/** Blocking calls that an interrupt does not cut short: `query.stop()` interrupts the thread that has to wait for
  * a feed's end. The thread's interrupt flag is set again afterwards. Deadlines are on the monotonic clock.
  */
private[headwater] object Uninterruptibly {

  def join(thread: Thread, deadline: Long): Unit = retryOnInterrupt {
    while (thread.isAlive && millisUntil(deadline) > 0) thread.join(millisUntil(deadline))
  }

  /** None when the deadline passed; throws the exception that the future failed with. */
  def get[T](future: CompletableFuture[T], deadline: Long): Option[T] = retryOnInterrupt {
    try Some(future.get(math.max(0L, deadline - System.nanoTime()), TimeUnit.NANOSECONDS))
    catch {
      case _: TimeoutException => None
      case e: java.util.concurrent.ExecutionException => throw e.getCause
    }
  }

  def deadlineIn(millis: Long): Long = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis)

  private def millisUntil(deadline: Long): Long = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())

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
