package headwater

import java.util.{Map => JMap, Optional}
import java.util.concurrent.TimeUnit.NANOSECONDS
import javax.annotation.concurrent.GuardedBy

import scala.jdk.CollectionConverters._

import org.apache.spark.internal.Logging
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, _}
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.headwater.StreamingFrames
import org.apache.spark.sql.types.StructType

/** Spark's view of a feed: a V1 `Source` whose rows wait in a [[Buffer]], in memory.
  *
  * Spark calls, from the one thread of the query, for each batch: [[latestOffset]] (how far can this batch go?), then
  * [[commit]] of the batch before (you may forget those rows), then [[getBatch]] (give me the rows of `(start, end]`).
  * While there is nothing new it calls [[latestOffset]] every 10 ms. [[stop]] may come at any time, from any thread.
  *
  * After a restart Spark first calls [[getBatch]] with the last window in its log, to run it again if it did not finish,
  * and for nothing if it did. Rows in memory did not survive, so a window of an earlier run is lost. That is said when the
  * batch is run, not when it is planned: only then is it known that somebody wants the rows.
  *
  * @param newFeed
  *   makes the feed; its argument is the seq of the first row
  * @param run
  *   names this life of the feed, in every offset
  * @param description
  *   what progress reports and the UI show: no secret may be in it
  */
private[headwater] final class BufferedSource(
    spark: SparkSession,
    name: String,
    override val schema: StructType,
    arrowSchema: Array[Byte],
    options: BufferedOptions,
    newFeed: Long => Feed,
    run: String,
    description: String,
    nanoTime: () => Long = () => System.nanoTime()
) extends Source
    with SupportsTriggerAvailableNow
    with ReportsSourceMetrics
    with Logging {
  import BufferedSource._

  private[this] val frames = new StreamingFrames(spark, description, schema, arrowSchema)

  @GuardedBy("this") private[this] var started: Option[Running] = None
  @GuardedBy("this") private[this] var stopped = false
  @GuardedBy("this") private[this] var planned =
    Vector.empty[(Long, Long)] // the end of each planned batch, and the number of its rows
  @GuardedBy("this") private[this] var forAvailableNow = false
  @GuardedBy("this") private[this] var fixedEnd: Option[Long] = None
  @GuardedBy("this") private[this] var lastBatchAt = nanoTime()
  @GuardedBy("this") private[this] var rowsInBatch = 0L
  @GuardedBy("this") private[this] var rowsLost = 0L

  override def getDefaultReadLimit: ReadLimit = options.readLimit

  /** The end stays open until the first [[latestOffset]]: only then is it known where the run begins. */
  override def prepareForTriggerAvailableNow(): Unit = synchronized { forAvailableNow = true }

  override def latestOffset(start: AnyOffset, limit: ReadLimit): AnyOffset = {
    val from = Option(start).fold(BeforeFirst)(seqOf)
    val Running(buffer, thread) = runningFrom(from + 1)
    synchronized { rowsInBatch = 0 }
    buffer.take(from) // after a restart no getBatch has done it
    val bound = synchronized(forAvailableNow) match {
      case true => endOfAvailableNow(buffer, thread)
      case false => buffer.latest
    }
    val admission = Admission.of(limit)
    val end = math.min(bound, buffer.endWithin(from, admission.maxRows, admission.maxBytes))
    // The failure is looked at first: by then all rows that the feed gave are in the buffer, and they come before it.
    thread.failure.filter(_ => from >= buffer.latest).foreach { e =>
      throw new FeedFailedException(s"The feed of source '$name' failed: ${whatFailed(e)}", e)
    }
    if (end <= from || isTooFew(bound - from, admission, buffer, thread)) start
    else SeqOffset(name, run, end)
  }

  override def getBatch(start: Option[Offset], end: Offset): DataFrame = {
    val from = start.fold(BeforeFirst)(seqOf)
    val to = parse(end)
    if (to.seq < from)
      throw new InvalidOffsetException(
        s"Source '$name' was asked for a batch that ends before it begins: from ${start.orNull} to $end"
      )
    val buffer = runningFrom(to.seq + 1).buffer
    val window =
      if (to.run == run) buffer.read(from, to.seq)
      else Buffer.Window(Vector.empty, goneUpTo = to.seq)
    buffer.take(to.seq)
    val goneUpTo = window.goneUpTo // not the window: the frame must not hold its rows
    val number = PlannedRows.put(window.slices)
    synchronized {
      planned = planned :+ (to.seq -> number)
      lastBatchAt = nanoTime()
      rowsInBatch = to.seq - goneUpTo
    }
    if (synchronized(stopped)) dropPlanned(upTo = Long.MaxValue)
    frames.of(number) { () =>
      if (goneUpTo > from) reportLoss(from, goneUpTo, to)
    }
  }

  override def commit(end: Offset): Unit = {
    val to = parse(end)
    val buffer = runningFrom(to.seq + 1).buffer
    if (to.seq > buffer.latest)
      throw new InvalidOffsetException(
        s"Source '$name' was told to commit $end, but its latest row is ${buffer.latest}. Nothing was dropped."
      )
    if (to.seq + 1 < buffer.firstNotDropped && to.run == run)
      logWarning(s"$description: commit of $end after a later one, ignored")
    buffer.commit(to.seq)
    dropPlanned(upTo = to.seq)
  }

  override def getOffset: Option[Offset] = Option(reportLatestOffset()).map(_.asInstanceOf[Offset])

  /** For the progress report: what is there, whatever the limits let through. */
  override def reportLatestOffset(): AnyOffset = synchronized(started)
    .map(_.buffer.status)
    .filter(_.readRows > 0)
    .map(status => SeqOffset(name, run, status.latest))
    .orNull

  override def metrics(latestConsumedOffset: Optional[AnyOffset]): JMap[String, String] = {
    val (running, inBatch, lost) = synchronized((started, rowsInBatch, rowsLost))
    val status = running.map(_.buffer.status)
    def of(value: Buffer.Status => Long): Long = status.fold(0L)(value)
    Map(
      "rowsInBatch" -> inBatch,
      "rowsRead" -> of(_.readRows),
      "rowsLost" -> lost,
      "waitingRows" -> of(_.waitingRows),
      "waitingBytes" -> of(_.waitingBytes),
      "blockedMs" -> NANOSECONDS.toMillis(of(_.blockedNanos)),
      "lagMs" -> NANOSECONDS.toMillis(of(_.lagNanos))
    ).map { case (name, value) => name -> value.toString }.asJava
  }

  override def stop(): Unit = {
    val running = synchronized {
      stopped = true
      started
    }
    dropPlanned(upTo = Long.MaxValue)
    running.foreach { case Running(buffer, thread) =>
      if (!thread.stop(StopMillis))
        logWarning(s"$description: the feed's thread did not end within $StopMillis ms")
      val waiting = buffer.clear()
      if (waiting > 0) {
        val gone = s"$description: $waiting rows that no batch had taken are gone with the buffer"
        if (synchronized(forAvailableNow))
          logWarning(s"$gone, which was full, or was filled too late for this run")
        else logInfo(gone)
      }
    }
  }

  override def toString: String = description

  /** The feed starts with the first call that says where the stream stands, not when the source is made: Spark stops a
    * source only if all its siblings could be made as well.
    */
  private def runningFrom(first: Long): Running = synchronized {
    started.getOrElse {
      if (stopped) throw new IllegalStateException(s"Source '$name' is stopped")
      val buffer = new Buffer(options.bufferRows, options.bufferBytes, first, nanoTime)
      val running = Running(buffer, new FeedThread(newFeed(first), buffer, s"headwater-feed-$name-$run"))
      started = Some(running)
      running
    }
  }

  /** Waits here, in the first call, for the feed to catch up: an offset that does not move ends the query. */
  private def endOfAvailableNow(buffer: Buffer, thread: FeedThread): Long =
    synchronized(fixedEnd).getOrElse {
      buffer.awaitCatchUp(options.availableNowWait)(thread.isCaughtUp)
      val end = buffer.latest
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

  private def reportLoss(from: Long, goneUpTo: Long, end: SeqOffset): Unit = {
    val why =
      if (end.run == run) "they were dropped when a later batch was committed"
      else s"they were in the memory of run ${end.run}, which is over (this is run $run)"
    val what = s"Source '$name' lost the rows ${from + 1} to $goneUpTo: $why."
    if (options.failOnDataLoss)
      throw new DataLossException(s"$what Set the option failOnDataLoss to false to go on without them.")
    logWarning(s"$what Going on without them, as failOnDataLoss is false.")
    synchronized { rowsLost += goneUpTo - from }
  }

  private def whatFailed(e: Throwable): String = e match {
    case told: FeedFailedException => told.getMessage
    case other => other.toString
  }

  private def seqOf(offset: AnyOffset): Long = parse(offset).seq

  /** By its JSON only: offsets that come from Spark's log are not of our class. */
  private def parse(offset: AnyOffset): SeqOffset = {
    val parsed = SeqOffset.parse(offset.json)
    if (parsed.source != name)
      throw new InvalidOffsetException(
        s"The checkpoint belongs to source '${parsed.source}' and is read by source '$name'. The sources of a query " +
          s"must stay the same, in the same order. The offset is $offset"
      )
    parsed
  }
}

private[headwater] object BufferedSource {

  /** `query.stop()` waits for ever by default, so this must not. */
  private val StopMillis = 4000L

  private val BeforeFirst = -1L

  private final case class Running(buffer: Buffer, thread: FeedThread)
}
