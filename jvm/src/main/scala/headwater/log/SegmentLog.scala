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
  * log's thread while `logBytes` wait for Spark, and so blocks the feed.
  *
  * '''A full disk''' blocks the thread too. Spark writes offsets, commits and state to the same disk, and the query
  * ends if it cannot, so a reserve is left for them: rows are written only while more than [[reserveOf]] is free.
  * Committed segments make room, the oldest first, even if they would be retained. Spark commits a batch only
  * after it has planned the next one, and that takes a row: when no row waits, one row group may use half of the
  * reserve. So may the last row groups of a query that stops.
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
  private[this] var isHeldBack = false // the disk is full, and that was logged

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
      if (locked(newestCommit) > writer.committed) writeCommit()
    } catch { case e: Throwable => fail(e) }
    finally {
      writer.close()
      quietly(folderLock.close())
      index.wake()
    }

  private def fail(e: Throwable): Unit = {
    if (index.isClosed) logWarning(s"the log of source '${manifest.source}' has ended: ${e.getMessage}")
    else logError(s"the log of source '${manifest.source}' cannot go on", e)
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

  /** Blocks while the disk is full. */
  private def write(group: Vector[RowGroup]): Unit = {
    var left = group
    while (left.nonEmpty) {
      val part = left.take(roomFor(left))
      val blocks = if (part.isEmpty) None else attempt(part)
      blocks.foreach(publish(part, _))
      if (blocks.nonEmpty) left = left.drop(part.length) else holdBack(left, isRefused = part.nonEmpty)
    }
    if (isHeldBack) logInfo(s"the disk of ${files.pathOf("")} has room again")
    isHeldBack = false
  }

  /** How many of the row groups can be written now. */
  private def roomFor(group: Vector[RowGroup]): Int = files.space.fold(group.length) { space =>
    val reserve = reserveOf(space)
    val ends = group.iterator.scanLeft(0L)(_ + sizeOf(_)).drop(1)
    val fit = ends.takeWhile(_ <= space.usable - reserve).length
    val mayUseReserve = index.status.waitingRows == 0 || index.isClosed
    if (fit == 0 && mayUseReserve && sizeOf(group.head) <= space.usable - reserve / 2) 1 else fit
  }

  /** None when the disk is full. */
  private def attempt(group: Vector[RowGroup]): Option[Vector[StoredRows]] =
    try {
      failIfReplaced()
      val blocks = writer.write(group, locked(newestCommit))
      failIfReplaced() // a driver that took over meanwhile may not have seen this sync group
      lastWrite = System.nanoTime()
      updateSizes()
      Some(blocks)
    } catch { case e: IOException if isFull(e) => None }

  /** Deletes what can be deleted, or waits. The next rows begin a segment, so that those before it can be deleted.
    *
    * @param isRefused
    *   the file system did not take the row groups, although it may report enough space
    */
  private def holdBack(group: Vector[RowGroup], isRefused: Boolean): Unit = {
    writer.abandon()
    if (!isHeldBack)
      logWarning(
        s"the disk of ${files.pathOf("")} is full; the feed of source '${manifest.source}' is held back until batches " +
          "are committed, or space is freed"
      )
    isHeldBack = true
    drop()
    val newest = locked(newestCommit)
    def dropOldest(): Boolean = writer.dropFirst(_.last <= newest)
    var isFreed = isRefused && dropOldest()
    while (roomFor(group) == 0 && dropOldest()) isFreed = true
    if (isFreed) updateSizes()
    else if (index.whileBlocked(awaitRetry()) && (isRefused || roomFor(group) == 0)) {
      val rows = group.flatMap(_.rows).map(_.count.toLong).sum
      throw new LogFailedException(
        s"The disk of ${files.pathOf("")} is full, and the log ends before its last $rows rows are durable. Free space on " +
          "this disk."
      )
    }
  }

  /** Returns whether the log has to end. */
  private def awaitRetry(): Boolean = {
    val isClosing = locked {
      var left = RetryNanos
      while (!closing && left > 0 && newestCommit <= droppedFor) left = changed.awaitNanos(left)
      closing
    }
    isClosing || index.isClosed
  }

  /** At the end. Spark has the position too, so a full disk does no harm. */
  private def writeCommit(): Unit =
    try writer.write(Vector.empty, locked(newestCommit))
    catch { case e: IOException if isFull(e) => writer.abandon() }

  /** Acknowledges first: the rows are durable, and the index blocks while it is full. */
  private def publish(group: Vector[RowGroup], blocks: Vector[StoredRows]): Unit = {
    val durable = SegmentWriter.cursorsOf(group)
    if (durable.nonEmpty) quietly(onDurable(durable))
    blocks.foreach(index.append) // false after the query has ended: the next start finds the rows
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
  private val RetryNanos = TimeUnit.MILLISECONDS.toNanos(250)
  private val GatherNanos = TimeUnit.MILLISECONDS.toNanos(250)

  /** For steps that may fail without harm to the rows. */
  private[log] def quietly(step: => Unit): Unit =
    try step
    catch { case NonFatal(e) => logWarning("a step at the side of a log failed", e) }

  /** What the log leaves free on its disk, for Spark's own files. */
  private[log] def reserveOf(space: LogFiles.Space): Long = math.min(64L << 20, space.total / 8)

  /** At most: compression makes rows smaller, and few of them a little larger. */
  private def sizeOf(rowGroup: RowGroup): Long =
    rowGroup.byteSize + rowGroup.cursor.fold(0L)(
      _.json.length.toLong
    ) + FrameBytes * (rowGroup.rows.length + 1)

  private val FrameBytes = 128L

  /** A failed sync is something else: it is never retried. */
  private def isFull(e: IOException): Boolean = !e.isInstanceOf[LogFailedException] && LogFiles.isFull(e)
}

/** The log cannot continue. Rows that were offered stay readable. */
final class LogFailedException(message: String, cause: Throwable = null) extends IOException(message, cause)
