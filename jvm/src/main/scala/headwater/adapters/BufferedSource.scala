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

/** Spark's view of a feed: a V1 `Source` whose rows wait in a [[Store]].
  *
  * Spark calls, from the one thread of the query, for each batch: [[latestOffset]] (how far can this batch go?), then
  * [[commit]] of the batch before (you may forget those rows), then [[getBatch]] (give me the rows of `(start, end]`).
  * While there is nothing new it calls [[latestOffset]] every 10 ms. [[stop]] may come at any time, from any thread.
  *
  * After a restart Spark first calls [[getBatch]] with the last window in its log, to run it again if it did not finish,
  * and for nothing if it did. Rows in memory did not survive, so a window of an earlier run is lost. That is said when the
  * batch is run, not when it is planned: only then is it known that somebody wants the rows.
  *
  * @param openStore
  *   makes the store; its argument is the position that Spark has, if any
  * @param newFeed
  *   makes the feed for a store
  * @param description
  *   what progress reports and the UI show: no secret may be in it
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

  private[this] val losses = new DataLoss(name, options.failOnDataLoss)
  private[this] val frames =
    new StreamingFrames(spark, description, schema, arrowSchema, options.failOnDataLoss)

  @GuardedBy("this") private[this] var started: Option[Running] = None
  @GuardedBy("this") private[this] var stopped = false
  @GuardedBy("this") private[this] var planned =
    Vector.empty[(Long, Long)] // the end of each planned batch, and the number of its rows
  @GuardedBy("this") private[this] var forAvailableNow = false
  @GuardedBy("this") private[this] var fixedEnd: Option[Long] = None
  @GuardedBy("this") private[this] var lastBatchAt = nanoTime()
  @GuardedBy("this") private[this] var rowsInBatch = 0L

  override def getDefaultReadLimit: ReadLimit = options.readLimit

  /** The end stays open until the first [[latestOffset]]: only then is it known where the run begins. */
  override def prepareForTriggerAvailableNow(): Unit = synchronized { forAvailableNow = true }

  override def latestOffset(start: AnyOffset, limit: ReadLimit): AnyOffset = {
    val known = Option(start).map(parse)
    val from = known.fold(BeforeFirst)(_.seq)
    val running @ Running(store, thread) = runningFrom(known)
    val buffer = store.buffer
    synchronized { rowsInBatch = 0 }
    buffer.take(from) // after a restart no getBatch has done it
    val bound = synchronized(forAvailableNow) match {
      case true => endOfAvailableNow(running)
      case false => buffer.latest
    }
    val admission = Admission.of(limit)
    val end = math.min(bound, buffer.endWithin(from, admission.maxRows, admission.maxBytes))
    // The failure is looked at first: once all rows that the feed gave are in the buffer, they come before it.
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
    val store = runningFrom(Some(to)).store
    val window =
      if (to.run == store.run) store.buffer.read(from, to.seq)
      else Buffer.Window(Vector.empty, goneUpTo = to.seq)
    store.buffer.take(to.seq)
    val goneUpTo = window.goneUpTo // not the window: the frame must not hold its rows
    val lost = window.lost
    val needsHadoop = window.slices.exists(_.rows.needsHadoop)
    val number = PlannedRows.put(window.slices)
    synchronized {
      planned = planned :+ (to.seq -> number)
      lastBatchAt = nanoTime()
      rowsInBatch = window.count
    }
    if (synchronized(stopped)) dropPlanned(upTo = Long.MaxValue)
    frames.of(number, needsHadoop) { () =>
      if (goneUpTo > from) losses.report(from, goneUpTo, whyGone(to, store))
      lost.foreach { case (after, upTo, why) => losses.report(after, upTo, why) }
    }
  }

  override def commit(end: Offset): Unit = {
    val to = parse(end)
    val store = runningFrom(Some(to)).store
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

  /** For the progress report: what is there, whatever the limits let through. */
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
      "rowsLost" -> (losses.rows + frames.rowsLost),
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

  /** The feed starts with the first call that says where the stream stands, not when the source is made: Spark stops a
    * source only if all its siblings could be made as well.
    */
  private def runningFrom(known: Option[SeqOffset]): Running = synchronized {
    started.getOrElse {
      if (stopped) throw new IllegalStateException(s"Source '$name' is stopped")
      val store = openStore(known)
      val running =
        Running(store, new FeedThread(feedFor(store), store, s"headwater-feed-$name-${store.run}"))
      started = Some(running)
      running
    }
  }

  private def feedFor(store: Store): Feed =
    try newFeed(store)
    catch { case e: Throwable => store.close(availableNow = false); throw e }

  /** What keeps rows from coming. That of the feed counts once all that it gave can be read. */
  private def failureOf(running: Running): Option[Throwable] = {
    val ofFeed = running.thread.failure.filter(_ => running.store.isSettled)
    running.store.failure.orElse(ofFeed.map { e =>
      val what = if (e.isInstanceOf[FeedFailedException]) e.getMessage else e.toString
      new FeedFailedException(s"The feed of source '$name' failed: $what", e)
    })
  }

  /** Waits here, in the first call, for the feed to catch up: an offset that does not move ends the query. */
  private def endOfAvailableNow(running: Running): Long =
    synchronized(fixedEnd).getOrElse {
      val Running(store, thread) = running
      store.buffer.awaitCatchUp(options.availableNowWait)(
        thread.isCaughtUp && store.isSettled || store.failure.nonEmpty
      )
      val end = store.buffer.latest
      synchronized { fixedEnd = Some(end) }
      end
    }

  /** Whether to wait for more rows. Never when no more can come: the feed is over, or blocked by a full buffer. */
  private def isTooFew(rows: Long, admission: Admission, buffer: Buffer, thread: FeedThread): Boolean = {
    val (waited, forNow) = synchronized((nanoTime() - lastBatchAt, forAvailableNow))
    rows < admission.minRows && waited < admission.maxDelayNanos && !forNow && !thread.isOver && !buffer.isBlocked
  }

  private def dropPlanned(upTo: Long): Unit = {
    val done = synchronized {
      val (done, open) = planned.partition { case (end, _) => end <= upTo }
      planned = open
      done
    }
    done.foreach { case (_, number) => PlannedRows.drop(number) }
  }

  private def whyGone(end: SeqOffset, store: Store): String =
    if (end.run == store.run) "they were dropped when a later batch was committed"
    else
      s"they were in the ${end.durability.name} of run ${end.run}, which is over (this is run ${store.run})"

  private def seqOf(offset: AnyOffset): Long = parse(offset).seq

  /** By its JSON only: offsets that come from Spark's log are not of our class. */
  private def parse(offset: AnyOffset): SeqOffset = {
    val parsed = SeqOffset.parse(offset.json)
    OffsetJson.checkSource(parsed.source, name, offset.json)
    parsed
  }
}

private[headwater] object BufferedSource {

  /** `query.stop()` waits for ever by default, so this must not. */
  private val StopMillis = 4000L

  private val BeforeFirst = -1L

  private final case class Running(store: Store, thread: FeedThread)
}
