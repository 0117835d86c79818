package headwater.partition

import javax.annotation.concurrent.GuardedBy

import scala.concurrent.duration.Deadline

import headwater.core._
import headwater.{DataLossException, FeedFailedException, InvalidOffsetException}
import org.apache.spark.internal.Logging

/** A partitioned source as a stream. Its rows stay upstream until tasks read them.
  *
  * No call waits for the author's code: a [[PartitionWatch]] knows how far the partitions go. [[latest]] plans the end
  * of a batch, [[plan]] distributes its ranges over tasks, and [[commit]] has nothing to drop.
  *
  * A position never moves backwards. A partition that moves backwards or disappears has lost rows: the query fails, or,
  * with `failOnDataLoss` false, the partition keeps its position until its offsets have passed it again.
  *
  * @param openStarts
  *   opens the start positions; called when the first position is known
  * @param openPartitions
  *   starts to watch, given the partitions whose start is known
  * @param hasGaps
  *   not every offset is a row
  * @param slots
  *   how many tasks can run at once
  */
private[headwater] final class PartitionedStream(
    override val name: String,
    override val description: String,
    options: PartitionedOptions,
    openStarts: () => StartPositions,
    openPartitions: Set[String] => RunningPartitions,
    hasGaps: Boolean,
    slots: () => Int,
    nanoTime: () => Long = () => System.nanoTime()
) extends RowStream[PartitionedBatch]
    with Logging {
  import PartitionedStream._

  private[this] val taskReports = new TaskReports
  private[this] val warnings = new Once

  @GuardedBy("this") private[this] var started: Option[Running] = None
  @GuardedBy("this") private[this] var stopped = false
  @GuardedBy("this") private[this] var forAvailableNow = false
  @GuardedBy("this") private[this] var fixedEnd: Option[Map[String, Long]] = None
  @GuardedBy("this") private[this] var lastBatchAt = nanoTime()
  @GuardedBy("this") private[this] var reached: Option[Positions] =
    None // the end of the last batch that was offered

  override def open(known: Position): Unit = synchronized {
    if (started.isEmpty) {
      if (stopped) throw new IllegalStateException(s"Source '$name' is stopped")
      val positions = positionsOf(known)
      val starts = openStarts()
      val running =
        try {
          val partitions = openPartitions(starts.all.keySet ++ positions.fold(Set.empty[String])(_.at.keySet))
          Running(
            starts,
            partitions,
            new BatchPlanner(partitions.watch, name, hasGaps, options.python.maxConsecutiveErrors, nanoTime)
          )
        } catch { case e: Throwable => starts.close(); throw e }
      started = Some(running)
      reached = reached.orElse(positions)
    }
  }

  override def parse(json: String): VectorOffset = {
    val offset = VectorOffset.parse(json)
    OffsetJson.checkSource(offset.source, name, json)
    offset
  }

  override def latest(position: Position, limit: Admission): Option[StreamOffset] = {
    val known = positionsOf(position)
    val current = running
    taskReports.endBatch()
    failure.foreach(throw _)
    val bound =
      if (synchronized(forAvailableNow)) Some(endOfAvailableNow(current))
      else current.watch.snapshot.map(_.latest)
    val end = for {
      latest <- bound
      snapshot <- current.watch.snapshot
      from <- positionsFrom(known, snapshot, current.starts)
      waiting = waitingOf(from, latest, snapshot, current.starts.all)
      end <- endWithin(from, waiting, limit, current.planner)
    } yield end
    end.foreach(next => synchronized { reached = Some(next) })
    end.map(VectorOffset(name, _))
  }

  override def newest: Option[StreamOffset] = {
    val (running, position) = synchronized((started, reached))
    val latest = running.flatMap(_.watch.snapshot).map(_.latest).getOrElse(Map.empty)
    position
      .map(at => at.updated(latest.filter { case (p, offset) => at.get(p).forall(_ < offset) }))
      .map(VectorOffset(name, _))
  }

  override def fixEnd(): Unit = synchronized { forAvailableNow = true }

  override def plan(position: Position, end: Position): PartitionedBatch = {
    val to = vectorOffset(end).next
    val from = positionsOf(position)
    val current = running
    val starts = current.starts.all
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
            s"$position to $end"
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
    PartitionedBatch(
      tasks.map(Ranges.json(to.keyType, _)),
      current.partitions.reader,
      reports => taskReports.startBatch(tasks.flatten, reports)
    )
  }

  override def live: LiveBatches =
    throw new UnsupportedOperationException(
      s"Source '$name' is partitioned: its rows are read in batches only"
    )

  /** Rows stay where they are; the source may want to know. */
  override def commit(to: Position): Unit = running.partitions.committed(vectorOffset(to).next)

  override def failure: Option[Throwable] = synchronized(started).flatMap(_.watch.failure).map {
    case e: FeedFailedException => FeedFailedException.inPython(s"Source '$name' failed: ${e.getMessage}")
    case other => other
  }

  override def metrics: Map[String, String] = {
    val (running, position) = synchronized((started, reached))
    val snapshot = running.flatMap(_.watch.snapshot)
    val report = snapshot.fold(FeedReport.Starting)(_.report)
    val counts = PartitionMetrics.of(snapshot, position, running.fold(noStarts)(_.starts.all), taskReports)
    report.metrics ++ counts ++ FeedReport.metrics(running.fold(Arrivals.NoRows)(_.watch.arrivals))
  }

  override def stop(deadline: Deadline): Unit = {
    val running = synchronized {
      stopped = true
      started
    }
    running.foreach { case Running(starts, partitions, _) =>
      partitions.close(deadline)
      starts.close()
    }
  }

  /** The position of the query, for `hw.feeds()`. */
  def offsets: Map[String, Long] = synchronized(reached).fold(Map.empty[String, Long])(_.at)

  /** How many rows did not fit the schema, for `hw.feeds()`. */
  def badRows: Long = taskReports.total.bad

  private def running: Running =
    synchronized(started).getOrElse(throw new IllegalStateException(s"Source '$name' is not open"))

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
        s"Source '$name' has lost rows: $what. Set the option failOnDataLoss to false to continue with the other partitions, " +
          "and with this one once it has passed that offset."
      )
    if (warnings.first(what))
      logWarning(s"$description has lost rows: $what. Continuing, since failOnDataLoss is false.")
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
    failure.foreach(throw _)
    val snapshot = running.watch.snapshot.getOrElse(
      throw new FeedFailedException(
        s"Source '$name' did not report its partitions within ${options.availableNowWait / 1000000} ms. Set the option " +
          "availableNowWait to wait longer."
      )
    )
    if (!isComplete)
      logWarning(s"$description: not all partitions have said in time how far they go; those are left out")
    synchronized { fixedEnd = Some(snapshot.latest) }
    snapshot.latest
  }

  private def positionsOf(position: Position): Option[Positions] = position match {
    case Beginning => None
    case offset: StreamOffset => Some(vectorOffset(offset).next)
  }

  private def vectorOffset(position: Position): VectorOffset = position match {
    case ours: VectorOffset => ours
    case other: StreamOffset => parse(other.json)
    case Beginning => throw new InvalidOffsetException(s"Source '$name' was asked for a batch without an end")
  }
}

private[headwater] object PartitionedStream {

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
