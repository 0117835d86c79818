package headwater.core

import java.util.concurrent.CompletableFuture
import javax.annotation.concurrent.GuardedBy

import scala.concurrent.duration._
import scala.util.control.NonFatal

import headwater.buffer.Buffer
import org.apache.spark.internal.Logging

/** The thread in which a feed fills a store. It starts at once, and has ended after [[stop]]. */
private[headwater] final class FeedThread(feed: Feed, store: Store, name: String) extends Logging {

  @GuardedBy("this") private[this] var running = true
  @GuardedBy("this") private[this] var caughtUpReported = false
  @GuardedBy("this") private[this] var error: Option[Throwable] = None
  @GuardedBy("this") private[this] var failedAt = 0L
  @GuardedBy("this") private[this] var stopping = false
  private[this] val closed = new CompletableFuture[Unit]

  private[this] val thread = new Thread(() => run(), name)
  thread.setDaemon(true)
  thread.start()

  /** No more rows will come. */
  def isFinished: Boolean = synchronized(!running)

  /** No row will come soon: the feed has finished, or reported that it has caught up. */
  def isCaughtUp: Boolean = synchronized(!running || caughtUpReported)

  /** Never blocks. */
  def report: FeedReport = feed.report.getOrElse {
    synchronized {
      FeedReport(
        if (error.nonEmpty) "failed" else if (running) "running" else "ended",
        lastError = error.map(e => FeedReport.LastError(e.toString, failedAt))
      )
    }
  }

  /** The exception of the feed. An exception after [[stop]] is a consequence of the stop and does not count. */
  def failure: Option[Throwable] = synchronized(error)

  /** Ends the feed and waits for its thread. Works on an interrupted thread too:
    * `query.stop()` interrupts the thread that calls this.
    *
    * @return
    *   whether the thread has ended
    */
  def stop(deadline: Deadline): Boolean = {
    val first = synchronized {
      val alreadyStopping = stopping
      stopping = true
      !alreadyStopping
    }
    store.buffer.close()
    if (first)
      try feed.close(deadline - FeedThread.EndTime)
      catch { case NonFatal(e) => logWarning(s"$name: closing the feed failed", e) }
      finally closed.complete(())
    else
      Uninterruptibly.get(closed, deadline) // a stop has returned when the feed has ended, whoever stops it
    thread.interrupt()
    Uninterruptibly.join(thread, deadline)
    !thread.isAlive
  }

  private def run(): Unit =
    try feed.run(sink)
    catch { case e: Throwable => fail(e) }
    finally {
      synchronized { running = false }
      store.buffer.wake()
    }

  private def sink: RowSink = new RowSink {
    override def append(rowGroup: RowGroup): Boolean = store.append(rowGroup)

    override def caughtUp(): Unit = {
      FeedThread.this.synchronized { caughtUpReported = true }
      store.buffer.wake()
    }

    override def status: Buffer.Status = store.buffer.status
  }

  private def fail(e: Throwable): Unit = synchronized {
    if (stopping) logDebug(s"$name: ended while stopping", e)
    else {
      error = Some(e)
      failedAt = System.currentTimeMillis()
      logDebug(s"$name: the feed failed", e) // Spark logs it when it fails the query
    }
  }
}

private object FeedThread {

  /** What is left of a stop for the thread itself, after its feed was closed. */
  private val EndTime = 250.millis
}
