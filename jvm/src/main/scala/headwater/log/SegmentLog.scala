package headwater.log

import java.io.{Closeable, IOException}
import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.ReentrantLock
import javax.annotation.concurrent.GuardedBy

import scala.util.control.NonFatal

import headwater.buffer.Buffer
import headwater.core.{ArrowSchema, RowGroup, StoredRows, Uninterruptibly}
import org.apache.spark.internal.Logging

/** Writes what a feed gives into segments, and deletes what Spark will not ask for again.
  *
  * All of that is done by the log's own thread: `query.stop()` interrupts the query's thread, and an interrupt closes the
  * file that a thread is writing to. The thread takes all that has come by then (a group), writes it, syncs it, and only
  * then puts it into the index, from which it is offered. While a group is being synced the next one gathers.
  *
  * '''What can block:''' [[give]], while more than `MaxPendingBytes` are not yet durable. The index lets its writer wait
  * when `logBytes` wait for Spark, and so the feed waits too. A disk that is full makes the writer wait as well; it tries
  * again every second.
  *
  * '''What can be lost:''' a parcel that was given and is not durable yet, if the process dies. It was offered to nobody,
  * its cursor is not stored, and it was not acknowledged.
  *
  * @param index
  *   gets each block when it is durable
  * @param onDurable
  *   told of cursors that are durable, by shard
  */
private[headwater] final class SegmentLog(
    files: LogFiles,
    manifest: Manifest,
    scan: LogScan,
    arrowSchema: ArrowSchema,
    settings: SegmentLog.Settings,
    index: Buffer,
    onDurable: Map[Int, String] => Unit,
    held: Closeable
) extends Logging {
  import SegmentLog._

  private[this] val lock = new ReentrantLock
  private[this] val changed = lock.newCondition()

  @GuardedBy("lock") private[this] var pending = Vector.empty[RowGroup]
  @GuardedBy("lock") private[this] var pendingBytes = 0L
  @GuardedBy("lock") private[this] var writing = false
  @GuardedBy("lock") private[this] var closing = false
  @GuardedBy("lock") private[this] var error: Option[Throwable] = None
  @GuardedBy("lock") private[this] var commits = scan.commits
  @GuardedBy("lock") private[this] var looked =
    scan.commits.maxOption.getOrElse(-1L) // what drop has seen of them
  @GuardedBy("lock") private[this] var sizes = Sizes(scan.segments.map(_.bytes).sum, 0L)

  // The thread's own, both.
  private[this] val writer = new SegmentWriter(files, manifest, scan, arrowSchema, settings)
  private[this] var lastWrite = System.nanoTime()

  private[this] val thread = new Thread(() => live(), s"headwater-log-${manifest.source}-${manifest.run}")
  thread.setDaemon(true)
  thread.start()

  /** @return false when the log is closed or has failed: the feed has to end */
  def give(parcel: RowGroup): Boolean = locked {
    while (!closing && error.isEmpty && pendingBytes >= MaxPendingBytes) changed.await()
    val open = !closing && error.isEmpty
    if (open) {
      pending :+= parcel
      pendingBytes += parcel.weight
      changed.signalAll()
    }
    open
  }

  /** All that was given is in the index. */
  def isSettled: Boolean = locked(pending.isEmpty && !writing)

  def failure: Option[Throwable] = locked(error)

  /** Spark has committed the rows up to `end`. They are kept for a while, see [[Settings]]. */
  def commit(end: Long): Unit = locked {
    if (!commits.lastOption.exists(_ >= end)) {
      commits = (commits :+ end).takeRight(settings.retainBatches + 1)
      changed.signalAll()
    }
  }

  def status: Sizes = locked(sizes)

  /** Writes what was given, and lets go of the folder. Waits for that for as long as `millis`; says whether it is done. */
  def close(millis: Long): Boolean = {
    locked {
      closing = true
      changed.signalAll()
    }
    Uninterruptibly.join(thread, Uninterruptibly.deadlineIn(millis))
    !thread.isAlive
  }

  private def locked[T](body: => T): T = {
    lock.lock()
    try body
    finally lock.unlock()
  }

  @GuardedBy("lock") private def newestCommit: Long = commits.lastOption.getOrElse(-1L)

  private def live(): Unit =
    try {
      drop()
      var group = nextGroup()
      while (group.nonEmpty) {
        group.filter(_.nonEmpty).foreach(write)
        drop()
        locked {
          writing = false
          changed.signalAll()
        }
        index.wake()
        group = nextGroup()
      }
      if (locked(newestCommit) > writer.committed) writer.write(Vector.empty, locked(newestCommit))
    } catch { case e: Throwable => fail(e) }
    finally {
      writer.close()
      quietly(held.close())
      index.wake()
    }

  private def fail(e: Throwable): Unit = {
    logError(s"the log of source '${manifest.source}' cannot go on", e)
    locked {
      error = Some(e)
      changed.signalAll()
    }
  }

  /** What has come since; empty when there is only something to delete, None when it is over. */
  private def nextGroup(): Option[Vector[RowGroup]] = locked {
    while (!closing && pending.isEmpty && newestCommit <= looked) changed.await()
    if (!files.canAppend && !closing) gather()
    val group = pending
    pending = Vector.empty
    pendingBytes = 0
    writing = true
    changed.signalAll()
    Option.when(group.nonEmpty || !closing)(group)
  }

  /** Where each group makes a file, they should be few. */
  @GuardedBy("lock") private def gather(): Unit = {
    var left = lastWrite + GatherNanos - System.nanoTime()
    while (!closing && pendingBytes < MaxPendingBytes && left > 0) left = changed.awaitNanos(left)
  }

  /** Tries until there is room for the group. */
  private def write(group: Vector[RowGroup]): Unit = {
    var blocks = attempt(group)
    while (blocks.isEmpty) blocks = attempt(group)
    publish(group, blocks.get)
  }

  /** None while the disk is full. */
  private def attempt(group: Vector[RowGroup]): Option[Vector[StoredRows]] =
    try {
      refuseIfReplaced()
      val blocks = writer.write(group, locked(newestCommit))
      refuseIfReplaced() // who came meanwhile may not have seen this group
      lastWrite = System.nanoTime()
      measure()
      Some(blocks)
    } catch {
      case e: IOException if isFull(e) && !e.isInstanceOf[LogFailedException] =>
        logWarning(
          s"the disk of ${files.pathOf("")} is full; the feed of source '${manifest.source}' is held back"
        )
        writer.abandon()
        if (awaitRetry()) throw e
        drop() // what was committed makes room
        None
    }

  /** Says whether it is over. */
  private def awaitRetry(): Boolean = locked {
    var left = RetryNanos
    while (!closing && left > 0 && newestCommit <= looked) left = changed.awaitNanos(left)
    closing
  }

  private def publish(group: Vector[RowGroup], blocks: Vector[StoredRows]): Unit = {
    blocks.foreach(index.append) // false once the query is over: the rows are found on the next start
    val durable = SegmentWriter.cursorsOf(group)
    if (durable.nonEmpty) quietly(onDurable(durable))
  }

  /** Deletes the oldest segments whose rows were committed so many batches ago, or weigh too much together. */
  private def drop(): Unit = {
    val (newest, floor) = locked {
      looked = newestCommit
      val kept = commits.length - 1 - settings.retainBatches
      (looked, if (kept >= 0) commits(kept) else -1L)
    }
    def isOld(segment: LogScan.Segment): Boolean = segment.last <= newest &&
      (segment.last <= floor || retainedUpTo(newest) > settings.retainBytes)
    while (writer.dropFirst(isOld)) {}
    measure()
  }

  private def retainedUpTo(end: Long): Long = writer.segments.takeWhile(_.last <= end).map(_.bytes).sum

  private def measure(): Unit = {
    val newest = locked(newestCommit)
    val measured = Sizes(writer.segments.map(_.bytes).sum, retainedUpTo(newest))
    locked { sizes = measured }
  }

  /** Where no lock keeps others away, a newer manifest says that somebody else is the writer now. */
  private def refuseIfReplaced(): Unit = if (!files.canAppend)
    files.list().flatMap(Manifest.epochOf(_)).find(_ > manifest.epoch).foreach { epoch =>
      throw new LogFailedException(
        s"Another driver has taken over ${files.pathOf("")} (epoch $epoch, this one has ${manifest.epoch}): this query stops."
      )
    }
}

private[headwater] object SegmentLog extends Logging {

  /** @param retainBatches
    *   how many committed batches are kept, for a checkpoint that steps back
    * @param retainBytes
    *   how much they may weigh
    * @param segmentBytes
    *   a file that has grown to this is followed by a new one
    */
  final case class Settings(
      codec: Codec,
      retainBatches: Int,
      retainBytes: Long,
      segmentBytes: Long = 64L << 20
  )

  /** In bytes: all segments, and those whose rows are all committed. */
  final case class Sizes(total: Long, retained: Long)

  private val MaxPendingBytes = 16L << 20
  private val RetryNanos = TimeUnit.SECONDS.toNanos(1)
  private val GatherNanos = TimeUnit.MILLISECONDS.toNanos(250)

  /** For what may fail without harm to the rows. */
  private[log] def quietly(step: => Unit): Unit =
    try step
    catch { case NonFatal(e) => logWarning("a step at the side of a log failed", e) }

  private def isFull(e: IOException): Boolean =
    Option(e.getMessage).exists(m =>
      m.contains("No space left on device") || m.contains("Disk quota exceeded")
    )
}

/** The log cannot go on; what was offered stays readable. */
final class LogFailedException(message: String, cause: Throwable = null) extends IOException(message, cause)
