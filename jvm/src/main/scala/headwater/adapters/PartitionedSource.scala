package headwater.adapters

import java.util.{Map => JMap, Optional}
import javax.annotation.concurrent.GuardedBy

import scala.jdk.CollectionConverters._

import headwater.core.{Admission, OffsetJson, PartitionedOptions, Positions, VectorOffset}
import headwater.partition.{BatchPlanner, PartitionMetrics, PartitionRange, PartitionWatch, Ranges, RunningPartitions, StartPositions, TaskReports}
import headwater.{DataLossException, FeedFailedException, InvalidOffsetException}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, _}
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.types.StructType

/** Spark's view of a source with partitions: a V1 `Source` whose rows wait where they come from, and are read by tasks.
  *
  * Spark calls it as it calls a [[BufferedSource]], and nothing here waits for the author's code: how far the partitions
  * go is known from a [[PartitionWatch]]. [[latestOffset]] cuts off what a batch may take, [[getBatch]] deals the ranges out to
  * tasks. There is nothing to drop on [[commit]].
  *
  * A position never goes backwards. A partition that does, or that is gone, has lost rows: `failOnDataLoss` says what
  * becomes of the query, and without it the partition stays where it is until it has come up again.
  *
  * @param openStarts
  *   where the partitions began; called when the query first says where it stands
  * @param openReading
  *   begins to watch, given the partitions whose start is known
  * @param hasGaps
  *   not every offset is a row
  * @param slots
  *   how many tasks can run at once
  * @param description
  *   what progress reports and the UI show: no secret may be in it
  */
private[headwater] final class PartitionedSource(
    name: String,
    override val schema: StructType,
    options: PartitionedOptions,
    openStarts: () => StartPositions,
    openReading: Set[String] => RunningPartitions,
    hasGaps: Boolean,
    slots: () => Int,
    description: String,
    nanoTime: () => Long = () => System.nanoTime()
) extends Source
    with SupportsTriggerAvailableNow
    with ReportsSourceMetrics
    with Logging {
  import PartitionedSource._

  private[this] val tally = new TaskReports
  private[this] val warned = new Once

  @GuardedBy("this") private[this] var started: Option[Running] = None
  @GuardedBy("this") private[this] var stopped = false
  @GuardedBy("this") private[this] var forAvailableNow = false
  @GuardedBy("this") private[this] var fixedEnd: Option[Map[String, Long]] = None
  @GuardedBy("this") private[this] var lastBatchAt = nanoTime()
  @GuardedBy("this") private[this] var reached: Option[Positions] = None // by the batches that were offered

  override def getDefaultReadLimit: ReadLimit = options.readLimit

  /** The end stays open until the first [[latestOffset]]: only then is it known where the run begins. */
  override def prepareForTriggerAvailableNow(): Unit = synchronized { forAvailableNow = true }

  override def latestOffset(start: AnyOffset, limit: ReadLimit): AnyOffset = {
    val known = Option(start).map(parse(_).next)
    val running = runningFrom(known)
    tally.batchIsOver()
    running.watch.failure.foreach(e => throw failed(e))
    val bound = synchronized(forAvailableNow) match {
      case true => Some(endOfAvailableNow(running))
      case false => running.watch.seen.map(_.latest)
    }
    val end = for {
      latest <- bound
      seen <- running.watch.seen
      from <- positionsFrom(known, seen, running.starts)
      waiting = waitingOf(from, latest, seen, running.starts.all)
      end <- endWithin(from, waiting, Admission.of(limit), running.cuts)
    } yield end
    end.foreach(next => synchronized { reached = Some(next) })
    end.fold(start)(VectorOffset(name, _))
  }

  override def getBatch(start: Option[Offset], end: Offset): DataFrame = {
    val to = parse(end).next
    val from = start.map(parse(_).next)
    val running = runningFrom(Some(to))
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
    val batch = running.reading.frame(tasks.map(Ranges.json(to.naming, _)))
    tally.planned(tasks.flatten, batch.reports)
    batch.frame
  }

  override def commit(end: Offset): Unit = parse(end) // rows stay where they are

  override def getOffset: Option[Offset] = Option(reportLatestOffset()).map(_.asInstanceOf[Offset])

  /** For the progress report: what is there, whatever the limits let through. */
  override def reportLatestOffset(): AnyOffset = {
    val (running, taken) = synchronized((started, reached))
    val latest = running.flatMap(_.watch.seen).map(_.latest).getOrElse(Map.empty)
    taken
      .map(at => at.updated(latest.filter { case (p, offset) => at.get(p).forall(_ < offset) }))
      .map(VectorOffset(name, _))
      .orNull
  }

  override def metrics(latestConsumedOffset: Optional[AnyOffset]): JMap[String, String] = {
    val (running, taken) = synchronized((started, reached))
    PartitionMetrics
      .of(running.flatMap(_.watch.seen), taken, running.fold(noStarts)(_.starts.all), tally)
      .asJava
  }

  override def stop(): Unit = {
    val running = synchronized {
      stopped = true
      started
    }
    running.foreach { case Running(starts, reading, _) =>
      reading.close()
      starts.close()
    }
  }

  override def toString: String = description

  /** Where the query stands, for who looks at feeds. */
  def offsets: Map[String, Long] = synchronized(reached).fold(Map.empty[String, Long])(_.at)

  /** Begins with the first call that says where the stream stands, as a feed does. */
  private def runningFrom(known: Option[Positions]): Running = synchronized {
    started.getOrElse {
      if (stopped) throw new IllegalStateException(s"Source '$name' is stopped")
      val starts = openStarts()
      val running =
        try {
          val reading = openReading(starts.all.keySet ++ known.fold(Set.empty[String])(_.at.keySet))
          Running(starts, reading, new BatchPlanner(reading.watch, name, hasGaps, options.python.patience, nanoTime))
        } catch { case e: Throwable => starts.close(); throw e }
      started = Some(running)
      reached = reached.orElse(known)
      running
    }
  }

  /** Where a batch begins: where the query stands, and new partitions where they begin, which is written down first. None
    * while there are no partitions.
    */
  private def positionsFrom(
      known: Option[Positions],
      seen: PartitionWatch.Seen,
      starts: StartPositions
  ): Option[Positions] = {
    val naming = known.map(_.naming).orElse(starts.naming)
    if (naming.exists(_ != seen.naming) && seen.latest.nonEmpty)
      throw starts.changedNaming(naming.get, seen.naming)
    val fresh = seen.starts.filter { case (partition, _) =>
      !starts.all.contains(partition) && known.flatMap(_.get(partition)).isEmpty
    }
    if (fresh.nonEmpty) starts.add(Positions(seen.naming, fresh))
    val all = starts.all ++ known.fold(noStarts)(_.at)
    Option.when(all.nonEmpty)(Positions(naming.getOrElse(seen.naming), all))
  }

  /** How many offsets wait in each partition, those that have lost rows left out or refused. One that ends before its start
    * has not come so far yet: nobody has read of it.
    */
  private def waitingOf(
      from: Positions,
      latest: Map[String, Long],
      seen: PartitionWatch.Seen,
      starts: Map[String, Long]
  ): Map[String, Long] = {
    from.at.keysIterator.filter(seen.gone).foreach { partition =>
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
    if (warned.first(what))
      logWarning(s"$description has lost rows: $what. Going on, as failOnDataLoss is false.")
  }

  private def endWithin(
      from: Positions,
      waiting: Map[String, Long],
      admission: Admission,
      cuts: BatchPlanner
  ): Option[Positions] = {
    val sum = waiting.values.map(BigInt(_)).sum
    def cut: Option[Positions] = cuts.from(from, waiting, admission.maxRows)
    if (sum == 0 || isTooFew(sum, admission)) None
    else if (!synchronized(forAvailableNow)) cut
    else {
      // An offset that does not move would end the query.
      var end = cut
      while (end.isEmpty) {
        Thread.sleep(WaitMillis)
        end = cut
      }
      end
    }
  }

  /** Whether to wait for more rows. */
  private def isTooFew(rows: BigInt, admission: Admission): Boolean = {
    val (waited, forNow) = synchronized((nanoTime() - lastBatchAt, forAvailableNow))
    rows < admission.minRows && waited < admission.maxDelayNanos && !forNow
  }

  /** Waits here, in the first call, for all partitions to answer: an offset that does not move ends the query. */
  private def endOfAvailableNow(running: Running): Map[String, Long] = synchronized(fixedEnd).getOrElse {
    val isComplete = running.watch.awaitComplete(options.availableNowWait)
    running.watch.failure.foreach(e => throw failed(e))
    val seen = running.watch.seen.getOrElse(
      throw new FeedFailedException(
        s"Source '$name' did not say within ${options.availableNowWait / 1000000} ms which partitions it has. Set the option " +
          "availableNowWait to wait longer."
      )
    )
    if (!isComplete)
      logWarning(s"$description: not all partitions have said in time how far they go; those are left out")
    synchronized { fixedEnd = Some(seen.latest) }
    seen.latest
  }

  private def failed(e: Throwable): Throwable = e match {
    case said: FeedFailedException =>
      new FeedFailedException(s"Source '$name' failed: ${said.getMessage}", said)
    case other => other
  }

  /** By its JSON only: offsets that come from Spark's log are not of our class. */
  private def parse(offset: AnyOffset): VectorOffset = {
    val parsed = VectorOffset.parse(offset.json)
    OffsetJson.checkSource(parsed.source, name, offset.json)
    parsed
  }
}

private[headwater] object PartitionedSource {

  private final case class Running(starts: StartPositions, reading: RunningPartitions, cuts: BatchPlanner) {
    def watch: PartitionWatch = reading.watch
  }

  private val WaitMillis = 20L

  private val noStarts = Map.empty[String, Long]

  /** Says of each thing once that it is new. */
  private final class Once {
    @GuardedBy("this") private[this] var said = Set.empty[String]

    def first(what: String): Boolean = synchronized {
      val isNew = !said(what)
      said += what
      isNew
    }
  }
}
