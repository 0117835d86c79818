package headwater.adapters

import java.util.{Map => JMap, Optional}
import java.util.concurrent.TimeUnit.NANOSECONDS
import javax.annotation.concurrent.GuardedBy

import scala.jdk.CollectionConverters._

import headwater.buffer.Buffer
import headwater.core.{Admission, BufferedOptions, DataLoss, Feed, FeedThread, OffsetJson, SeqOffset, Store}
import headwater.task.PlannedRows
import headwater.{FeedFailedException, InvalidOffsetException}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, _}
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.headwater.StreamingFrames
import org.apache.spark.sql.types.StructType

/** A feed as Spark's V1 `Source`. Its rows wait in a [[Store]].
  *
  * For each batch Spark calls, from the query's thread: [[latestOffset]] (how far can this batch go?), then
  * [[commit]] of the batch before (its rows may be dropped), then [[getBatch]] (the rows of `(start, end]`).
  * While there is nothing new it calls [[latestOffset]] every 10 ms. [[stop]] may be called at any time, from any
  * thread.
  *
  * After a restart Spark first calls [[getBatch]] with the last window of its offset log. If that batch did not
  * finish, Spark runs it again; if it did, the frame is never run. Rows in memory did not survive, so a window of
  * an earlier run is lost. The loss is reported when the frame runs, since only then the rows are needed.
  *
  * @param openStore
  *   opens the store at the position that Spark has, if any
  * @param newFeed
  *   creates the feed for a store
  * @param description
  *   what progress reports and the UI show; it must contain no secret
  */
private[headwater] final class BufferedSource(
    spark: SparkSession,
    name: String,
    override val schema: StructType,
    arrowSchema: Array[Byte],
    options: BufferedOptions,
    openStore: Option[SeqOffset] => Store,
    newFeed: Store => Feed,
    description: String,
    nanoTime: () => Long = () => System.nanoTime()
) extends Source
    with SupportsTriggerAvailableNow
    with ReportsSourceMetrics
    with Logging {
  import BufferedSource._

  private[this] val dataLoss = new DataLoss(name, options.failOnDataLoss)
  private[this] val frames =
    new StreamingFrames(spark, description, schema, arrowSchema, options.failOnDataLoss)

  @GuardedBy("this") private[this] var started: Option[Running] = None
  @GuardedBy("this") private[this] var stopped = false
  @GuardedBy("this") private[this] var planned =
    Vector.empty[(Long, Long)] // the end of each planned batch, and the id of its rows in PlannedRows
  @GuardedBy("this") private[this] var forAvailableNow = false
  @GuardedBy("this") private[this] var fixedEnd: Option[Long] = None
  @GuardedBy("this") private[this] var lastBatchAt = nanoTime()
  @GuardedBy("this") private[this] var rowsInBatch = 0L

  override def getDefaultReadLimit: ReadLimit = options.readLimit

  /** The end is fixed by the first [[latestOffset]]: only then is the start position known. */
  override def prepareForTriggerAvailableNow(): Unit = synchronized { forAvailableNow = true }

  override def latestOffset(start: AnyOffset, limit: ReadLimit): AnyOffset = {
    val position = Option(start).map(parse)
    val from = position.fold(BeforeFirst)(_.seq)
    val running @ Running(store, thread) = ensureStarted(position)
    val buffer = store.buffer
    synchronized { rowsInBatch = 0 }
    buffer.take(from) // after a restart no getBatch has done so
    val bound = synchronized(forAvailableNow) match {
      case true => endOfAvailableNow(running)
      case false => buffer.latest
    }
    val admission = Admission.of(limit)
    val end = math.min(bound, buffer.endWithin(from, admission.maxRows, admission.maxBytes))
    // Checked before buffer.latest is read: rows that the feed appended before it failed must be read first.
    failureOf(running).filter(_ => from >= buffer.latest).foreach(throw _)
    if (end <= from || isTooFew(bound - from, admission, buffer, thread)) start
    else SeqOffset(name, store.run, end, store.durability)
  }

  override def getBatch(start: Option[Offset], end: Offset): DataFrame = {
    val from = start.fold(BeforeFirst)(seqOf)
    val to = parse(end)
    if (to.seq < from)
      throw new InvalidOffsetException(
        s"Source '$name' was asked for a batch that ends before it begins: from ${start.orNull} to $end"
      )
    val store = ensureStarted(Some(to)).store
    val window =
      if (to.run == store.run) store.buffer.read(from, to.seq)
      else Buffer.Window(Vector.empty, goneUpTo = to.seq)
    store.buffer.take(to.seq)
    val goneUpTo = window.goneUpTo // not the window itself: the frame must not hold its rows
    val lost = window.lost
    val needsHadoop = window.slices.exists(_.rows.needsHadoop)
    val rowsId = PlannedRows.put(window.slices)
    synchronized {
      planned = planned :+ (to.seq -> rowsId)
      lastBatchAt = nanoTime()
      rowsInBatch = window.count
    }
    if (synchronized(stopped)) dropPlanned(upTo = Long.MaxValue)
    frames.of(rowsId, needsHadoop) { () =>
      if (goneUpTo > from) dataLoss.report(from, goneUpTo, lossReason(to, store))
      lost.foreach { case (after, upTo, why) => dataLoss.report(after, upTo, why) }
    }
  }

  override def commit(end: Offset): Unit = {
    val to = parse(end)
    val store = ensureStarted(Some(to)).store
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

  override def getOffset: Option[Offset] = Option(reportLatestOffset()).map(_.asInstanceOf[Offset])

  /** For progress reports: the newest row, whatever the limits allow. */
  override def reportLatestOffset(): AnyOffset = synchronized(started)
    .map(_.store)
    .filter(_.buffer.hasBegun)
    .map(store => SeqOffset(name, store.run, store.buffer.latest, store.durability))
    .orNull

  override def metrics(latestConsumedOffset: Optional[AnyOffset]): JMap[String, String] = {
    val (running, inBatch) = synchronized((started, rowsInBatch))
    val status = running.map(_.store.buffer.status)
    def of(value: Buffer.Status => Long): Long = status.fold(0L)(value)
    (running.fold(Map.empty[String, Long])(_.store.metrics) ++ Map(
      "rowsInBatch" -> inBatch,
      "rowsRead" -> of(_.readRows),
      "rowsLost" -> (dataLoss.rows + frames.rowsLost),
      "waitingRows" -> of(_.waitingRows),
      "waitingBytes" -> of(_.waitingBytes),
      "blockedMs" -> NANOSECONDS.toMillis(of(_.blockedNanos)),
      "lagMs" -> NANOSECONDS.toMillis(of(_.lagNanos))
    )).map { case (name, value) => name -> value.toString }.asJava
  }

  override def stop(): Unit = {
    val running = synchronized {
      stopped = true
      started
    }
    dropPlanned(upTo = Long.MaxValue)
    running.foreach { case Running(store, thread) =>
      if (!thread.stop(StopMillis))
        logWarning(s"$description: the feed's thread did not end within $StopMillis ms")
      store.close(synchronized(forAvailableNow))
    }
  }

  override def toString: String = description

  /** Starts the feed with the first call that states a position, not when the source is created: Spark stops a
    * source only if all other sources of the query could be created too.
    */
  private def ensureStarted(position: Option[SeqOffset]): Running = synchronized {
    started.getOrElse {
      if (stopped) throw new IllegalStateException(s"Source '$name' is stopped")
      val store = openStore(position)
      val running =
        Running(store, new FeedThread(feedFor(store), store, s"headwater-feed-$name-${store.run}"))
      started = Some(running)
      running
    }
  }

  private def feedFor(store: Store): Feed =
    try newFeed(store)
    catch { case e: Throwable => store.close(availableNow = false); throw e }

  /** Why no more rows come. A failure of the feed counts only after all rows before it can be read. */
  private def failureOf(running: Running): Option[Throwable] = {
    val feedFailure = running.thread.failure.filter(_ => running.store.isFlushed)
    running.store.failure.orElse(feedFailure.map { e =>
      val what = if (e.isInstanceOf[FeedFailedException]) e.getMessage else e.toString
      new FeedFailedException(s"The feed of source '$name' failed: $what", e)
    })
  }

  /** Waits in the first call for the feed to catch up: an offset that does not move would end the query. */
  private def endOfAvailableNow(running: Running): Long =
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
  private def isTooFew(rows: Long, admission: Admission, buffer: Buffer, thread: FeedThread): Boolean = {
    val (waited, availableNow) = synchronized((nanoTime() - lastBatchAt, forAvailableNow))
    rows < admission.minRows && waited < admission.maxDelayNanos && !availableNow && !thread.isFinished && !buffer.isBlocked
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

  private def seqOf(offset: AnyOffset): Long = parse(offset).seq

  /** Only by its JSON: offsets from the offset log are not instances of our class. */
  private def parse(offset: AnyOffset): SeqOffset = {
    val parsed = SeqOffset.parse(offset.json)
    OffsetJson.checkSource(parsed.source, name, offset.json)
    parsed
  }
}

private[headwater] object BufferedSource {

  /** Bounded, since `query.stop()` waits without a timeout by default. */
  private val StopMillis = 4000L

  private val BeforeFirst = -1L

  private final case class Running(store: Store, thread: FeedThread)
}
