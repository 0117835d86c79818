package headwater.log

import java.io.{Closeable, IOException}
import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.ReentrantLock
import javax.annotation.concurrent.GuardedBy

import scala.concurrent.duration.Deadline
import scala.util.control.NonFatal

import headwater.buffer.Buffer
import headwater.core.{ArrowSchema, RowGroup, StoredRows, Uninterruptibly}
import org.apache.spark.internal.Logging

/** Writes the rows of a feed into segments, and deletes segments that Spark no longer needs.
  *
  * The log has a thread of its own, since `query.stop()` interrupts the query's thread, and an interrupt closes
  * the file that a thread is writing to. The thread takes all row groups that have arrived (a sync group), writes
  * them, syncs them, and only then adds them to the index, from which Spark is offered rows. The next sync group
  * gathers meanwhile.
  *
  * '''What can block:''' [[append]], while more than `MaxPendingBytes` are not durable. The index blocks the
  * log's thread while `logBytes` wait for Spark, and so blocks the feed. A full disk blocks the thread too; it
  * tries again every second.
  *
  * '''What can be lost:''' row groups that are not durable yet, if the process dies. They were offered to nobody,
  * their cursors are not stored, and they were not acknowledged.
  *
  * @param index
  *   receives each block when it is durable
  * @param onDurable
  *   called with durable cursors, by shard
  */
private[headwater] final class SegmentLog(
    files: LogFiles,
    manifest: Manifest,
    scan: LogScan,
    arrowSchema: ArrowSchema,
    settings: SegmentLog.Settings,
    index: Buffer,
    onDurable: Map[Int, String] => Unit,
    folderLock: Closeable
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
  @GuardedBy("lock") private[this] var droppedFor =
    scan.commits.maxOption.getOrElse(-1L) // the newest commit that drop() has handled
  @GuardedBy("lock") private[this] var sizes = Sizes(scan.segments.map(_.bytes).sum, 0L)

  // Used by the log's thread only.
  private[this] val writer = new SegmentWriter(files, manifest, scan, arrowSchema, settings)
  private[this] var lastWrite = System.nanoTime()

  private[this] val thread = new Thread(() => run(), s"headwater-log-${manifest.source}-${manifest.run}")
  thread.setDaemon(true)
  thread.start()

  /** @return false when the log is closed or has failed: the feed must end */
  def append(rowGroup: RowGroup): Boolean = locked {
    while (!closing && error.isEmpty && pendingBytes >= MaxPendingBytes) changed.await()
    val open = !closing && error.isEmpty
    if (open) {
      pending :+= rowGroup
      pendingBytes += rowGroup.byteSize
      changed.signalAll()
    }
    open
  }

  /** All rows that were appended are in the index. */
  def isFlushed: Boolean = locked(pending.isEmpty && !writing)

  def failure: Option[Throwable] = locked(error)

  /** Spark has committed the rows up to `end`. They are retained for a while, see [[Settings]]. */
  def commit(end: Long): Unit = locked {
    if (!commits.lastOption.exists(_ >= end)) {
      commits = (commits :+ end).takeRight(settings.retainBatches + 1)
      changed.signalAll()
    }
  }

  def status: Sizes = locked(sizes)

  /** Writes what was appended, and releases the folder. Waits until the deadline.
    *
    * @return
    *   whether the log is closed
    */
  def close(deadline: Deadline): Boolean = {
    locked {
      closing = true
      changed.signalAll()
    }
    Uninterruptibly.join(thread, deadline)
    !thread.isAlive
  }

  private def locked[T](body: => T): T = {
    lock.lock()
    try body
    finally lock.unlock()
  }

  @GuardedBy("lock") private def newestCommit: Long = commits.lastOption.getOrElse(-1L)

  private def run(): Unit =
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
      quietly(folderLock.close())
      index.wake()
    }

  private def fail(e: Throwable): Unit = {
    logError(s"the log of source '${manifest.source}' cannot go on", e)
    locked {
      error = Some(e)
      changed.signalAll()
    }
  }

  /** The row groups that have arrived; empty when there is only something to delete, None when the log is closed.
    */
  private def nextGroup(): Option[Vector[RowGroup]] = locked {
    while (!closing && pending.isEmpty && newestCommit <= droppedFor) changed.await()
    if (!files.canAppend && !closing) awaitLargerGroup()
    val group = pending
    pending = Vector.empty
    pendingBytes = 0
    writing = true
    changed.signalAll()
    Option.when(group.nonEmpty || !closing)(group)
  }

  /** Where each sync group is a file, there should be few of them. */
  @GuardedBy("lock") private def awaitLargerGroup(): Unit = {
    var left = lastWrite + GatherNanos - System.nanoTime()
    while (!closing && pendingBytes < MaxPendingBytes && left > 0) left = changed.awaitNanos(left)
  }

  /** Retries until there is room for the sync group. */
  private def write(group: Vector[RowGroup]): Unit = {
    var blocks = attempt(group)
    while (blocks.isEmpty) blocks = attempt(group)
    publish(group, blocks.get)
  }

  /** None while the disk is full. */
  private def attempt(group: Vector[RowGroup]): Option[Vector[StoredRows]] =
    try {
      failIfReplaced()
      val blocks = writer.write(group, locked(newestCommit))
      failIfReplaced() // a driver that took over meanwhile may not have seen this sync group
      lastWrite = System.nanoTime()
      updateSizes()
      Some(blocks)
    } catch {
      case e: IOException if isFull(e) && !e.isInstanceOf[LogFailedException] =>
        logWarning(
          s"the disk of ${files.pathOf("")} is full; the feed of source '${manifest.source}' is held back"
        )
        writer.abandon()
        if (awaitRetry()) throw e
        drop() // deleting committed rows makes room
        None
    }

  /** Returns whether the log is closing. */
  private def awaitRetry(): Boolean = locked {
    var left = RetryNanos
    while (!closing && left > 0 && newestCommit <= droppedFor) left = changed.awaitNanos(left)
    closing
  }

  private def publish(group: Vector[RowGroup], blocks: Vector[StoredRows]): Unit = {
    blocks.foreach(index.append) // false after the query has ended: the next start finds the rows
    val durable = SegmentWriter.cursorsOf(group)
    if (durable.nonEmpty) quietly(onDurable(durable))
  }

  /** Deletes the oldest committed segments: beyond `retainBatches`, or beyond `retainBytes` in total. */
  private def drop(): Unit = {
    val (newest, floor) = locked {
      droppedFor = newestCommit
      val kept = commits.length - 1 - settings.retainBatches
      (droppedFor, if (kept >= 0) commits(kept) else -1L)
    }
    def isOld(segment: LogScan.Segment): Boolean = segment.last <= newest &&
      (segment.last <= floor || retainedUpTo(newest) > settings.retainBytes)
    while (writer.dropFirst(isOld)) {}
    updateSizes()
  }

  private def retainedUpTo(end: Long): Long = writer.segments.takeWhile(_.last <= end).map(_.bytes).sum

  private def updateSizes(): Unit = {
    val newest = locked(newestCommit)
    val updated = Sizes(writer.segments.map(_.bytes).sum, retainedUpTo(newest))
    locked { sizes = updated }
  }

  /** Without a lock, a newer manifest means that another driver is the writer now. */
  private def failIfReplaced(): Unit = if (!files.canAppend)
    files.list().flatMap(Manifest.epochOf(_)).find(_ > manifest.epoch).foreach { epoch =>
      throw new LogFailedException(
        s"Another driver has taken over ${files.pathOf("")} (epoch $epoch, this one has ${manifest.epoch}): this query stops."
      )
    }
}

private[headwater] object SegmentLog extends Logging {

  /** @param retainBatches
    *   how many committed batches are retained, for a checkpoint that is set back
    * @param retainBytes
    *   the maximum size of retained segments
    * @param segmentBytes
    *   a segment of this size is followed by a new one
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

  /** For steps that may fail without harm to the rows. */
  private[log] def quietly(step: => Unit): Unit =
    try step
    catch { case NonFatal(e) => logWarning("a step at the side of a log failed", e) }

  private def isFull(e: IOException): Boolean =
    Option(e.getMessage).exists(m =>
      m.contains("No space left on device") || m.contains("Disk quota exceeded")
    )
}

/** The log cannot continue. Rows that were offered stay readable. */
final class LogFailedException(message: String, cause: Throwable = null) extends IOException(message, cause)
