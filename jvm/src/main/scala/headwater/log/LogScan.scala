package headwater.log

import java.io.IOException

import scala.collection.mutable
import scala.util.{Try, Using}

import headwater.InvalidOffsetException
import headwater.core.{Cursor, LostRows, StoredRows}
import org.apache.spark.internal.Logging

/** The content of a log, found by reading the headers of all its frames: at a start, and for reports.
  *
  * @param rows
  *   in order, each with the seq of its first row
  * @param lost
  *   in order: exactly the gaps in `rows`
  * @param epoch
  *   the newest of its segments; 0 without any
  * @param next
  *   the seq of the next row
  * @param commits
  *   the commits of Spark that the log still records
  * @param torn
  *   segments that contain nothing and of which nothing is missing
  * @param account
  *   for reports
  */
private[headwater] final case class LogScan(
    rows: Vector[(Long, StoredRows)],
    lost: Vector[LostRows],
    epoch: Long,
    segments: Vector[LogScan.Segment],
    cursors: Map[Int, String],
    commits: Vector[Long],
    next: Long,
    torn: Vector[String],
    account: LogScan.Account
) {

  /** The seq of the oldest row, lost or not; `next` if there is none. */
  def first: Long = (rows.headOption.map(_._1) ++ lost.headOption.map(_.first)).minOption.getOrElse(next)
}

/** A log was changed while it was read for a report. Reading it again helps. */
private[log] final class LogChangedException(message: String) extends IOException(message)

private[headwater] object LogScan extends Logging {

  /** @param last the seq of its last row; one below its first if it has none */
  final case class Segment(name: String, first: Long, last: Long, bytes: Long)

  /** How the scan went.
    *
    * @param segments
    *   all of them, also those without a readable header
    * @param writers
    *   source and run, as the headers of the segments have them
    * @param oldest
    *   the seq with which the oldest segment begins
    * @param end
    *   the seq after the last row. [[LogScan.next]] is larger where rows are lost at the end
    */
  final case class Account(
      findings: Vector[Finding],
      segments: Vector[Content],
      writers: Vector[(String, String)],
      oldest: Option[Long],
      end: Long
  )

  /** What one segment contains.
    *
    * @param frames
    *   all that are intact
    * @param rows
    *   those that count, with the first and the last of them
    */
  final case class Content(name: String, bytes: Long, frames: Long, rows: Long, range: Option[(Long, Long)]) {
    def addFrame: Content = copy(frames = frames + 1)

    def addRows(first: Long, last: Long): Content =
      copy(rows = rows + last - first + 1, range = Some((range.fold(first)(_._1), last)))
  }

  /** Frames are combined up to this size, so that the index of a long log stays small. */
  val BlockBytes: Long = 512 << 10

  /** @param manifest
    *   None if there is no log yet
    * @param first
    *   the seq of the first row of the log
    * @throws InvalidOffsetException
    *   when the folder has a segment of another log
    */
  def of(files: LogFolder, manifest: Option[Manifest], first: Long): LogScan =
    new Scanner(files, manifest, first, isReport = false).result

  /** The same scan for a report: it also verifies what recovery leaves to the tasks, continues where recovery stops,
    * and lists damage that recovery refuses.
    *
    * @throws LogChangedException
    *   when a running query changes the log meanwhile
    */
  def report(files: LogFolder, manifest: Option[Manifest]): LogScan =
    new Scanner(files, manifest, manifest.fold(0L)(_.first), isReport = true).result

  private final class Scanner(
      files: LogFolder,
      manifest: Option[Manifest],
      first: Long,
      isReport: Boolean
  ) {
    private[this] val rows = Vector.newBuilder[(Long, StoredRows)]
    private[this] val lost = Vector.newBuilder[LostRows]
    private[this] val segments = Vector.newBuilder[Segment]
    private[this] val commits = Vector.newBuilder[Long]
    private[this] val cursors = mutable.Map.empty[Int, String]
    private[this] val torn = Vector.newBuilder[String]
    private[this] var expected = first
    private[this] val durable = manifest.fold(first)(_.next)
    private[this] var damage: Option[String] = None
    private[this] val findings = new Findings(first)
    private[this] val contents = mutable.ArrayBuffer.empty[Content]
    private[this] val writers = mutable.LinkedHashSet.empty[(String, String)]

    private[this] val named = files.list().flatMap(name => SegmentHeader.parse(name).map(_ -> name)).sorted

    def result: LogScan = {
      val headers = named.map(_._2).map(name => name -> headerOf(name)).filter { case (name, header) =>
        header.fold(_ => !isUnknown(name), { case (_, header) => isOwn(name, header) })
      }
      val names = headers.map(_._1)
      val firsts = headers.map(_._2.map { case (_, header) => header.first }.getOrElse(Long.MaxValue))
      // A segment ends where a later segment begins.
      val limits = firsts.scanRight(Long.MaxValue)(math.min).tail
      // Rows before the oldest segment were dropped, unless its header cannot be read.
      firsts.headOption.filter(_ < Long.MaxValue).foreach { oldest =>
        expected = math.max(expected, oldest)
        findings.beginWith(oldest)
      }
      val last = firsts.lastIndexWhere(_ < Long.MaxValue)
      val lastOfEpoch = names.zipWithIndex.map { case (name, i) => epochOf(name) -> i }.toMap
      headers.zip(limits).zipWithIndex.foreach {
        case (((name, Right((start, header))), limit), i) =>
          val takeover = limits(lastOfEpoch(epochOf(name)))
          read(name, start, header, limit, takeover, isLast = i == last)
        case (((name, Left(fault)), limit), _) => skip(name, fault, limit)
      }
      // The manifest shows that this was not a torn tail. Without any damage, a segment is missing: see Recovery.
      if (damage.nonEmpty) lostUpTo(durable)
      findings.finish()
      cursorFault.foreach { case (name, what) => findings.damage(name, 0, what) }
      LogScan(
        rows.result(),
        lost.result(),
        headers.collect { case (_, Right((_, header))) => header.epoch }.maxOption.getOrElse(0L),
        segments.result(),
        cursors.toMap,
        commits.result(),
        expected,
        torn.result(),
        Account(
          findings.result,
          contents.sortBy(content => SegmentHeader.parse(content.name)).toVector,
          writers.toVector,
          firsts.find(_ < Long.MaxValue),
          findings.end
        )
      )
    }

    private def epochOf(name: String): Long = SegmentHeader.parse(name).fold(0L)(_._1)

    private def headerOf(name: String): Either[HeaderFault, (Long, SegmentHeader)] =
      Using.resource(open(name))(_.opened)

    private def open(name: String, assumed: Option[FrameFormat] = None): SegmentFile =
      new SegmentFile(files.pathOf(name), files.read(name), assumed)

    /** Whether a file without a readable header cannot be of this log: its epoch has not begun. */
    private def isUnknown(name: String): Boolean = manifest.exists(epochOf(name) > _.epoch) && {
      val what = "it is not a segment of this log: no start has reached its epoch"
      if (isReport) {
        contents += Content(name, Using.resource(files.read(name))(_.length), 0, 0, None)
        findings.ignored(name, 0, what)
      } else logWarning(s"${files.pathOf(name)} is ignored: $what")
      true
    }

    /** Whether a segment is of this log, under its own name. */
    private def isOwn(name: String, header: SegmentHeader): Boolean = {
      val owner = manifest.map(manifest => (manifest.source, manifest.run)).orElse(writers.headOption)
      writers += ((header.source, header.run))
      val isOwn = owner.forall(_ == (header.source, header.run)) && header.name == name
      if (!isOwn) {
        val what =
          s"its header is that of source ${header.source}, run ${header.run}, epoch ${header.epoch}, number ${header.number}"
        if (!isReport)
          throw new InvalidOffsetException(
            s"${files.pathOf(name)} is not a segment of this log: $what. Move it to another folder, and put back what it " +
              "has replaced."
          )
        contents += Content(name, Using.resource(files.read(name))(_.length), 0, 0, None)
        findings.damage(name, 0, what)
      }
      isOwn
    }

    /** Why no segment could be begun with these cursors. */
    private def cursorFault: Option[(String, String)] =
      contents.lastOption.map(_.name).flatMap(name => SegmentHeader.cursorFault(cursors.toMap).map(name -> _))

    /** A segment without a readable header. Nothing of it counts; all but its last sync group was durable. */
    private def skip(name: String, fault: HeaderFault, limit: Long): Unit = {
      val (epoch, number) = SegmentHeader.parse(name).get
      val format = manifest
        .filter(_.key.nonEmpty)
        .map(manifest => new FrameFormat.V2(manifest.key, epoch, number): FrameFormat)
      val durableUpTo = Using.resource(open(name, Some(format.getOrElse(FrameFormat.V1)))) { file =>
        if (isReport && file.opened.isRight) throw new LogChangedException(s"${file.path} was just created")
        contents += Content(name, file.length, 0, 0, None)
        format.map(_ => file.groups).filter(_.nonEmpty).map { groups =>
          groups
            .zip(groups.drop(1))
            .map { case (from, until) => file.framesFrom(from, until).map(_.next).maxOption.getOrElse(0L) }
            .maxOption
        }
      } orElse Option
        .when(mayBeFormat1(epoch)) {
          // Nothing of format 1 can be believed here: one row stands for what may have been in it.
          Using.resource(open(name, Some(FrameFormat.V1))) { file =>
            file.searchGroup(0).map(at => file.searchGroup(at + 1).map(_ => expected + 1))
          }
        }
        .flatten
      val isTorn =
        durableUpTo.isEmpty && fault.canBeTorn && (limit < Long.MaxValue || durable <= expected)
      findings.fault(name, 0, fault.what, isCertain = !isTorn)
      if (isTorn && (limit == Long.MaxValue || limit <= expected)) torn += name
      else {
        damage = Some((damage.toSeq :+ s"${files.pathOf(name)} is damaged: ${fault.what}").mkString("; "))
        if (limit == Long.MaxValue) durableUpTo.flatten.foreach(lostUpTo)
      }
    }

    /** An epoch whose manifest has format 2 writes no other. */
    private def mayBeFormat1(epoch: Long): Boolean = manifest.forall(m => m.key.isEmpty || epoch < m.epoch)

    private def read(
        name: String,
        start: Long,
        header: SegmentHeader,
        limit: Long,
        takeover: Long,
        isLast: Boolean
    ): Unit =
      Using.resource(open(name)) { file =>
        contents += Content(name, file.length, 0, 0, None)
        if (header.first < limit) findings.continueWith(header.first, name, 0, "the segment begins with row")
        lostUpTo(math.min(header.first, limit)) // a replaced writer may have begun later
        cursors.clear()
        cursors ++= header.cursors
        var position = start
        var rowGroup = Vector.empty[(Long, Frame)]
        var block = Block.none
        var gap = Option.empty[String] // after which no frame has stated the next seq yet
        // The first and the last frame whose rows are those of a later segment.
        var superseded = Vector.empty[(Long, Frame)]
        var isSuperseded = false
        var isOver = false
        while (!isOver) {
          readFrame(file, position, isLast) match {
            case Right(frame)
                if isSuperseded || frame.isRows && frame.seq + math.min(frame.rows, 1) > limit =>
              isSuperseded = true
              if (isReport) {
                addFrame()
                if (frame.rows > 0) superseded = superseded.take(1) :+ (position -> frame)
                position += frame.length
              } else isOver = true
            case Right(frame) =>
              addFrame()
              if (frame.isRows) {
                rowGroup :+= position -> frame
                if (!frame.hasMore) {
                  block = addRowGroup(file.path, rowGroup, block)
                  rowGroup = Vector.empty
                  gap = None
                }
              } else commits += frame.seq
              position += frame.length
            case Left(_) if position >= file.length => isOver = true
            case Left((what, isCertain)) =>
              val nextGroup = file.nextGroup(position)
              val isUnneeded = isSuperseded || findings.next >= takeover
              if (isUnneeded) findings.ignored(name, position, s"$what, after everything that counts")
              else {
                val reason = (what +: incomplete(rowGroup).toSeq).mkString("; ")
                findings.fault(
                  name,
                  position,
                  reason,
                  isCertain || nextGroup != NextGroup.None || isLast && expected < durable
                )
              }
              rowGroup = Vector.empty
              if (nextGroup != NextGroup.None) {
                addBlock(block)
                block = Block.none
                gap = Some(s"${file.path} is damaged at byte $position")
                damage = gap
              }
              nextGroup match {
                case NextGroup.At(group) => position = group
                case NextGroup.Unproven | NextGroup.None =>
                  isOver = true // a torn tail, unless the next segment begins after it
              }
          }
        }
        addBlock(block)
        incomplete(rowGroup).foreach(findings.ignored(name, position, _))
        superseded.headOption.foreach { case (at, frame) =>
          val rows = Finding.span(frame.seq, superseded.last._2.next - 1)
          findings.ignored(name, at, s"$rows not used: a later segment begins with row $limit")
        }
        // Only commits or an incomplete row group follow: the number of lost rows may be unknown. One row stands for them.
        if (isLast && gap.nonEmpty)
          lostUpTo(math.max(durable, math.max(expected, commits.result().lastOption.getOrElse(-1L)) + 1))
        if (damage.isEmpty && position < file.length)
          damage = Some(s"${file.path} is damaged at byte $position")
        segments += Segment(name, header.first, expected - 1, file.length)
      }

    /** A valid frame; or what is wrong, and whether it was written like this. Recovery verifies payloads only in the
      * last segment: tasks verify the others when they read them.
      */
    private def readFrame(
        file: SegmentFile,
        position: Long,
        isLast: Boolean
    ): Either[(String, Boolean), Frame] =
      file.readFrame(position).left.map(what => (what, false)).flatMap { frame =>
        if ((isLast || isReport) && !file.isPayloadIntact(frame, position))
          Left(("the checksum of the frame payload is wrong", false))
        else if (isReport && frame.isRows && Try(frame.cursor).isFailure)
          Left(("the note of the frame cannot be read", true))
        else Right(frame)
      }

    private def addFrame(): Unit = contents(contents.length - 1) = contents.last.addFrame

    /** The rows of a row group whose last frame is missing. */
    private def incomplete(rowGroup: Vector[(Long, Frame)]): Option[String] =
      Option.when(rowGroup.exists(_._2.rows > 0)) {
        val rows = Finding.span(rowGroup.head._2.seq, rowGroup.last._2.next - 1)
        s"$rows before it belong to a row group that was not completed"
      }

    /** Adds a complete row group. */
    private def addRowGroup(path: String, rowGroup: Vector[(Long, Frame)], before: Block): Block = {
      var block = before
      rowGroup.foreach { case (position, frame) =>
        findings.continueWith(frame.seq, contents.last.name, position, "the frame is numbered")
        if (frame.seq > expected) {
          addBlock(block)
          block = Block.none
          lostUpTo(frame.seq)
        }
        val counts = frame.rows > 0 && frame.seq == expected
        findings.advanceTo(frame.next, counts)
        if (counts) {
          contents(contents.length - 1) = contents.last.addRows(frame.seq, frame.next - 1)
          if (!block.fits(frame)) {
            addBlock(block)
            block = Block.none
          }
          block = block.add(path, position, frame)
          expected = frame.next
        }
        frame.cursor.foreach { case Cursor(shard, json) => cursors(shard) = json }
      }
      block
    }

    private def addBlock(block: Block): Unit = block.rows.foreach(stored => rows += block.first -> stored)

    /** Records the rows before `seq` as lost. */
    private def lostUpTo(seq: Long): Unit = {
      if (expected < seq) {
        val why = damage.getOrElse(s"a segment is missing before row $seq in ${files.pathOf("")}")
        lost += LostRows(expected, seq - 1, why)
        expected = seq
      }
      damage = None
    }
  }

  /** Adjacent frames of one segment. Frames without rows may lie between them. */
  private[log] final case class Block(first: Long, rows: Option[StoredRows]) {
    def fits(frame: Frame): Boolean = rows.forall { stored =>
      stored.byteSize + frame.rawBytes <= BlockBytes && stored.count.toLong + frame.rows <= Int.MaxValue
    }

    def add(path: String, position: Long, frame: Frame): Block = rows match {
      case None =>
        Block(frame.seq, Some(StoredRows(path, position, frame.length, frame.rows, frame.rawBytes.toLong)))
      case Some(stored) =>
        val more = stored.copy(
          length = position + frame.length - stored.position,
          count = stored.count + frame.rows,
          byteSize = stored.byteSize + frame.rawBytes
        )
        Block(first, Some(more))
    }
  }

  private[log] object Block {
    val none: Block = Block(-1, None)
  }
}
