package headwater.core

import javax.annotation.concurrent.GuardedBy

import scala.util.control.NonFatal

import headwater.buffer.Buffer
import org.apache.spark.internal.Logging

/** The thread in which a feed fills a store. It starts at once, and after [[stop]] it is gone. */
private[headwater] final class FeedThread(feed: Feed, store: Store, name: String) extends Logging {

  @GuardedBy("this") private[this] var running = true
  @GuardedBy("this") private[this] var hasCaughtUp = false
  @GuardedBy("this") private[this] var error: Option[Throwable] = None
  @GuardedBy("this") private[this] var stopping = false

  private[this] val thread = new Thread(() => live(), name)
  thread.setDaemon(true)
  thread.start()

  /** No row will come any more. */
  def isOver: Boolean = synchronized(!running)

  /** No row will come soon: the feed is over, or it said that it has caught up. */
  def isCaughtUp: Boolean = synchronized(!running || hasCaughtUp)

  /** What the feed failed with. An error that comes after [[stop]] is the stop's own doing, and none. */
  def failure: Option[Throwable] = synchronized(error)

  /** Ends the feed and waits for its thread, for as long as `timeoutMillis`. Says whether it is gone. Works on an
    * interrupted thread too: `query.stop()` interrupts the one that calls this.
    */
  def stop(timeoutMillis: Long): Boolean = {
    val deadline = Uninterruptibly.deadlineIn(timeoutMillis)
    val first = synchronized {
      val was = stopping
      stopping = true
      !was
    }
    store.buffer.close()
    if (first) {
      try feed.close()
      catch { case NonFatal(e) => logWarning(s"$name: closing the feed failed", e) }
    }
    thread.interrupt()
    Uninterruptibly.join(thread, deadline)
    !thread.isAlive
  }

  private def live(): Unit =
    try feed.run(outlet)
    catch { case e: Throwable => fail(e) }
    finally {
      synchronized { running = false }
      store.buffer.wake()
    }

  private def outlet: RowSink = new RowSink {
    override def give(parcel: RowGroup): Boolean = store.give(parcel)

    override def caughtUp(): Unit = {
      FeedThread.this.synchronized { hasCaughtUp = true }
      store.buffer.wake()
    }

    override def status: Buffer.Status = store.buffer.status
  }

  private def fail(e: Throwable): Unit = synchronized {
    if (stopping) logDebug(s"$name: ended while stopping", e)
    else {
      error = Some(e)
      logError(s"$name: the feed failed", e)
    }
  }
}
