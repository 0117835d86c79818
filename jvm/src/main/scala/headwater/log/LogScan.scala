package headwater.log

import java.io.IOException

import scala.collection.mutable
import scala.util.Using

import headwater.core.{Cursor, LostRows, Rows, StoredRows}

/** The content of a log, found by reading the headers of all its frames: at a start, and for reports.
  *
  * @param rows
  *   in order, each with the seq of its first row; without gaps, since missing rows are [[LostRows]]
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
    rows: Vector[(Long, Rows)],
    segments: Vector[LogScan.Segment],
    cursors: Map[Int, String],
    commits: Vector[Long],
    next: Long,
    torn: Vector[String],
    account: LogScan.Account
)

/** A log was changed while it was read for a report. Reading it again helps. */
private[log] final class LogChangedException(message: String) extends IOException(message)

private[headwater] object LogScan {

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

  /** @param first the seq of the first row of the log */
  def of(files: LogFolder, first: Long): LogScan = new Scanner(files, first, None, isReport = false).result

  /** The same scan for a report: it also verifies what recovery leaves to the tasks, continues where recovery stops,
    * and lists damage that recovery refuses.
    *
    * @throws LogChangedException
    *   when a running query changes the log meanwhile
    */
  def report(files: LogFolder, manifest: Option[Manifest]): LogScan = {
    val writer = manifest.map(manifest => (manifest.source, manifest.run))
    new Scanner(files, manifest.fold(0L)(_.first), writer, isReport = true).result
  }

  /** The newest epoch of all segments, whatever they contain; 0 if there are none. */
  def newestEpoch(files: LogFolder): Long =
    files.list().flatMap(SegmentHeader.parse(_)).map(_._1).maxOption.getOrElse(0L)

  private final class Scanner(
      files: LogFolder,
      first: Long,
      writer: Option[(String, String)],
      isReport: Boolean
  ) {
    private[this] val rows = Vector.newBuilder[(Long, Rows)]
    private[this] val segments = Vector.newBuilder[Segment]
    private[this] val commits = Vector.newBuilder[Long]
    private[this] val cursors = mutable.Map.empty[Int, String]
    private[this] val torn = Vector.newBuilder[String]
    private[this] var expected = first
    private[this] var damage: Option[String] = None
    private[this] val findings = new Findings(first)
    private[this] val contents = mutable.ArrayBuffer.empty[Content]
    private[this] val writers = mutable.LinkedHashSet.empty[(String, String)]

    private[this] val names =
      files.list().flatMap(name => SegmentHeader.parse(name).map(_ -> name)).sorted.map(_._2)

    def result: LogScan = {
      val headers = names.map(name => name -> headerOf(name))
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
      findings.finish()
      LogScan(
        rows.result(),
        segments.result(),
        cursors.toMap,
        commits.result(),
        expected,
        torn.result(),
        Account(
          findings.result,
          contents.toVector,
          writers.toVector,
          firsts.find(_ < Long.MaxValue),
          findings.end
        )
      )
    }

    private def epochOf(name: String): Long = SegmentHeader.parse(name).fold(0L)(_._1)

    private def headerOf(name: String): Either[HeaderFault, (Long, SegmentHeader)] =
      Using.resource(open(name))(_.opened)

    private def open(name: String): SegmentFile = new SegmentFile(files.pathOf(name), files.read(name))

    /** A segment without a readable header. Nothing of it counts; all but its last sync group was durable. */
    private def skip(name: String, fault: HeaderFault, limit: Long): Unit = Using.resource(open(name)) {
      file =>
        if (isReport && file.opened.isRight) throw new LogChangedException(s"${file.path} was just created")
        contents += Content(name, file.length, 0, 0, None)
        val groups = file.groups
        val isTorn = groups.isEmpty && fault.canBeTorn
        findings.fault(name, 0, fault.what, isCertain = !isTorn)
        if (isTorn && (limit == Long.MaxValue || limit <= expected)) torn += name
        else {
          damage = Some((damage.toSeq :+ s"${file.path} is damaged: ${fault.what}").mkString("; "))
          if (limit == Long.MaxValue)
            groups
              .dropRight(1)
              .flatMap(file.framesFrom(_, groups.last))
              .map(_.next)
              .maxOption
              .foreach(lostUpTo)
        }
    }

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
        checkWriter(name, header)
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
              val nextGroup = file.nextGroup(position + 1)
              val isUnneeded = isSuperseded || findings.next >= takeover
              if (isUnneeded) findings.ignored(name, position, s"$what, after everything that counts")
              else {
                val reason = (what +: incomplete(rowGroup).toSeq).mkString("; ")
                findings.fault(name, position, reason, isCertain || nextGroup.nonEmpty)
              }
              rowGroup = Vector.empty
              nextGroup match {
                case Some(group) =>
                  addBlock(block)
                  block = Block.none
                  gap = Some(s"${file.path} is damaged at byte $position")
                  damage = gap
                  position = group
                case None => isOver = true // a torn tail, unless the next segment begins after it
              }
          }
        }
        addBlock(block)
        incomplete(rowGroup).foreach(findings.ignored(name, position, _))
        superseded.headOption.foreach { case (at, frame) =>
          val rows = Finding.span(frame.seq, superseded.last._2.next - 1)
          findings.ignored(name, at, s"$rows not used: a later segment begins with row $limit")
        }
        // Only commits or an incomplete row group follow: the number of lost rows is unknown. One row stands for them.
        if (isLast && gap.nonEmpty)
          lostUpTo(math.max(expected, commits.result().lastOption.getOrElse(-1L)) + 1)
        if (damage.isEmpty && position < file.length)
          damage = Some(s"${file.path} has no frame at byte $position")
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
        else if (isReport && frame.isRows && !frame.hasReadableNote)
          Left(("the note of the frame cannot be read", true))
        else Right(frame)
      }

    /** A segment that was renamed, or copied from another log. */
    private def checkWriter(name: String, header: SegmentHeader): Unit = {
      val owner = writer.orElse(writers.headOption).getOrElse((header.source, header.run))
      writers += ((header.source, header.run))
      if ((header.source, header.run) != owner || header.name != name)
        findings.damage(
          name,
          0,
          s"its header is that of source ${header.source}, run ${header.run}, epoch ${header.epoch}, " +
            s"number ${header.number}"
        )
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
      while (expected < seq) {
        val count = math.min(seq - expected, Int.MaxValue).toInt
        rows += expected -> LostRows(
          count,
          damage.getOrElse(s"a segment is missing before row $seq in ${files.pathOf("")}")
        )
        expected += count
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
