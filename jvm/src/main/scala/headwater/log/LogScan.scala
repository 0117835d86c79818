package headwater.log

import scala.collection.mutable
import scala.util.Using

import headwater.core.{Cursor, LostRows, Rows, StoredRows}

/** The content of a log, found at a start by reading the headers of all its frames.
  *
  * @param rows
  *   in order, each with the seq of its first row; without gaps, since missing rows are [[LostRows]]
  * @param next
  *   the seq of the next row
  * @param commits
  *   the commits of Spark that the log still records
  * @param torn
  *   segments that contain nothing and of which nothing is missing
  */
private[headwater] final case class LogScan(
    rows: Vector[(Long, Rows)],
    segments: Vector[LogScan.Segment],
    cursors: Map[Int, String],
    commits: Vector[Long],
    next: Long,
    torn: Vector[String]
)

private[headwater] object LogScan {

  /** @param last the seq of its last row; one below its first if it has none */
  final case class Segment(name: String, first: Long, last: Long, bytes: Long)

  /** Frames are combined up to this size, so that the index of a long log stays small. */
  val BlockBytes: Long = 512 << 10

  def of(files: LogFiles, first: Long): LogScan = new Scanner(files, first).result

  /** The newest epoch of all segments, whatever they contain; 0 if there are none. */
  def newestEpoch(files: LogFiles): Long =
    files.list().flatMap(SegmentHeader.parse(_)).map(_._1).maxOption.getOrElse(0L)

  private final class Scanner(files: LogFiles, first: Long) {
    private[this] val rows = Vector.newBuilder[(Long, Rows)]
    private[this] val segments = Vector.newBuilder[Segment]
    private[this] val commits = Vector.newBuilder[Long]
    private[this] val cursors = mutable.Map.empty[Int, String]
    private[this] val torn = Vector.newBuilder[String]
    private[this] var expected = first
    private[this] var damage: Option[String] = None

    private[this] val names =
      files.list().flatMap(name => SegmentHeader.parse(name).map(_ -> name)).sorted.map(_._2)

    def result: LogScan = {
      val headers = names.map(name => name -> headerOf(name))
      val firsts = headers.map(_._2.map { case (_, header) => header.first }.getOrElse(Long.MaxValue))
      // A segment ends where a later segment begins.
      val limits = firsts.scanRight(Long.MaxValue)(math.min).tail
      // Rows before the oldest segment were dropped, unless its header cannot be read.
      firsts.headOption.filter(_ < Long.MaxValue).foreach(oldest => expected = math.max(expected, oldest))
      val last = firsts.lastIndexWhere(_ < Long.MaxValue)
      headers.zip(limits).zipWithIndex.foreach {
        case (((name, Right((start, header))), limit), i) =>
          read(name, start, header, limit, isLast = i == last)
        case (((name, Left(what)), limit), _) => skip(name, what, limit)
      }
      LogScan(
        rows.result(),
        segments.result(),
        cursors.toMap,
        commits.result(),
        expected,
        torn.result()
      )
    }

    private def headerOf(name: String): Either[String, (Long, SegmentHeader)] =
      Using.resource(open(name))(_.opened)

    private def open(name: String): SegmentFile = new SegmentFile(files.pathOf(name), files.read(name))

    /** A segment without a readable header. Nothing of it counts; all but its last sync group was durable. */
    private def skip(name: String, what: String, limit: Long): Unit = Using.resource(open(name)) { file =>
      val groups = file.groups
      if (groups.isEmpty && (limit == Long.MaxValue || limit <= expected)) torn += name
      else {
        damage = Some((damage.toSeq :+ s"${file.path} is damaged: $what").mkString("; "))
        if (limit == Long.MaxValue)
          groups.dropRight(1).flatMap(file.framesFrom(_, groups.last)).map(_.next).maxOption.foreach(lostUpTo)
      }
    }

    private def read(
        name: String,
        start: Long,
        header: SegmentHeader,
        limit: Long,
        isLast: Boolean
    ): Unit =
      Using.resource(open(name)) { file =>
        lostUpTo(math.min(header.first, limit)) // a replaced writer may have begun later
        cursors.clear()
        cursors ++= header.cursors
        var position = start
        var rowGroup = Vector.empty[(Long, Frame)]
        var block = Block.none
        var gap = Option.empty[String] // after which no frame has stated the next seq yet
        var isOver = false
        while (!isOver) {
          file.frameAt(position).filter(!isLast || file.isPayloadIntact(_, position)) match {
            case Some(frame) if frame.isRows && frame.seq + math.min(frame.rows, 1) > limit => isOver = true
            case Some(frame) =>
              if (frame.isRows) {
                rowGroup :+= position -> frame
                if (!frame.hasMore) {
                  block = addRowGroup(file.path, rowGroup, block)
                  rowGroup = Vector.empty
                  gap = None
                }
              } else commits += frame.seq
              position += frame.length
            case None =>
              rowGroup = Vector.empty
              file.nextGroup(position + 1) match {
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
        // Only commits or an incomplete row group follow: the number of lost rows is unknown. One row stands for them.
        if (isLast && gap.nonEmpty)
          lostUpTo(math.max(expected, commits.result().lastOption.getOrElse(-1L)) + 1)
        if (damage.isEmpty && position < file.length)
          damage = Some(s"${file.path} has no frame at byte $position")
        segments += Segment(name, header.first, expected - 1, file.length)
      }

    /** Adds a complete row group. */
    private def addRowGroup(path: String, rowGroup: Vector[(Long, Frame)], before: Block): Block = {
      var block = before
      rowGroup.foreach { case (position, frame) =>
        if (frame.seq > expected) {
          addBlock(block)
          block = Block.none
          lostUpTo(frame.seq)
        }
        if (frame.rows > 0 && frame.seq == expected) {
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
