package headwater.adapters

import java.util.{Map => JMap, Optional}
import javax.annotation.concurrent.GuardedBy

import scala.jdk.CollectionConverters._

import headwater.core.{Admission, OffsetJson, PartitionedOptions, Positions, VectorOffset}
import headwater.partition.{
  BatchPlanner,
  PartitionMetrics,
  PartitionRange,
  PartitionWatch,
  Ranges,
  RunningPartitions,
  StartPositions,
  TaskReports
}
import headwater.{DataLossException, FeedFailedException, InvalidOffsetException}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, _}
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.types.StructType

/** A partitioned source as Spark's V1 `Source`. Rows stay upstream until tasks read them.
  *
  * Spark calls it as it calls a [[BufferedSource]]. No call waits for the author's code: a [[PartitionWatch]]
  * knows how far the partitions go. [[latestOffset]] plans the end of a batch, [[getBatch]] distributes its
  * ranges over tasks, and [[commit]] has nothing to drop.
  *
  * A position never moves backwards. A partition that moves backwards or disappears has lost rows: the query
  * fails, or, with `failOnDataLoss` false, the partition keeps its position until its offsets have passed it
  * again.
  *
  * @param openStarts
  *   opens the start positions; called when the first position is known
  * @param openPartitions
  *   starts to watch, given the partitions whose start is known
  * @param hasGaps
  *   not every offset is a row
  * @param slots
  *   how many tasks can run at once
  * @param description
  *   what progress reports and the UI show; it must contain no secret
  */
private[headwater] final class PartitionedSource(
    name: String,
    override val schema: StructType,
    options: PartitionedOptions,
    openStarts: () => StartPositions,
    openPartitions: Set[String] => RunningPartitions,
    hasGaps: Boolean,
    slots: () => Int,
    description: String,
    nanoTime: () => Long = () => System.nanoTime()
) extends Source
    with SupportsTriggerAvailableNow
    with ReportsSourceMetrics
    with Logging {
  import PartitionedSource._

  private[this] val taskReports = new TaskReports
  private[this] val warnings = new Once

  @GuardedBy("this") private[this] var started: Option[Running] = None
  @GuardedBy("this") private[this] var stopped = false
  @GuardedBy("this") private[this] var forAvailableNow = false
  @GuardedBy("this") private[this] var fixedEnd: Option[Map[String, Long]] = None
  @GuardedBy("this") private[this] var lastBatchAt = nanoTime()
  @GuardedBy("this") private[this] var reached: Option[Positions] =
    None // the end of the last batch that was offered

  override def getDefaultReadLimit: ReadLimit = options.readLimit

  /** The end is fixed by the first [[latestOffset]]: only then is the start position known. */
  override def prepareForTriggerAvailableNow(): Unit = synchronized { forAvailableNow = true }

  override def latestOffset(start: AnyOffset, limit: ReadLimit): AnyOffset = {
    val known = Option(start).map(parse(_).next)
    val running = ensureStarted(known)
    taskReports.endBatch()
    running.watch.failure.foreach(e => throw withSourceName(e))
    val bound = synchronized(forAvailableNow) match {
      case true => Some(endOfAvailableNow(running))
      case false => running.watch.snapshot.map(_.latest)
    }
    val end = for {
      latest <- bound
      snapshot <- running.watch.snapshot
      from <- positionsFrom(known, snapshot, running.starts)
      waiting = waitingOf(from, latest, snapshot, running.starts.all)
      end <- endWithin(from, waiting, Admission.of(limit), running.planner)
    } yield end
    end.foreach(next => synchronized { reached = Some(next) })
    end.fold(start)(VectorOffset(name, _))
  }

  override def getBatch(start: Option[Offset], end: Offset): DataFrame = {
    val to = parse(end).next
    val from = start.map(parse(_).next)
    val running = ensureStarted(Some(to))
    val starts = running.starts.all
    val ranges = to.at.toSeq.map { case (partition, until) =>
      val after = from.flatMap(_.get(partition)).orElse(starts.get(partition)).getOrElse {
        throw new InvalidOffsetException(
          s"Source '$name' is asked for partition '$partition' up to $until, and where that began is not known: the files " +
            s"start-*.json are gone from the checkpoint's folder of this source. Put them back, or start the query with a " +
            "new checkpoint."
        )
      }
      if (until < after)
        throw new InvalidOffsetException(
          s"Source '$name' was asked for a batch that ends before it begins, in partition '$partition': from " +
            s"${start.orNull} to $end"
        )
      PartitionRange(0, partition, after, until)
    }
    val numbered =
      ranges.filter(_.width > 0).zipWithIndex.map { case (range, number) => range.copy(number = number) }
    val tasks = Ranges.tasks(numbered, options.minPartitions, slots())
    synchronized {
      lastBatchAt = nanoTime()
      reached = Some(to)
    }
    val batch = running.partitions.frame(tasks.map(Ranges.json(to.keyType, _)))
    taskReports.startBatch(tasks.flatten, batch.reports)
    batch.frame
  }

  override def commit(end: Offset): Unit = parse(end) // rows stay where they are

  override def getOffset: Option[Offset] = Option(reportLatestOffset()).map(_.asInstanceOf[Offset])

  /** For progress reports: the newest offsets, whatever the limits allow. */
  override def reportLatestOffset(): AnyOffset = {
    val (running, position) = synchronized((started, reached))
    val latest = running.flatMap(_.watch.snapshot).map(_.latest).getOrElse(Map.empty)
    position
      .map(at => at.updated(latest.filter { case (p, offset) => at.get(p).forall(_ < offset) }))
      .map(VectorOffset(name, _))
      .orNull
  }

  override def metrics(latestConsumedOffset: Optional[AnyOffset]): JMap[String, String] = {
    val (running, position) = synchronized((started, reached))
    PartitionMetrics
      .of(running.flatMap(_.watch.snapshot), position, running.fold(noStarts)(_.starts.all), taskReports)
      .asJava
  }

  override def stop(): Unit = {
    val running = synchronized {
      stopped = true
      started
    }
    running.foreach { case Running(starts, partitions, _) =>
      partitions.close()
      starts.close()
    }
  }

  override def toString: String = description

  /** The position of the query, for `hw.feeds()`. */
  def offsets: Map[String, Long] = synchronized(reached).fold(Map.empty[String, Long])(_.at)

  /** Starts with the first call that states a position, as a feed does. */
  private def ensureStarted(known: Option[Positions]): Running = synchronized {
    started.getOrElse {
      if (stopped) throw new IllegalStateException(s"Source '$name' is stopped")
      val starts = openStarts()
      val running =
        try {
          val partitions = openPartitions(starts.all.keySet ++ known.fold(Set.empty[String])(_.at.keySet))
          Running(
            starts,
            partitions,
            new BatchPlanner(partitions.watch, name, hasGaps, options.python.maxConsecutiveErrors, nanoTime)
          )
        } catch { case e: Throwable => starts.close(); throw e }
      started = Some(running)
      reached = reached.orElse(known)
      running
    }
  }

  /** The start of a batch: the position of the query, plus the start positions of new partitions, which are
    * stored first. None while there are no partitions.
    */
  private def positionsFrom(
      known: Option[Positions],
      snapshot: PartitionWatch.Snapshot,
      starts: StartPositions
  ): Option[Positions] = {
    val keyType = known.map(_.keyType).orElse(starts.keyType)
    if (keyType.exists(_ != snapshot.keyType) && snapshot.latest.nonEmpty)
      throw starts.keyTypeChanged(keyType.get, snapshot.keyType)
    val newStarts = snapshot.starts.filter { case (partition, _) =>
      !starts.all.contains(partition) && known.flatMap(_.get(partition)).isEmpty
    }
    if (newStarts.nonEmpty) starts.add(Positions(snapshot.keyType, newStarts))
    val all = starts.all ++ known.fold(noStarts)(_.at)
    Option.when(all.nonEmpty)(Positions(keyType.getOrElse(snapshot.keyType), all))
  }

  /** How many offsets wait in each partition. Partitions that lost rows are left out, or fail the query. A
    * partition that ends before its start position has lost nothing: no row of it was ever read.
    */
  private def waitingOf(
      from: Positions,
      latest: Map[String, Long],
      snapshot: PartitionWatch.Snapshot,
      starts: Map[String, Long]
  ): Map[String, Long] = {
    from.at.keysIterator.filter(snapshot.gone).foreach { partition =>
      lost(s"partition '$partition' is gone, at offset ${from.at(partition)}")
    }
    from.at.flatMap { case (partition, offset) =>
      latest.get(partition).flatMap { until =>
        if (until < offset && !starts.get(partition).contains(offset))
          lost(
            s"partition '$partition' went backwards: it ends at offset $until, and the query has read it up to $offset"
          )
        Option.when(until > offset)(partition -> (until - offset))
      }
    }
  }

  private def lost(what: String): Unit = {
    if (options.failOnDataLoss)
      throw new DataLossException(
        s"Source '$name' has lost rows: $what. Set the option failOnDataLoss to false to go on with the other partitions, " +
          "and with this one once it has come further than that."
      )
    if (warnings.first(what))
      logWarning(s"$description has lost rows: $what. Going on, as failOnDataLoss is false.")
  }

  private def endWithin(
      from: Positions,
      waiting: Map[String, Long],
      admission: Admission,
      planner: BatchPlanner
  ): Option[Positions] = {
    val sum = waiting.values.map(BigInt(_)).sum
    def planned: Option[Positions] = planner.endOfBatch(from, waiting, admission.maxRows)
    if (sum == 0 || isTooFew(sum, admission)) None
    else if (!synchronized(forAvailableNow)) planned
    else {
      // An offset that does not move would end the query.
      var end = planned
      while (end.isEmpty) {
        Thread.sleep(WaitMillis)
        end = planned
      }
      end
    }
  }

  /** Whether to wait for more rows. */
  private def isTooFew(rows: BigInt, admission: Admission): Boolean = {
    val (waited, availableNow) = synchronized((nanoTime() - lastBatchAt, forAvailableNow))
    rows < admission.minRows && waited < admission.maxDelayNanos && !availableNow
  }

  /** Waits in the first call for all partitions to respond: an offset that does not move would end the query. */
  private def endOfAvailableNow(running: Running): Map[String, Long] = synchronized(fixedEnd).getOrElse {
    val isComplete = running.watch.awaitComplete(options.availableNowWait)
    running.watch.failure.foreach(e => throw withSourceName(e))
    val snapshot = running.watch.snapshot.getOrElse(
      throw new FeedFailedException(
        s"Source '$name' did not say within ${options.availableNowWait / 1000000} ms which partitions it has. Set the option " +
          "availableNowWait to wait longer."
      )
    )
    if (!isComplete)
      logWarning(s"$description: not all partitions have said in time how far they go; those are left out")
    synchronized { fixedEnd = Some(snapshot.latest) }
    snapshot.latest
  }

  private def withSourceName(e: Throwable): Throwable = e match {
    case failure: FeedFailedException =>
      new FeedFailedException(s"Source '$name' failed: ${failure.getMessage}", failure)
    case other => other
  }

  /** Only by its JSON: offsets from the offset log are not instances of our class. */
  private def parse(offset: AnyOffset): VectorOffset = {
    val parsed = VectorOffset.parse(offset.json)
    OffsetJson.checkSource(parsed.source, name, offset.json)
    parsed
  }
}

private[headwater] object PartitionedSource {

  private final case class Running(
      starts: StartPositions,
      partitions: RunningPartitions,
      planner: BatchPlanner
  ) {
    def watch: PartitionWatch = partitions.watch
  }

  private val WaitMillis = 20L

  private val noStarts = Map.empty[String, Long]

  /** Remembers messages, to log each of them once. */
  private final class Once {
    @GuardedBy("this") private[this] var seen = Set.empty[String]

    def first(what: String): Boolean = synchronized {
      val isNew = !seen(what)
      seen += what
      isNew
    }
  }
}
