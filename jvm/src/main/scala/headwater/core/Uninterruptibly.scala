package headwater.core

import java.util.concurrent.{CompletableFuture, TimeUnit, TimeoutException}

/** Waiting that an interrupt does not cut short: `query.stop()` interrupts the very thread that has to see the end of a
  * feed. The interrupt is kept for whoever comes after. Deadlines are on the monotonic clock.
  */
private[headwater] object Uninterruptibly {

  def join(thread: Thread, deadline: Long): Unit = uninterruptibly {
    while (thread.isAlive && leftMillis(deadline) > 0) thread.join(leftMillis(deadline))
  }

  /** None when it did not come in time; throws what the future failed with. */
  def get[T](future: CompletableFuture[T], deadline: Long): Option[T] = uninterruptibly {
    try Some(future.get(math.max(0L, deadline - System.nanoTime()), TimeUnit.NANOSECONDS))
    catch {
      case _: TimeoutException => None
      case e: java.util.concurrent.ExecutionException => throw e.getCause
    }
  }

  def deadlineIn(millis: Long): Long = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis)

  private def leftMillis(deadline: Long): Long = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())

  /** Does the whole again after an interrupt, so it must keep its own deadline. */
  private def uninterruptibly[T](wait: => T): T = {
    var interrupted = false
    try {
      var result: Option[T] = None
      while (result.isEmpty) {
        try result = Some(wait)
        catch { case _: InterruptedException => interrupted = true }
      }
      result.get
    } finally if (interrupted) Thread.currentThread().interrupt()
  }
}
