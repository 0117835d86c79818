package headwater.log

import java.io.{FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.NoSuchFileException

import scala.collection.immutable.TreeMap
import scala.util.Try
import scala.util.control.NonFatal

import com.fasterxml.jackson.core.JsonProcessingException
import headwater.core.{Durability, PartitionKeyType, Positions, SeqOffset, StreamOffset, VectorOffset}
import headwater.partition.StartPositions
import headwater.partition.StartPositions.{IncompleteFileException, StartFile}

/** What a checkpoint contains: the progress that Spark records, and beside it the logs and the start positions of
  * headwater's sources.
  *
  * @param lastBatch
  *   the last batch that Spark has begun
  * @param lastCommit
  *   the last batch that it has finished
  * @param again
  *   the batch that Spark runs again at the next start
  * @param problem
  *   why the offsets cannot be understood
  */
private[log] final case class CheckpointFacts(
    path: String,
    lastBatch: Option[Long],
    lastCommit: Option[Long],
    again: Option[Long],
    problem: Option[String],
    sources: Vector[SourceFacts]
) {
  def isDamaged: Boolean = sources.exists(_.findings.exists(_.kind == Finding.Damage))
}

/** One source of the query.
  *
  * @param folder
  *   within the checkpoint
  * @param name
  *   None if nothing states it
  * @param offset
  *   of the last batch that was begun
  * @param committed
  *   of the last batch that is finished
  */
private[log] final case class SourceFacts(
    folder: String,
    kind: SourceFacts.Kind,
    name: Option[String],
    offset: Option[StreamOffset],
    committed: Option[StreamOffset],
    findings: Vector[Finding]
)

private[log] object SourceFacts {
  sealed abstract class Kind(val name: String)

  /** @param log None if Spark's offset refers to a log that does not exist */
  final case class Logged(log: Option[LogFacts], again: Option[RowsAgain]) extends Kind("log")
  case object InMemory extends Kind("memory")

  /** @param keyType None while no file and no offset states it */
  final case class Partitioned(
      keyType: Option[PartitionKeyType],
      startFiles: Int,
      starts: Map[String, Long],
      again: Option[RangesAgain]
  ) extends Kind("partitioned") {
    def sorted(positions: Map[String, Long]): Vector[(String, Long)] = keyType match {
      case Some(keys) if positions.keys.forall(keys.isPartition) =>
        TreeMap.from(positions)(keys.order).toVector
      case _ => positions.toVector.sorted
    }
  }

  case object Other extends Kind("other")

  /** The batch that is run again, with its rows in this source.
    *
    * @param rows
    *   None if it has none
    */
  final case class RowsAgain(batch: Long, rows: Option[(Long, Long)], missing: Vector[(Long, Long)])

  /** The batch that is run again, with the offsets of each partition: the first, and the one after the last. */
  final case class RangesAgain(batch: Long, ranges: Vector[(String, Long, Long)])
}

/** A log as a whole.
  *
  * @param ranges
  *   of the rows that the log contains
  */
private[log] final case class LogFacts(
    manifest: Option[Manifest],
    scan: LogScan,
    ranges: Vector[(Long, Long)],
    findings: Vector[Finding]
) {
  def source: Option[String] = manifest.map(_.source).orElse(scan.account.writers.lastOption.map(_._1))

  def runs: Set[String] = manifest.fold(scan.account.writers.map(_._2).toSet)(manifest => Set(manifest.run))

  /** The last row that Spark has committed; -1 if there is none. */
  def committed: Long = scan.commits.maxOption.getOrElse(-1L)

  def rows: Long = ranges.map { case (first, last) => last - first + 1 }.sum

  def waiting: Long = ranges.map { case (first, last) =>
    math.max(last - math.max(first, committed + 1) + 1, 0)
  }.sum

  /** The rows between `first` and `last` that the log does not contain. */
  def missing(first: Long, last: Long): Vector[(Long, Long)] = {
    val (gaps, next) = ranges.takeWhile(_._1 <= last).foldLeft((Vector.empty[(Long, Long)], first)) {
      case ((gaps, next), (begin, end)) =>
        (if (begin > next) gaps :+ ((next, begin - 1)) else gaps, math.max(next, end + 1))
    }
    if (next <= last) gaps :+ ((next, last)) else gaps
  }
}

private[log] object LogFacts {

  def read(folder: LogFolder): LogFacts = {
    val newest = Manifest.newest(folder)
    val manifest = newest.map { case (name, text) =>
      try Right(Manifest.parse(text))
      catch {
        case e: RuntimeException =>
          Left(Finding(Finding.Damage, name, 0, s"the manifest cannot be read: ${e.getMessage}"))
      }
    }
    val scan = LogScan.report(folder, manifest.flatMap(_.toOption))
    val missing = Option.when(newest.isEmpty && scan.account.segments.nonEmpty) {
      Finding(Finding.Damage, "manifest", 0, "there are segments, and no manifest")
    }
    val unfinished = newest.toVector.flatMap { case (chosen, _) =>
      Manifest.names(folder).dropWhile(_ <= chosen).map { name =>
        Finding(Finding.Ignored, name, 0, s"the manifest was not written to its end: $chosen counts")
      }
    }
    val cut = manifest.flatMap(_.toOption).filter(_.next > scan.next).map { manifest =>
      val what = s"rows up to ${manifest.next - 1} were durable when the manifest was written"
      Finding(Finding.Damage, manifest.name, 0, what, Some((scan.next, Some(manifest.next - 1))))
    }
    val findings = manifest.flatMap(_.left.toOption) ++ missing ++ unfinished ++ scan.account.findings ++ cut
    LogFacts(manifest.flatMap(_.toOption), scan, rangesOf(scan), findings.toVector)
  }

  private def rangesOf(scan: LogScan): Vector[(Long, Long)] =
    scan.rows
      .map { case (first, stored) => (first, first + stored.count - 1) }
      .foldLeft(Vector.empty[(Long, Long)]) {
        case (before :+ ((first, last)), (next, end)) if next == last + 1 => before :+ ((first, end))
        case (before, range) => before :+ range
      }
}

private[log] object CheckpointFacts {
  import SourceFacts._

  /** A query may run meanwhile. Offsets are read first and commits last, so that no row of it seems to be missing: rows
    * are durable before Spark records them in `offsets`, and are dropped after it has recorded them in `commits`.
    *
    * @throws CheckpointException
    *   when there is no checkpoint, or it cannot be read
    */
  def read(location: String): CheckpointFacts =
    try read(CheckpointFolder.open(location))
    catch { case e: IOException => throw CheckpointFolder.unreadable(location, e) }

  private def read(folder: CheckpointFolder): CheckpointFacts = {
    val begun = batches(folder, "offsets")
    val lastBatch = begun.lastOption
    val last = lastBatch.map(readBatch(folder, _))
    val previous = lastBatch.map(_ - 1).filter(begun.contains).map(readBatch(folder, _))
    val names =
      folder.list("sources").filter(name => !name.startsWith(".") && folder.isFolder("sources", name))
    val contents = names.map(name => name -> readContent(folder.folder("sources", name))).toMap
    val lastCommit = batches(folder, "commits").filter(number => lastBatch.forall(number <= _)).lastOption
    val again = lastBatch.filterNot(lastCommit.contains)
    val unclear = Seq(last, previous).flatten.flatMap(_.problem).headOption
    val problem = lastBatch match {
      case Some(number) if number > 0 && previous.isEmpty =>
        Some(s"offsets/${number - 1} is missing, with which batch $number begins")
      case _ => unclear
    }
    val progress = Progress(lastBatch, again, problem.isEmpty)
    val sources = sourceNames(names, last, contents).map { name =>
      val content = contents.getOrElse(name, Content(None, None))
      source(name, content, offsetOf(last, name, content), offsetOf(previous, name, content), progress)
    }
    CheckpointFacts(folder.path, lastBatch, lastCommit, again, problem, sources)
  }

  /** @param isClear the offsets can be understood */
  private final case class Progress(lastBatch: Option[Long], again: Option[Long], isClear: Boolean)

  /** The offsets of one batch, by source. None where Spark has none, or where it is not headwater's. */
  private final case class Batch(offsets: Vector[Option[StreamOffset]], problem: Option[String])

  private final case class Content(log: Option[LogFacts], starts: Option[Starts]) {
    def owns(offset: StreamOffset): Boolean = offset match {
      case offset: SeqOffset => log.exists(_.runs.contains(offset.run))
      case offset: VectorOffset => starts.exists(_.source.contains(offset.source))
      case _ => false
    }
  }

  /** The start positions of a partitioned source. */
  private final case class Starts(
      files: Int,
      source: Option[String],
      keyType: Option[PartitionKeyType],
      positions: Map[String, Long],
      findings: Vector[Finding]
  )

  private val Number = "[0-9]{1,18}".r
  private val MaxBytes = 16 << 20

  /** Spark's checksums and temporary files have other names. */
  private def batches(folder: CheckpointFolder, name: String): Seq[Long] =
    folder.list(name).filter(Number.matches).map(_.toLong).sorted

  private def readBatch(folder: CheckpointFolder, number: Long): Batch = {
    def unknown(why: String) = Batch(Vector.empty, Some(s"offsets/$number is not understood: $why"))
    CheckpointFolder.bytes(folder.folder("offsets"), number.toString, MaxBytes) match {
      case None => unknown(s"it is larger than $MaxBytes bytes")
      case Some(bytes) =>
        val lines = new String(bytes, UTF_8).split("\r\n|\r|\n", -1).toVector
        val offsets = (if (lines.last.isEmpty) lines.init else lines).drop(2)
        if (lines.head != "v1")
          unknown(s"its first line is '${ReportText.shortened(lines.head)}', this headwater reads v1")
        else Batch(offsets.map(parseOffset), None)
    }
  }

  private def parseOffset(line: String): Option[StreamOffset] =
    Try(SeqOffset.parse(line)).orElse(Try(VectorOffset.parse(line))).toOption

  private def readContent(folder: LogFolder): Content = CheckpointFolder.stable(folder) {
    Content(
      Option.when(CheckpointFolder.isLog(folder))(LogFacts.read(folder)),
      Option(StartPositions.names(folder)).filter(_.nonEmpty).map(readStarts(folder, _))
    )
  }

  /** As [[StartPositions]] reads them, without a lock. */
  private def readStarts(folder: LogFolder, names: Seq[String]): Starts =
    names.foldLeft(Starts(names.length, None, None, Map.empty, Vector.empty)) { (starts, name) =>
      def finding(kind: Finding.Kind, what: String) =
        starts.copy(findings = starts.findings :+ Finding(kind, name, 0, what))
      try {
        val file = StartFile.read(folder, name)
        if (starts.source.exists(_ != file.source))
          finding(
            Finding.Damage,
            s"it is of source ${file.source}, the files before it are of ${starts.source.get}"
          )
        else if (starts.keyType.exists(_ != file.keyType))
          finding(Finding.Damage, "its partitions are identified in another way than in the files before it")
        else
          starts.copy(
            source = Some(file.source),
            keyType = Some(file.keyType),
            positions = file.starts ++ starts.positions
          )
      } catch {
        case e @ (_: NoSuchFileException | _: FileNotFoundException) => throw e
        case e: IncompleteFileException if name == names.last =>
          finding(Finding.Torn, s"the start positions were not written to their end: ${firstLine(e)}")
        case NonFatal(e) => finding(Finding.Damage, s"the start positions cannot be read: ${firstLine(e)}")
      }
    }

  private def firstLine(e: Throwable): String = {
    val message = e match {
      case e: JsonProcessingException => e.getOriginalMessage
      case _ => e.getMessage
    }
    Option(message).flatMap(_.linesIterator.nextOption()).getOrElse(e.getClass.getSimpleName)
  }

  /** The sources with a folder, and those with only an offset: a source without a log needs no folder. */
  private def sourceNames(
      folders: Seq[String],
      last: Option[Batch],
      contents: Map[String, Content]
  ): Vector[String] = {
    val named = contents.filterNot { case (name, _) => isNumber(name) }.values
    val numbers = last.toVector.flatMap(_.offsets.zipWithIndex).collect {
      case (offset, i) if !offset.exists(offset => named.exists(_.owns(offset))) => i.toString
    }
    (folders ++ numbers).distinct.sortBy(name => (!isNumber(name), "0" * (20 - name.length) + name)).toVector
  }

  private def isNumber(name: String): Boolean = Number.matches(name)

  /** Spark numbers its sources. One that has a name instead is known by its run, or by the name of the source. */
  private def offsetOf(batch: Option[Batch], name: String, content: Content): Option[StreamOffset] =
    batch.map(_.offsets).flatMap { offsets =>
      if (isNumber(name)) offsets.lift(name.toLong.min(Int.MaxValue.toLong).toInt).flatten
      else offsets.flatten.find(content.owns)
    }

  private def source(
      name: String,
      content: Content,
      offset: Option[StreamOffset],
      started: Option[StreamOffset],
      progress: Progress
  ): SourceFacts = {
    val folder = s"sources/$name"
    val committed = if (progress.again.isEmpty) offset else started
    def facts(kind: Kind, name: Option[String], findings: Vector[Finding]) =
      SourceFacts(folder, kind, name, offset, committed, findings)
    (content, offset.orElse(started)) match {
      case (Content(None, _), Some(known: SeqOffset)) if known.durability == Durability.Memory =>
        facts(InMemory, Some(known.source), Vector.empty)
      case (Content(None, starts), known @ (Some(_: VectorOffset) | None))
          if starts.nonEmpty || known.nonEmpty =>
        val (kind, findings) = partitioned(starts, vector(offset), vector(started), progress)
        val source = starts.flatMap(_.source).orElse(known.collect { case VectorOffset(source, _) => source })
        facts(kind, source, findings)
      case (Content(None, None), None) => facts(Other, None, Vector.empty)
      case (Content(log, _), known) =>
        val (kind, findings) = logged(folder, log, seq(offset), seq(started), progress)
        val source = log.flatMap(_.source).orElse(seq(known).map(_.source))
        facts(kind, source, findings)
    }
  }

  private def seq(offset: Option[StreamOffset]): Option[SeqOffset] = offset.collect { case seq: SeqOffset =>
    seq
  }

  private def vector(offset: Option[StreamOffset]): Option[Positions] =
    offset.collect { case VectorOffset(_, next) => next }

  private def logged(
      folder: String,
      log: Option[LogFacts],
      offset: Option[SeqOffset],
      started: Option[SeqOffset],
      progress: Progress
  ): (Logged, Vector[Finding]) = {
    val again = for {
      batch <- progress.again if progress.isClear
      end <- offset
      log <- log if log.runs.contains(end.run)
    } yield {
      val first = started.map(_.seq + 1).orElse(log.manifest.map(_.first)).getOrElse(0L)
      val rows = Option.when(first <= end.seq)((first, end.seq))
      RowsAgain(
        batch,
        rows,
        rows.fold(Vector.empty[(Long, Long)]) { case (first, last) => log.missing(first, last) }
      )
    }
    val incomplete = again.toVector.flatMap { again =>
      val what = s"batch ${again.batch} is to be run again, and not all of it is there"
      again.missing.map { case (first, last) =>
        Finding(Finding.Damage, s"offsets/${again.batch}", 0, what, Some((first, Some(last))))
      }
    }
    val mismatch = offset.orElse(started).flatMap(compare(folder, log, _, progress))
    (Logged(log, again), log.fold(Vector.empty[Finding])(_.findings) ++ mismatch ++ incomplete)
  }

  /** What is wrong between Spark's offset and the log, apart from a batch that is to be run again. */
  private def compare(
      folder: String,
      log: Option[LogFacts],
      offset: SeqOffset,
      progress: Progress
  ): Option[Finding] = {
    val file = s"offsets/${progress.lastBatch.getOrElse("")}"
    def damage(what: String, lost: Option[(Long, Option[Long])] = None) =
      Some(Finding(Finding.Damage, file, 0, what, lost))
    val isFinished = progress.isClear && progress.again.isEmpty
    log match {
      case None =>
        damage(s"Spark's offset says that the rows of ${offset.source} are in a log, $folder has none")
      case Some(_) if offset.durability == Durability.Memory =>
        val what = "Spark's offset says that the rows were in memory, yet there is a log"
        Some(Finding(Finding.Ignored, file, 0, what))
      case Some(log) if !log.runs.contains(offset.run) =>
        val isBegun = log.manifest.exists(Recovery.beginsBehind(_, offset)) && log.scan.commits.isEmpty
        if (isBegun) None
        else damage(s"Spark's offset is of run ${offset.run}, the log in $folder of another")
      case Some(log) if isFinished && log.scan.account.oldest.exists(_ > offset.seq + 1) =>
        val oldest = log.scan.account.oldest.get
        damage(
          s"Spark resumes after row ${offset.seq}, the log in $folder begins with row $oldest",
          Some((offset.seq + 1, Some(oldest - 1)))
        )
      case Some(log)
          if isFinished && log.scan.account.segments.nonEmpty && log.scan.account.end <= offset.seq =>
        val end = log.scan.account.end
        damage(
          s"Spark has rows up to ${offset.seq}, the log in $folder ends before row $end",
          Some((end, Some(offset.seq)))
        )
      case _ => None
    }
  }

  private def partitioned(
      starts: Option[Starts],
      offset: Option[Positions],
      started: Option[Positions],
      progress: Progress
  ): (Partitioned, Vector[Finding]) = {
    val positions = starts.fold(Map.empty[String, Long])(_.positions)
    val file = s"offsets/${progress.lastBatch.getOrElse("")}"
    val ranges =
      offset.toVector.filter(_ => progress.isClear).flatMap(_.at.toVector).map { case (partition, until) =>
        (partition, started.flatMap(_.get(partition)).orElse(positions.get(partition)), until)
      }
    val findings = ranges.collect {
      case (partition, None, _) =>
        val what =
          s"where partition ${ReportText.shortened(partition)} began is not known: its start position is gone"
        Finding(Finding.Damage, file, 0, what)
      case (partition, Some(from), until) if until < from =>
        val what = s"partition ${ReportText.shortened(partition)} goes back from $from to $until"
        Finding(Finding.Damage, file, 0, what)
    }
    val again = progress.again.filter(_ => progress.isClear && offset.nonEmpty).map { batch =>
      RangesAgain(
        batch,
        ranges.collect { case (partition, Some(from), until) if from < until => (partition, from, until) }
      )
    }
    val keyType = starts.flatMap(_.keyType).orElse(offset.map(_.keyType)).orElse(started.map(_.keyType))
    val kind = Partitioned(keyType, starts.fold(0)(_.files), positions, again)
    (kind, starts.fold(Vector.empty[Finding])(_.findings) ++ findings)
  }
}
