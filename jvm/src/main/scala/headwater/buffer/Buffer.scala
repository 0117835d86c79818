package headwater.buffer

import java.util.concurrent.locks.ReentrantLock
import javax.annotation.concurrent.GuardedBy

import scala.collection.mutable

import headwater.core.{LostRows, Rows, Slice}

/** Where rows wait for Spark between the feed that adds them and the commit that drops them: in memory, or as an index of
  * what lies in files.
  *
  * Rows are numbered by their seq. All of them lie on one line, and three marks move along it, never backwards:
  * {{{
  *   dropped by commit │ taken by a batch, not yet committed │ waiting for a batch │ not yet read
  *                 firstHeld                              taken                 latest
  * }}}
  * Windows are `(start, end]`: without `start`, with `end`. The same window gives the same rows for as long as they are
  * held. Any number of threads may call any method.
  *
  * '''What can block:''' [[append]], while the waiting rows are at the cap. Only waiting rows count. Rows that a batch
  * has taken do not, since Spark commits a batch only once it has planned the next one, and that needs new rows: a cap
  * that counted taken rows would wait for ever for a commit that waits for it.
  *
  * '''What can be lost:''' nothing while the buffer lives; all of it with the process.
  *
  * @param first
  *   the seq that the first row gets
  * @param nanoTime
  *   a monotonic clock
  */
private[headwater] final class Buffer(
    maxRows: Long,
    maxBytes: Long,
    first: Long,
    nanoTime: () => Long = () => System.nanoTime()
) {
  import Buffer._
  require(maxRows > 0 && maxBytes > 0 && first >= 0, s"maxRows $maxRows, maxBytes $maxBytes, first $first")

  private[this] val lock = new ReentrantLock
  private[this] val roomOrClosed = lock.newCondition()
  private[this] val blockedOrOver = lock.newCondition()

  @GuardedBy("lock") private[this] val chunks = mutable.ArrayDeque.empty[Chunk]
  @GuardedBy("lock") private[this] var firstHeld = first
  @GuardedBy("lock") private[this] var taken = first - 1
  @GuardedBy("lock") private[this] var latestSeq = first - 1
  @GuardedBy("lock") private[this] var restored = first - 1 // the newest row that was there before
  @GuardedBy("lock") private[this] var addedBytes = 0L
  @GuardedBy("lock") private[this] var blockedNanos = 0L
  @GuardedBy("lock") private[this] var blockedSince = 0L
  @GuardedBy("lock") private[this] var blockedAppends = 0
  @GuardedBy("lock") private[this] var closed = false

  /** Adds the rows of one Arrow batch, in order. Blocks while there is no room; a batch that does not fit whole goes in
    * piece by piece. A single row that is larger than the cap goes in when nothing else is waiting.
    *
    * @return
    *   false when the buffer was closed before all rows were in: the feed has to end
    */
  def append(rows: Rows): Boolean = locked {
    var from = 0
    while (!closed && from < rows.count) {
      val until = from + rowsThatFit(rows, from)
      if (until == from) awaitRoom()
      else {
        add(Slice(rows, from, until))
        from = until
      }
    }
    from == rows.count
  }

  /** Puts in what was there before this buffer, at its very beginning: nothing of it blocks. */
  def restore(rows: Rows): Unit = locked {
    add(Slice.whole(rows))
    restored = latestSeq
  }

  /** Whether there was ever a row in it. */
  def hasBegun: Boolean = locked(latestSeq >= first)

  /** The seq of the newest row; one below the first seq while there was none. */
  def latest: Long = locked(latestSeq)

  /** The lowest seq that was not dropped. */
  def firstNotDropped: Long = locked(firstHeld)

  /** A feed waits for room. */
  def isBlocked: Boolean = locked(blocked)

  /** The furthest end of a window that begins at `start` and respects both limits; `start` when no row is beyond it. One
    * row is always allowed, whatever it weighs, or the stream would stop for ever before it. `start` must not lie below
    * the last commit.
    */
  def endWithin(start: Long, maxRows: Long, maxBytes: Long): Long = locked {
    val byRows = if (maxRows < latestSeq - start) start + maxRows else latestSeq
    if (byRows <= start) start
    else if (maxBytes == Long.MaxValue) byRows
    else math.min(byRows, math.max(start + 1, lastSeqWithin(weightUpTo(start) + maxBytes)))
  }

  /** The rows of `(start, end]`. When some are gone (dropped, or older than this buffer), says up to where. */
  def read(start: Long, end: Long): Window = locked {
    require(end <= latestSeq, s"the window ($start, $end] ends beyond the latest row, $latestSeq")
    val from = math.max(start + 1, firstHeld)
    val slices = Vector.newBuilder[Slice]
    if (from <= end) {
      var i = indexOf(from)
      while (i < chunks.length && chunks(i).first <= end) {
        slices += chunks(i).between(from, end)
        i += 1
      }
    }
    Window(slices.result(), goneUpTo = math.max(start, math.min(firstHeld - 1, end)))
  }

  /** A batch has taken all rows up to `end`: they no longer count against the cap. */
  def take(end: Long): Unit = locked {
    if (end > taken) {
      taken = math.min(end, latestSeq)
      roomOrClosed.signalAll()
    }
  }

  /** Drops all rows up to `end`. A commit below an earlier one changes nothing. */
  def commit(end: Long): Unit = locked {
    require(end <= latestSeq, s"commit of $end, beyond the latest row, $latestSeq")
    take(end)
    firstHeld = math.max(firstHeld, end + 1)
    while (chunks.nonEmpty && chunks.head.last < firstHeld) chunks.removeHead()
  }

  /** Waits until the feed has no more to give for now: it is blocked by a full buffer, or `isOver` holds. Or until the
    * buffer is closed or the time is up. [[wake]] makes it look at `isOver` again.
    */
  def awaitCatchUp(timeoutNanos: Long)(isOver: => Boolean): Unit = locked {
    var left = timeoutNanos
    while (!closed && !isOver && !blocked && left > 0) left = blockedOrOver.awaitNanos(left)
  }

  def wake(): Unit = locked(blockedOrOver.signalAll())

  /** Lets every blocked call return, and every later [[append]] return false. What is held stays readable. */
  def close(): Unit = locked {
    closed = true
    roomOrClosed.signalAll()
    blockedOrOver.signalAll()
  }

  /** Forgets all rows, at the very end: a query that is stopped may be kept for long. Says how many still waited. */
  def clear(): Long = locked {
    val waiting = latestSeq - taken
    commit(latestSeq)
    waiting
  }

  def status: Status = locked {
    val now = nanoTime()
    val waiting = latestSeq - taken
    Status(
      waitingRows = waiting,
      waitingBytes = waitingBytes,
      latest = latestSeq,
      readRows = latestSeq - restored,
      blockedNanos = blockedNanos + (if (blockedAppends > 0) now - blockedSince else 0L),
      lagNanos = if (waiting == 0) 0L else now - chunks(indexOf(taken + 1)).addedAt
    )
  }

  private def locked[T](body: => T): T = {
    lock.lock() // not interruptibly: stop() has to get through on an interrupted thread
    try body
    finally lock.unlock()
  }

  /** A feed that was given room and has not woken yet is blocked no more. */
  @GuardedBy("lock") private def blocked: Boolean = blockedAppends > 0 && taken < latestSeq

  @GuardedBy("lock") private def waitingBytes: Long = addedBytes - weightUpTo(taken)

  /** How many rows of the batch, from row `from` on, may go in now. */
  @GuardedBy("lock") private def rowsThatFit(rows: Rows, from: Int): Int = {
    val waiting = latestSeq - taken
    val byRows = math.min(maxRows - waiting, (rows.count - from).toLong).toInt
    val room = maxBytes - waitingBytes
    var fit = byRows
    if (Slice(rows, from, rows.count).weight > room) {
      // Weights are spread evenly, so this is at most one row off; the loop puts that right.
      fit = math
        .min(byRows.toDouble, math.max(room, 0L).toDouble * rows.count / math.max(1L, rows.weight) + 1)
        .toInt
      while (fit > 0 && rows.weightOfFirst(from + fit) - rows.weightOfFirst(from) > room) fit -= 1
    }
    if (fit <= 0 && waiting == 0) 1 else math.max(fit, 0)
  }

  @GuardedBy("lock") private def awaitRoom(): Unit = {
    if (blockedAppends == 0) blockedSince = nanoTime()
    blockedAppends += 1
    blockedOrOver.signalAll()
    try roomOrClosed.await()
    finally {
      blockedAppends -= 1
      if (blockedAppends == 0) blockedNanos += nanoTime() - blockedSince
    }
  }

  @GuardedBy("lock") private def add(slice: Slice): Unit = {
    chunks += Chunk(latestSeq + 1, slice, addedBytes, nanoTime())
    latestSeq += slice.count
    addedBytes += slice.weight
  }

  /** What was added up to and with `seq`, in bytes since the buffer began. */
  @GuardedBy("lock") private def weightUpTo(seq: Long): Long =
    if (seq >= latestSeq) addedBytes
    else if (chunks.isEmpty || seq < chunks.head.first) chunks.headOption.fold(addedBytes)(_.bytesBefore)
    else chunks(indexOf(seq)).weightUpTo(seq)

  /** The last seq up to which no more than `weight` bytes were added. */
  @GuardedBy("lock") private def lastSeqWithin(weight: Long): Long =
    if (weight < 0 || weight >= addedBytes) latestSeq // below zero: the sum overflowed
    else {
      val chunk = chunks(lastIndexWhere(_.bytesBefore <= weight))
      var low = chunk.first - 1
      var high = chunk.last
      while (low < high) {
        val middle = low + (high - low + 1) / 2
        if (chunk.weightUpTo(middle) <= weight) low = middle else high = middle - 1
      }
      low
    }

  /** The chunk that holds `seq`. */
  @GuardedBy("lock") private def indexOf(seq: Long): Int = lastIndexWhere(_.first <= seq)

  /** Binary search: the last chunk for which a condition holds that holds for all chunks before it. */
  @GuardedBy("lock") private def lastIndexWhere(holds: Chunk => Boolean): Int = {
    var low = 0
    var high = chunks.length - 1
    while (low < high) {
      val middle = (low + high + 1) >>> 1
      if (holds(chunks(middle))) low = middle else high = middle - 1
    }
    low
  }
}

private[headwater] object Buffer {

  /** The rows of a window, those up to and with `goneUpTo` being gone. Nothing is gone when `goneUpTo` is its start. */
  final case class Window(slices: Vector[Slice], goneUpTo: Long) {

    /** How many rows it has, without those that are lost. */
    def count: Long = slices.iterator.filterNot(_.rows.isInstanceOf[LostRows]).map(_.count.toLong).sum

    /** Ranges within it that are lost: after which row, up to which, and why. */
    def lost: Vector[(Long, Long, String)] = {
      var before = goneUpTo
      slices.flatMap { slice =>
        val range = (before, before + slice.count)
        before = range._2
        Option(slice.rows).collect { case LostRows(_, why) => (range._1, range._2, why) }
      }
    }
  }

  /** @param lagNanos how long the oldest waiting row has waited */
  final case class Status(
      waitingRows: Long,
      waitingBytes: Long,
      latest: Long,
      readRows: Long,
      blockedNanos: Long,
      lagNanos: Long
  )

  private final case class Chunk(first: Long, slice: Slice, bytesBefore: Long, addedAt: Long) {
    def last: Long = first + slice.count - 1

    def weightUpTo(seq: Long): Long = {
      val rows = slice.rows
      bytesBefore + rows.weightOfFirst(slice.from + (seq - first + 1).toInt) - rows.weightOfFirst(slice.from)
    }

    def between(from: Long, end: Long): Slice =
      Slice(
        slice.rows,
        slice.from + math.max(0L, from - first).toInt,
        slice.until - math.max(0L, last - end).toInt
      )
  }
}
