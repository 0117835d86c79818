package headwater.buffer

import java.util.concurrent.TimeUnit.NANOSECONDS
import javax.annotation.concurrent.GuardedBy

import scala.concurrent.duration._

import headwater.core._
import headwater.task.PlannedRows
import headwater.{FeedFailedException, InvalidOffsetException}
import org.apache.spark.internal.Logging

/** A running feed as a stream: its rows wait in a [[Store]] until their batch is committed.
  *
  * @param openStore
  *   opens the store at the position that Spark has, if any
  * @param newFeed
  *   creates the feed for a store
  * @param rowsLostInTasks
  *   how many rows tasks found damaged and skipped
  */
private[headwater] final class BufferedStream(
    override val name: String,
    override val description: String,
    options: BufferedOptions,
    openStore: Option[SeqOffset] => Store,
    newFeed: Store => Feed,
    rowsLostInTasks: () => Long,
    nanoTime: () => Long = () => System.nanoTime()
) extends RowStream[StoredBatch]
    with Logging {
  import BufferedStream._

  private[this] val dataLoss = new DataLoss(name, options.failOnDataLoss)

  @GuardedBy("this") private[this] var started: Option[Running] = None
  @GuardedBy("this") private[this] var stopped = false
  @GuardedBy("this") private[this] var planned =
    Vector.empty[(Long, Long)] // the end of each planned batch, and the id of its rows in PlannedRows
  @GuardedBy("this") private[this] var forAvailableNow = false
  @GuardedBy("this") private[this] var fixedEnd: Option[Long] = None
  @GuardedBy("this") private[this] var lastBatchAt = nanoTime()
  @GuardedBy("this") private[this] var rowsInBatch = 0L

  override def open(known: Position): Unit = synchronized {
    if (started.isEmpty) {
      if (stopped) throw new IllegalStateException(s"Source '$name' is stopped")
      val store = openStore(offsetOf(known))
      started = Some(
        Running(store, new FeedThread(feedFor(store), store, s"headwater-feed-$name-${store.run}"))
      )
    }
  }

  override def parse(json: String): SeqOffset = {
    val offset = SeqOffset.parse(json)
    OffsetJson.checkSource(offset.source, name, json)
    offset
  }

  override def latest(position: Position, limit: Admission): Option[StreamOffset] = {
    val from = seqOf(position)
    val Running(store, thread) = running
    val buffer = store.buffer
    synchronized { rowsInBatch = 0 }
    buffer.take(from) // after a restart no plan has done so
    val bound = if (synchronized(forAvailableNow)) endOfAvailableNow() else buffer.latest
    val end = math.min(bound, buffer.endWithin(from, limit.maxRows, limit.maxBytes))
    // Checked before buffer.latest is read: rows that the feed appended before it failed must be read first.
    failure.filter(_ => from >= buffer.latest).foreach(throw _)
    Option.unless(end <= from || isTooFew(bound - from, limit, buffer, thread))(offsetIn(store, end))
  }

  override def newest: Option[StreamOffset] = synchronized(started)
    .map(_.store)
    .filter(_.buffer.hasBegun)
    .map(store => offsetIn(store, store.buffer.latest))

  override def fixEnd(): Unit = synchronized { forAvailableNow = true }

  override def plan(position: Position, end: StreamOffset): StoredBatch = {
    val from = seqOf(position)
    val to = seqOffset(end)
    if (to.seq < from)
      throw new InvalidOffsetException(
        s"Source '$name' was asked for a batch that ends before it begins: from $position to $end"
      )
    val store = running.store
    val window =
      if (to.run == store.run) store.buffer.read(from, to.seq)
      else Buffer.Window(Vector.empty, goneUpTo = to.seq)
    store.buffer.take(to.seq)
    val goneUpTo = window.goneUpTo // not the window itself: the plan must not hold its rows
    val lost = window.lost
    val rowsId = PlannedRows.put(window.slices)
    synchronized {
      planned = planned :+ (to.seq -> rowsId)
      lastBatchAt = nanoTime()
      rowsInBatch = window.count
    }
    if (synchronized(stopped)) dropPlanned(upTo = Long.MaxValue)
    StoredBatch(
      rowsId,
      needsHadoop = window.slices.exists(_.rows.needsHadoop),
      reportLosses = () => {
        if (goneUpTo > from) dataLoss.report(from, goneUpTo, lossReason(to, store))
        lost.foreach { case (after, upTo, why) => dataLoss.report(after, upTo, why) }
      }
    )
  }

  override def live(position: Position): LiveRows = new LiveRows {
    private[this] val buffer = running.store.buffer
    private[this] var read = seqOf(position)

    override def await(timeout: FiniteDuration): Seq[Slice] = {
      val end = buffer.awaitBeyond(read, timeout.toNanos)
      val window = buffer.read(read, end)
      if (window.goneUpTo > read)
        dataLoss.report(read, window.goneUpTo, "they were dropped when a later batch was committed")
      buffer.take(end)
      read = end
      window.slices
    }
  }

  override def commit(end: StreamOffset): Unit = {
    val to = seqOffset(end)
    val store = running.store
    val buffer = store.buffer
    if (to.seq > buffer.latest)
      throw new InvalidOffsetException(
        s"Source '$name' was told to commit $end, but its latest row is ${buffer.latest}. Nothing was dropped."
      )
    if (to.seq + 1 < buffer.firstNotDropped && to.run == store.run)
      logWarning(s"$description: commit of $end after a later one, ignored")
    store.commit(to.seq)
    dropPlanned(upTo = to.seq)
  }

  /** A failure of the feed counts only after all rows before it can be read. */
  override def failure: Option[Throwable] = synchronized(started).flatMap { case Running(store, thread) =>
    val feedFailure = thread.failure.filter(_ => store.isFlushed)
    store.failure.orElse(feedFailure.map { e =>
      val what = if (e.isInstanceOf[FeedFailedException]) e.getMessage else e.toString
      new FeedFailedException(s"The feed of source '$name' failed: $what", e)
    })
  }

  override def metrics: Map[String, String] = {
    val (running, inBatch) = synchronized((started, rowsInBatch))
    val status = running.map(_.store.buffer.status)
    def of(value: Buffer.Status => Long): Long = status.fold(0L)(value)
    (running.fold(Map.empty[String, Long])(_.store.metrics) ++ Map(
      "rowsInBatch" -> inBatch,
      "rowsRead" -> of(_.readRows),
      "rowsLost" -> (dataLoss.rows + rowsLostInTasks()),
      "waitingRows" -> of(_.waitingRows),
      "waitingBytes" -> of(_.waitingBytes),
      "blockedMs" -> NANOSECONDS.toMillis(of(_.blockedNanos)),
      "lagMs" -> NANOSECONDS.toMillis(of(_.lagNanos))
    )).map { case (name, value) => name -> value.toString }
  }

  override def stop(deadline: Deadline): Unit = {
    val running = synchronized {
      stopped = true
      started
    }
    dropPlanned(upTo = Long.MaxValue)
    running.foreach { case Running(store, thread) =>
      if (!thread.stop(deadline - CloseTime))
        logWarning(s"$description: the feed's thread did not end in time")
      store.close(deadline, synchronized(forAvailableNow))
    }
  }

  private def running: Running =
    synchronized(started).getOrElse(throw new IllegalStateException(s"Source '$name' is not open"))

  private def feedFor(store: Store): Feed =
    try newFeed(store)
    catch { case e: Throwable => store.close(CloseTime.fromNow, availableNow = false); throw e }

  /** Waits in the first call for the feed to catch up: an offset that does not move would end the query. */
  private def endOfAvailableNow(): Long =
    synchronized(fixedEnd).getOrElse {
      val Running(store, thread) = running
      store.buffer.awaitCatchUp(options.availableNowWait)(
        thread.isCaughtUp && store.isFlushed || store.failure.nonEmpty
      )
      val end = store.buffer.latest
      synchronized { fixedEnd = Some(end) }
      end
    }

  /** Whether to wait for more rows. False when none can come: the feed has finished, or a full buffer blocks it.
    */
  private def isTooFew(rows: Long, limit: Admission, buffer: Buffer, thread: FeedThread): Boolean = {
    val (waited, availableNow) = synchronized((nanoTime() - lastBatchAt, forAvailableNow))
    rows < limit.minRows && waited < limit.maxDelayNanos && !availableNow && !thread.isFinished && !buffer.isBlocked
  }

  private def dropPlanned(upTo: Long): Unit = {
    val done = synchronized {
      val (done, open) = planned.partition { case (end, _) => end <= upTo }
      planned = open
      done
    }
    done.foreach { case (_, rowsId) => PlannedRows.drop(rowsId) }
  }

  private def lossReason(end: SeqOffset, store: Store): String =
    if (end.run == store.run) "they were dropped when a later batch was committed"
    else
      s"they were in the ${end.durability.name} of run ${end.run}, which is over (this is run ${store.run})"

  private def offsetIn(store: Store, seq: Long): SeqOffset = SeqOffset(name, store.run, seq, store.durability)

  private def offsetOf(position: Position): Option[SeqOffset] = position match {
    case Beginning => None
    case offset: StreamOffset => Some(seqOffset(offset))
  }

  private def seqOf(position: Position): Long = offsetOf(position).fold(BeforeFirst)(_.seq)

  private def seqOffset(offset: StreamOffset): SeqOffset = offset match {
    case ours: SeqOffset => ours
    case other => parse(other.json)
  }
}

private[headwater] object BufferedStream {

  /** What is left of a stop for the store, after the feed has ended. */
  private val CloseTime = 1.second

  private val BeforeFirst = -1L

  private final case class Running(store: Store, thread: FeedThread)
}

/** The rows of one batch.
  *
  * @param rowsId
  *   the id of the rows in [[PlannedRows]]
  * @param needsHadoop
  *   some of them are in files on a Hadoop file system
  * @param reportLosses
  *   to be called on the driver when the batch runs
  */
final case class StoredBatch(rowsId: Long, needsHadoop: Boolean, reportLosses: () => Unit)
