package headwater.buffer

import java.util.concurrent.locks.ReentrantLock
import javax.annotation.concurrent.GuardedBy

import scala.collection.mutable

import headwater.core.{Arrivals, LostRows, Rows, Slice}

/** Holds rows between the feed that appends them and the commit that drops them: in memory, or as an index of
  * rows in files.
  *
  * Rows are numbered by their seq. Three marks move along the sequence, never backwards:
  *
  * {{{
  *   dropped by commit │ taken by a batch, not yet committed │ waiting for a batch │ not yet read
  *                 firstHeld                              taken                 latest
  * }}}
  *
  * Windows are `(start, end]`. The same window returns the same rows for as long as they are held. Thread-safe.
  *
  * '''What can block:''' [[append]], while the waiting rows are at the cap. Rows that a batch has taken do not
  * count against the cap. Spark commits a batch only after it has planned the next one, and planning needs new
  * rows: a cap that counted taken rows would wait for a commit that waits for it.
  *
  * '''What can be lost:''' nothing while the buffer lives; everything with the process.
  *
  * @param first
  *   the seq of the first row
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
  private[this] val blockedOrFinished = lock.newCondition()
  private[this] val addedOrClosed = lock.newCondition()

  @GuardedBy("lock") private[this] val chunks = mutable.ArrayDeque.empty[Chunk]
  @GuardedBy("lock") private[this] var firstHeld = first
  @GuardedBy("lock") private[this] var taken = first - 1
  @GuardedBy("lock") private[this] var latestSeq = first - 1
  @GuardedBy("lock") private[this] var restored = first - 1 // the newest row of an earlier run
  @GuardedBy("lock") private[this] val arrivals = new Arrivals(nanoTime)
  @GuardedBy("lock") private[this] var addedBytes = 0L
  @GuardedBy("lock") private[this] var blockedNanos = 0L
  @GuardedBy("lock") private[this] var blockedSince = 0L
  @GuardedBy("lock") private[this] var blockedAppends = 0
  @GuardedBy("lock") private[this] var closed = false

  /** Appends the rows of one Arrow batch, in order. Blocks while there is no room; a batch that does not fit as a
    * whole is appended in pieces. A single row above the cap is accepted when nothing else is waiting.
    *
    * @return
    *   false when the buffer was closed before all rows were in: the feed must end
    */
  def append(rows: Rows): Boolean = locked {
    var from = 0
    while (!closed && from < rows.count) {
      val until = from + rowsThatFit(rows, from)
      if (until == from) awaitRoom()
      else {
        val slice = Slice(rows, from, until)
        add(slice)
        arrivals.add(slice.count.toLong, slice.byteSize)
        from = until
      }
    }
    from == rows.count
  }

  /** Adds rows that an earlier run left, before anything else. Never blocks. */
  def restore(rows: Rows): Unit = locked {
    add(Slice.whole(rows))
    restored = latestSeq
  }

  /** Adds rows that an earlier run has lost, like [[restore]]. */
  def restore(lost: LostRows): Unit = locked {
    chunks += Chunk(latestSeq + 1, lost.last, Left(lost.why), addedBytes, nanoTime())
    latestSeq = lost.last
    restored = latestSeq
    addedOrClosed.signalAll()
  }

  /** Whether the buffer ever had a row. */
  def hasBegun: Boolean = locked(latestSeq >= first)

  /** The seq of the newest row; one below the first seq while there is none. */
  def latest: Long = locked(latestSeq)

  /** The lowest seq that was not dropped. */
  def firstNotDropped: Long = locked(firstHeld)

  /** A feed is waiting for room. */
  def isBlocked: Boolean = locked(blocked)

  /** Counts as a feed that waits for room. For rows that cannot be stored yet, so that nobody waits for them. */
  def whileBlocked[T](wait: => T): T = {
    locked(beginBlocked())
    try wait
    finally locked(endBlocked())
  }

  def isClosed: Boolean = locked(closed)

  /** The furthest end of a window that begins at `start` and respects both limits; `start` when no row is beyond
    * it. One row is always allowed, whatever its size: otherwise the stream would stop before it for ever.
    * `start` must not be below the last commit.
    */
  def endWithin(start: Long, maxRows: Long, maxBytes: Long): Long = locked {
    val byRows = if (maxRows < latestSeq - start) start + maxRows else latestSeq
    if (byRows <= start) start
    else if (maxBytes == Long.MaxValue) byRows
    else math.min(byRows, math.max(start + 1, lastSeqWithin(bytesUpTo(start) + maxBytes)))
  }

  /** The rows of `(start, end]`. If some of them are gone (dropped, or older than this buffer), the window states
    * up to which row.
    */
  def read(start: Long, end: Long): Window = locked {
    require(end <= latestSeq, s"the window ($start, $end] ends beyond the latest row, $latestSeq")
    val from = math.max(start + 1, firstHeld)
    val slices = Vector.newBuilder[Slice]
    val lost = Vector.newBuilder[LostRows]
    if (from <= end) {
      var i = indexOf(from)
      while (i < chunks.length && chunks(i).first <= end) {
        val chunk = chunks(i)
        chunk.rows match {
          case Right(slice) => slices += chunk.part(slice, from, end)
          case Left(why) => lost += LostRows(math.max(from, chunk.first), math.min(end, chunk.last), why)
        }
        i += 1
      }
    }
    Window(slices.result(), lost.result(), goneUpTo = math.max(start, math.min(firstHeld - 1, end)))
  }

  /** A batch has taken all rows up to `end`: they no longer count against the cap. */
  def take(end: Long): Unit = locked {
    if (end > taken) {
      taken = math.min(end, latestSeq)
      roomOrClosed.signalAll()
    }
  }

  /** Drops all rows up to `end`. A commit below an earlier one has no effect. */
  def commit(end: Long): Unit = locked {
    require(end <= latestSeq, s"commit of $end, beyond the latest row, $latestSeq")
    take(end)
    firstHeld = math.max(firstHeld, end + 1)
    while (chunks.nonEmpty && chunks.head.last < firstHeld) chunks.removeHead()
  }

  /** Waits until the feed is blocked by a full buffer, `isFinished` holds, the buffer is closed, or the time is
    * up. [[wake]] makes it check `isFinished` again.
    */
  def awaitCatchUp(timeoutNanos: Long)(isFinished: => Boolean): Unit = locked {
    var left = timeoutNanos
    while (!closed && !isFinished && !blocked && left > 0) left = blockedOrFinished.awaitNanos(left)
  }

  def wake(): Unit = locked(blockedOrFinished.signalAll())

  /** Waits for a row after `seq`: until there is one, the buffer is closed, or the time is up.
    *
    * @return
    *   the seq of the newest row, or `seq`
    */
  def awaitBeyond(seq: Long, timeoutNanos: Long): Long = locked {
    var left = timeoutNanos
    while (!closed && latestSeq <= seq && left > 0) left = addedOrClosed.awaitNanos(left)
    math.max(seq, latestSeq)
  }

  /** Lets every blocked call return, and every later [[append]] return false. Held rows stay readable. */
  def close(): Unit = locked {
    closed = true
    roomOrClosed.signalAll()
    blockedOrFinished.signalAll()
    addedOrClosed.signalAll()
  }

  /** Drops all rows, since an application may keep a stopped query. Returns how many rows were still waiting. */
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
      lagNanos = if (waiting == 0) 0L else now - chunks(indexOf(taken + 1)).addedAt,
      arrivals = arrivals.status
    )
  }

  private def locked[T](body: => T): T = {
    lock.lock() // not lockInterruptibly: stop() runs on an interrupted thread
    try body
    finally lock.unlock()
  }

  /** A feed that has room but has not woken up yet is not blocked. */
  @GuardedBy("lock") private def blocked: Boolean = blockedAppends > 0 && taken < latestSeq

  @GuardedBy("lock") private def waitingBytes: Long = addedBytes - bytesUpTo(taken)

  /** How many rows of the batch, from row `from` on, fit now. */
  @GuardedBy("lock") private def rowsThatFit(rows: Rows, from: Int): Int = {
    val waiting = latestSeq - taken
    val byRows = math.min(maxRows - waiting, (rows.count - from).toLong).toInt
    val room = maxBytes - waitingBytes
    var fit = byRows
    if (Slice(rows, from, rows.count).byteSize > room) {
      // Sizes are spread evenly, so the estimate is at most one row off; the loop corrects it.
      fit = math
        .min(byRows.toDouble, math.max(room, 0L).toDouble * rows.count / math.max(1L, rows.byteSize) + 1)
        .toInt
      while (fit > 0 && rows.bytesOfFirst(from + fit) - rows.bytesOfFirst(from) > room) fit -= 1
    }
    if (fit <= 0 && waiting == 0) 1 else math.max(fit, 0)
  }

  @GuardedBy("lock") private def awaitRoom(): Unit = {
    beginBlocked()
    try roomOrClosed.await()
    finally endBlocked()
  }

  @GuardedBy("lock") private def beginBlocked(): Unit = {
    if (blockedAppends == 0) blockedSince = nanoTime()
    blockedAppends += 1
    blockedOrFinished.signalAll()
  }

  @GuardedBy("lock") private def endBlocked(): Unit = {
    blockedAppends -= 1
    if (blockedAppends == 0) blockedNanos += nanoTime() - blockedSince
  }

  @GuardedBy("lock") private def add(slice: Slice): Unit = {
    chunks += Chunk(latestSeq + 1, latestSeq + slice.count, Right(slice), addedBytes, nanoTime())
    latestSeq += slice.count
    addedBytes += slice.byteSize
    addedOrClosed.signalAll()
  }

  /** The bytes added up to and including `seq`, since the buffer began. */
  @GuardedBy("lock") private def bytesUpTo(seq: Long): Long =
    if (seq >= latestSeq) addedBytes
    else if (chunks.isEmpty || seq < chunks.head.first) chunks.headOption.fold(addedBytes)(_.bytesBefore)
    else chunks(indexOf(seq)).bytesUpTo(seq)

  /** The last seq up to which at most `byteSize` bytes were added. */
  @GuardedBy("lock") private def lastSeqWithin(byteSize: Long): Long =
    if (byteSize < 0 || byteSize >= addedBytes) latestSeq // negative: the sum overflowed
    else {
      val chunk = chunks(lastIndexWhere(_.bytesBefore <= byteSize))
      var low = chunk.first - 1
      var high = chunk.last
      while (low < high) {
        val middle = low + (high - low + 1) / 2
        if (chunk.bytesUpTo(middle) <= byteSize) low = middle else high = middle - 1
      }
      low
    }

  /** The chunk that holds `seq`. */
  @GuardedBy("lock") private def indexOf(seq: Long): Int = lastIndexWhere(_.first <= seq)

  /** Binary search: the last chunk for which `holds` is true. It must be true for all chunks before it. */
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

  /** The rows of a window, of which those up to and including `goneUpTo` are gone. Nothing is gone when
    * `goneUpTo` is its start.
    */
  final case class Window(slices: Vector[Slice], lost: Vector[LostRows], goneUpTo: Long) {

    /** The number of rows, without lost ones. */
    def count: Long = slices.iterator.map(_.count.toLong).sum
  }

  /** @param lagNanos how long the oldest waiting row has waited */
  final case class Status(
      waitingRows: Long,
      waitingBytes: Long,
      latest: Long,
      readRows: Long,
      blockedNanos: Long,
      lagNanos: Long,
      arrivals: Arrivals.Status
  )

  /** @param rows or why they are lost */
  private final case class Chunk(
      first: Long,
      last: Long,
      rows: Either[String, Slice],
      bytesBefore: Long,
      addedAt: Long
  ) {
    def bytesUpTo(seq: Long): Long = bytesBefore + rows.fold(
      _ => 0L,
      slice =>
        slice.rows.bytesOfFirst(slice.from + (seq - first + 1).toInt) - slice.rows.bytesOfFirst(slice.from)
    )

    def part(slice: Slice, from: Long, end: Long): Slice =
      Slice(
        slice.rows,
        slice.from + math.max(0L, from - first).toInt,
        slice.until - math.max(0L, last - end).toInt,
        math.max(from, first)
      )
  }
}
