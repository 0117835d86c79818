package headwater.buffer

import java.util.concurrent.TimeUnit.NANOSECONDS
import javax.annotation.concurrent.GuardedBy

import scala.concurrent.duration._

import headwater.core._
import headwater.task.PlannedRows
import headwater.{BridgeException, FeedFailedException, InvalidOffsetException}
import org.apache.spark.internal.Logging

/** A running feed as a stream: its rows wait in a [[Store]] until their batch is committed.
  *
  * @param openStore
  *   opens the store at the position that Spark has, if any
  * @param newFeed
  *   creates the feed for a store
  * @param rowsLostInTasks
  *   how many rows tasks found damaged and skipped
  * @param afterTasks
  *   calls a function when tasks that Spark has cancelled no longer look for their rows
  * @param shards
  *   how many feeds run side by side
  */
private[headwater] final class BufferedStream(
    override val name: String,
    override val description: String,
    options: BufferedOptions,
    openStore: Option[SeqOffset] => Store,
    newFeed: Store => Feed,
    rowsLostInTasks: () => Long,
    nanoTime: () => Long = () => System.nanoTime(),
    afterTasks: (() => Unit) => Unit = PlannedRows.afterTasks,
    shards: Int = 1
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
  @GuardedBy("this") private[this] var liveBuffer: Option[LiveBuffer] = None

  override def open(known: Position): Unit = synchronized {
    if (started.isEmpty) {
      if (stopped) throw new IllegalStateException(s"Source '$name' is stopped")
      val store = openStore(offsetOf(known))
      started = Some(
        Running(store, new FeedThread(feedFor(store), store, s"headwater-feed-$name-${store.run}"))
      )
    }
  }

  /** Of the rows in the store. */
  def run: String = running.store.run

  override def parse(json: String): Position = {
    val (source, position) = SeqOffset.position(json)
    OffsetJson.checkSource(source, name, json)
    position
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

  override def plan(position: Position, end: Position): StoredBatch = {
    val from = seqOf(position)
    val to = seqOf(end)
    if (to < from)
      throw new InvalidOffsetException(
        s"Source '$name' was asked for a batch that ends before it begins: from $position to $end"
      )
    val store = running.store
    val otherRun = offsetOf(end).filter(_.run != store.run)
    val window =
      if (otherRun.isEmpty) store.buffer.read(from, to)
      else Buffer.Window(Vector.empty, Vector.empty, goneUpTo = to)
    store.buffer.take(to)
    val goneUpTo = window.goneUpTo // not the window itself: the plan must not hold its rows
    val lost = window.lost
    val rowsId = PlannedRows.put(window.slices)
    synchronized {
      planned = planned :+ (to -> rowsId)
      lastBatchAt = nanoTime()
      rowsInBatch = window.count
    }
    if (synchronized(stopped)) dropPlanned(upTo = Long.MaxValue)
    StoredBatch(
      rowsId,
      store.run,
      needsHadoop = window.slices.exists(_.rows.needsHadoop),
      reportLosses = () => {
        if (goneUpTo > from) dataLoss.report(from, goneUpTo, lossReason(otherRun, store))
        lost.foreach(rows => dataLoss.report(rows.first - 1, rows.last, rows.why))
      }
    )
  }

  override def live: LiveBatches = {
    val store = running.store
    synchronized {
      liveBuffer.getOrElse {
        val live = new LiveBuffer(
          store,
          shards,
          seqOf,
          seq => if (seq < 0) Beginning else offsetIn(store, seq),
          () => failure,
          dataLoss,
          count => synchronized { rowsInBatch = count }
        )
        liveBuffer = Some(live)
        live
      }
    }
  }

  override def commit(end: Position): Unit = offsetOf(end).foreach { to =>
    val store = running.store
    val buffer = store.buffer
    if (to.seq > buffer.latest)
      throw new InvalidOffsetException(
        s"Source '$name' was told to commit $end, but its latest row is ${buffer.latest}. Nothing was dropped."
      )
    if (to.seq + 1 < buffer.firstNotDropped && to.run == store.run && synchronized(liveBuffer.isEmpty))
      logWarning(s"$description: commit of $end after a later one, ignored")
    store.commit(to.seq)
    dropPlanned(upTo = to.seq)
  }

  /** A failure of the feed counts only after all rows before it can be read. */
  override def failure: Option[Throwable] = synchronized(started).flatMap { case Running(store, thread) =>
    val feedFailure = thread.failure.filter(_ => store.isFlushed)
    store.failure.orElse(feedFailure.map {
      case e @ (_: FeedFailedException | _: BridgeException) if e.getCause == null =>
        FeedFailedException.inPython(s"The feed of source '$name' failed: ${e.getMessage}")
      case e => new FeedFailedException(s"The feed of source '$name' failed: $e", e)
    })
  }

  override def metrics: Map[String, String] = {
    val (running, inBatch) = synchronized((started, rowsInBatch))
    val status = running.map(_.store.buffer.status)
    val report = running.fold(FeedReport.Starting)(_.thread.report)
    val arrivals = status.fold(Arrivals.NoRows)(_.arrivals)
    def of(value: Buffer.Status => Long): Long = status.fold(0L)(value)
    val counts = (running.fold(Map.empty[String, Long])(_.store.metrics) ++ Map(
      "rowsInBatch" -> inBatch,
      "rowsRead" -> of(_.readRows),
      "rowsLost" -> (dataLoss.rows + rowsLostInTasks()),
      "waitingRows" -> of(_.waitingRows),
      "waitingBytes" -> of(_.waitingBytes),
      "blockedMs" -> NANOSECONDS.toMillis(of(_.blockedNanos)),
      "lagMs" -> NANOSECONDS.toMillis(of(_.lagNanos))
    )).map { case (name, value) => name -> value.toString }
    counts ++ report.metrics ++ FeedReport.metrics(arrivals) +
      ("bytesPerSecond" -> FeedReport.rate(arrivals.bytesPerSecond))
  }

  /** The tasks of a running batch are cancelled before or after this call. Until they have ended they find their rows:
    * rows that are missing would be data loss.
    */
  override def stop(deadline: Deadline): Unit = {
    val (running, rowsInUse) = synchronized {
      stopped = true
      val rowsInUse = planned
      planned = Vector.empty
      (started, rowsInUse)
    }
    rowsInUse.foreach { case (_, rowsId) => PlannedRows.stop(rowsId) }
    running.foreach { case Running(store, thread) =>
      if (!thread.stop(deadline - CloseTime))
        logWarning(s"$description: the feed's thread did not end in time")
      rowsInUse.lastOption.foreach { case (end, _) => logStoppedBatch(store, end) }
      store.close(deadline, synchronized(forAvailableNow))
    }
    if (rowsInUse.nonEmpty)
      afterTasks(() => rowsInUse.foreach { case (_, rowsId) => PlannedRows.drop(rowsId) })
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

  /** Whether Spark has finished the batch is not known here: it says so only with the next one. */
  private def logStoppedBatch(store: Store, end: Long): Unit = {
    val rows =
      s"$description: stopped; the rows ${store.buffer.firstNotDropped} to $end are in a batch that is not committed"
    if (store.durability == Durability.Log) logInfo(s"$rows. They are kept for the next start")
    else logInfo(s"$rows. They are gone with the memory")
  }

  private def dropPlanned(upTo: Long): Unit = {
    val done = synchronized {
      val (done, open) = planned.partition { case (end, _) => end <= upTo }
      planned = open
      done
    }
    done.foreach { case (_, rowsId) => PlannedRows.drop(rowsId) }
  }

  private def lossReason(otherRun: Option[SeqOffset], store: Store): String =
    otherRun.fold("they were dropped when a later batch was committed")(end =>
      s"they were in the ${end.durability.name} of run ${end.run}, which is over (this is run ${store.run})"
    )

  private def offsetIn(store: Store, seq: Long): SeqOffset = SeqOffset(name, store.run, seq, store.durability)

  private def offsetOf(position: Position): Option[SeqOffset] = position match {
    case Beginning => None
    case ours: SeqOffset => Some(ours)
    case other: StreamOffset => offsetOf(parse(other.json))
  }

  private def seqOf(position: Position): Long = offsetOf(position).fold(BeforeFirst)(_.seq)
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
  * @param run
  *   that the rows belong to
  * @param needsHadoop
  *   some of them are in files on a Hadoop file system
  * @param reportLosses
  *   to be called on the driver when the batch runs
  */
final case class StoredBatch(rowsId: Long, run: String, needsHadoop: Boolean, reportLosses: () => Unit)
