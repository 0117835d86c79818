package headwater.log

import java.nio.file.{Files, Path}

import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}

import headwater.core.{Cursor, LostRows, Slice, StoredRows}
import org.scalatest.funsuite.AnyFunSuite

/** The content of a log after its files were truncated, damaged or deleted. */
class LogScanSuite extends AnyFunSuite {
  import Written._

  private def inFolder[T](segments: Segment*)(body: (Path, LocalFiles) => T): T = {
    val folder = Files.createTempDirectory("headwater-scan")
    try {
      segments.foreach(segment => Files.write(folder.resolve(segment.name), segment.bytes))
      body(folder, new LocalFiles(folder, durable = false))
    } finally {
      Using.resource(Files.list(folder))(_.iterator.asScala.toVector).foreach(Files.delete)
      Files.delete(folder)
    }
  }

  private def scanOf(segments: Segment*): LogScan =
    inFolder(segments: _*)((_, files) => LogScan.of(files, first = 0))

  private def cut(segment: Segment, length: Int): Segment = segment.copy(bytes = segment.bytes.take(length))

  /** Reads the rows while the folder exists. */
  private def foundIn(segments: Segment*): (LogScan, Map[Long, Either[String, Long]]) =
    inFolder(segments: _*) { (_, files) =>
      val scan = LogScan.of(files, first = 0)
      (scan, Logs.contentOf(scan))
    }

  private def sound(from: Long, until: Long): Map[Long, Either[String, Long]] =
    (from until until).map(seq => seq -> Right(seq)).toMap

  private val threeGroups = Seq(
    Seq(rows(3), rows(2, 2), Rows(Nil, Some(Cursor(0, "1")))),
    Seq(Commit(4), Rows(Seq(1), Some(Cursor(0, "2"))), rows(5)),
    Seq(rows(1), rows(2, 1, 2), rows(4))
  )

  test("an empty folder is a log that begins with the first row") {
    val scan = scanOf()
    assert(
      scan.rows.isEmpty && scan.next == 0 && scan.commits.isEmpty && scan.segments.isEmpty
    )
  }

  test("rows, cursors and commits of several segments are found, in the order of epoch and number") {
    val a = segment(1, 0, 0)(threeGroups: _*)
    val b = segment(1, 1, a.next, Map(0 -> "2", 1 -> "\"x\""))(Seq(Rows(Seq(2), Some(Cursor(1, "\"y\"")))))
    val c = segment(2, 0, b.next, Map(0 -> "2", 1 -> "\"y\""))(Seq(Commit(20), rows(3)))
    val (scan, contentOf) = foundIn(c, a, b)
    assert(contentOf == sound(0, c.next) && scan.next == c.next)
    assert(scan.cursors == Map(0 -> "2", 1 -> "\"y\"") && scan.commits == Seq(4, 20))
    assert(scan.segments.map(_.name) == Seq(a, b, c).map(_.name))
    assert(
      scan.segments
        .map(s => (s.first, s.last)) == Seq((0, a.next - 1), (a.next, b.next - 1), (b.next, c.next - 1))
    )
    assert(scan.segments.map(_.bytes) == Seq(a, b, c).map(_.bytes.length))
  }

  test("the last segment, truncated at any byte, yields exactly the complete row groups before it") {
    val before = segment(1, 0, 0)(Seq(rows(4)))
    val last = segment(1, 1, 4)(threeGroups: _*)
    (0 to last.bytes.length).foreach { length =>
      val expected = last.at.takeWhile(_._1 <= length).lastOption.fold(4L)(_._2)
      val (scan, contentOf) = foundIn(before, cut(last, length))
      assert(contentOf == sound(0, expected) && scan.next == expected, s"cut at byte $length")
    }
  }

  test("a torn tail of any length stays a torn tail when a later segment continues after it") {
    val last = segment(1, 0, 0)(threeGroups: _*)
    (last.headerBytes to last.bytes.length).foreach { length =>
      val expected = last.at.takeWhile(_._1 <= length).last._2
      val next = segment(2, 0, expected)(Seq(rows(2)))
      val (scan, contentOf) = foundIn(cut(last, length), next)
      assert(contentOf == sound(0, next.next) && scan.next == next.next, s"cut at byte $length")
    }
  }

  test(
    "a frame with a header and without its payload is torn, at the first start and at all later ones"
  ) {
    val torn = segment(1, 0, 0, codec = Codec.None)(Seq(rows(3)), Seq(Rows(Seq(2), Some(Cursor(0, "9")))))
    val bytes = torn.bytes.clone()
    java.util.Arrays.fill(bytes, bytes.length - 20, bytes.length, 0.toByte)
    val damaged = torn.copy(bytes = bytes)
    def check(what: String, later: Segment*): Unit = {
      val (scan, contentOf) = foundIn(damaged +: later: _*)
      assert(contentOf == sound(0, 3 + later.flatMap(_.at).map(_._2 - 3).maxOption.getOrElse(0L)), what)
      assert(scan.cursors.isEmpty, what)
    }
    val next = segment(2, 0, 3)(Seq(rows(4)))
    check("the last one")
    check(
      "an empty file of the next start follows",
      next.copy(bytes = Array.emptyByteArray, at = Vector.empty)
    )
    check("a header that is cut off follows", next.copy(bytes = next.bytes.take(30), at = Vector.empty))
    check("a segment without rows follows", cut(next, next.headerBytes).copy(at = Vector.empty))
    check("rows follow", next)
  }

  test("a flipped bit at any byte of an earlier segment is a loss that names file and position") {
    val a = segment(1, 0, 0)(threeGroups: _*)
    val b = segment(1, 1, a.next)(Seq(rows(2)), Seq(rows(3)))
    flips(a).foreach { case (position, flipped) =>
      val (scan, contentOf) = foundIn(flipped, b)
      assert(scan.next == b.next && contentOf.keySet == sound(0, b.next).keySet, s"byte $position")
      contentOf.foreach {
        case (seq, Right(id)) => assert(id == seq, s"byte $position")
        case (_, Left(why)) => assert(why.contains(a.name) && names(why), s"byte $position: $why")
      }
      assert((a.next until b.next).forall(seq => contentOf(seq).isRight), s"byte $position")
    }
  }

  test(
    "a flipped bit at any byte of the last segment is a loss that names file and position, or a torn last sync group"
  ) {
    val a = segment(1, 0, 0)(Seq(rows(2)))
    val b = segment(1, 1, a.next)(threeGroups: _*)
    val lastGroup = b.groups.last
    val beforeLast = b.at.filter(_._1 <= lastGroup).last._2
    flips(b).foreach { case (position, flipped) =>
      val (scan, contentOf) = foundIn(a, flipped)
      contentOf.foreach {
        case (seq, Right(id)) => assert(id == seq, s"byte $position")
        case (_, Left(why)) => assert(why.contains(b.name) && names(why), s"byte $position: $why")
      }
      assert(contentOf.keySet == sound(0, scan.next).keySet, s"byte $position")
      assert(
        scan.next >= beforeLast,
        s"byte $position: what was durable before the last group is gone silently"
      )
      if (position >= lastGroup) assert(contentOf.forall(_._2.isRight), s"byte $position")
      else assert(scan.next == b.next || position < b.headerBytes, s"byte $position")
    }
  }

  /** The position in the file, or the header. */
  private def names(why: String): Boolean =
    why.contains("byte ") || why.contains("header") || why.contains("begin") ||
      why.contains("version")

  private def flips(segment: Segment): Seq[(Int, Segment)] = segment.bytes.indices.map { position =>
    val bytes = segment.bytes.clone()
    bytes(position) = (bytes(position) ^ (1 << (position % 8))).toByte
    position -> segment.copy(bytes = bytes)
  }

  test("damaged rows are a loss even if only commits or cursors follow them") {
    val rowsFirst = Seq(rows(3), rows(2))
    Seq(
      Seq(Commit(3)) -> 4L,
      Seq(Commit(0)) -> 1L,
      Seq(Rows(Nil, Some(Cursor(0, "4")))) -> 5L,
      Seq(Commit(1), Rows(Nil, Some(Cursor(0, "4")))) -> 5L
    ).foreach { case (last, next) =>
      val s = segment(1, 0, 0)(rowsFirst, last)
      val bytes = s.bytes.clone()
      bytes(s.groups.head + 20) = 77
      val (scan, contentOf) = foundIn(s.copy(bytes = bytes))
      assert(scan.next >= next && contentOf.nonEmpty, last)
      assert(
        contentOf.values.forall(_.left.exists(_.contains(s"${s.name} is damaged at byte ${s.groups.head}"))),
        last
      )
    }
  }

  test("a missing segment in the middle is a loss of exactly its rows") {
    val a = segment(1, 0, 0)(Seq(rows(3)))
    val b = segment(1, 1, 3)(Seq(rows(4)))
    val c = segment(1, 2, 7)(Seq(rows(2)))
    val (scan, contentOf) = foundIn(a, c)
    assert(contentOf.collect { case (seq, Left(_)) => seq }.toSet == Set(3L, 4L, 5L, 6L))
    assert(contentOf(3).left.exists(why => why.contains("segment is missing before row 7")))
    assert(scan.next == b.next + 2)
  }

  test("missing segments at the beginning were deleted on commit: the log begins with the oldest") {
    val (scan, contentOf) = foundIn(segment(1, 5, 100)(Seq(rows(3))))
    assert(contentOf == sound(100, 103) && scan.next == 103)
  }

  test("a damaged header of the oldest segment is a loss, not a log that begins later") {
    val a = segment(1, 0, 0)(Seq(rows(3)))
    val b = segment(1, 1, 3)(Seq(rows(4)))
    a.bytes(20) = (a.bytes(20) ^ 1).toByte
    val (_, contentOf) = foundIn(a, b)
    assert((0L to 2L).forall(seq => contentOf(seq).left.exists(_.contains(a.name))), contentOf)
    assert((3L to 6L).forall(seq => contentOf(seq).isRight))
  }

  test("an empty segment, and one without a header, lose nothing at the end and in the middle") {
    val a = segment(1, 0, 0)(Seq(rows(3)))
    val c = segment(3, 0, 3)(Seq(rows(2)))
    Seq(0, 1, 15, 16, 100).foreach { length =>
      val b = cut(segment(2, 0, 3)(Seq(rows(9))), length)
      assert(foundIn(a, b)._2 == sound(0, 3), s"$length bytes at the end")
      assert(foundIn(a, b, c)._2 == sound(0, 5), s"$length bytes in the middle")
    }
  }

  test("frames that a replaced writer added late do not count") {
    val old = segment(1, 0, 0)(Seq(rows(3)), Seq(Rows(Seq(2, 2), Some(Cursor(0, "6")))))
    val fresh = segment(2, 0, 3, Map(0 -> "2"))(Seq(Rows(Seq(4), Some(Cursor(0, "\"other\"")))))
    val (scan, contentOf) = foundIn(old, fresh)
    assert(contentOf == sound(0, 7) && scan.next == 7 && scan.cursors == Map(0 -> "\"other\""))
    assert(scan.rows.collect { case (_, s: StoredRows) => s.count } == Seq(3, 4))
  }

  test("whole segments that a replaced writer added late do not count, however many") {
    val first = segment(1, 0, 0)(Seq(rows(3)))
    val late =
      Seq(segment(1, 1, 3)(Seq(rows(4))), segment(1, 2, 7)(Seq(rows(4))), segment(1, 3, 11)(Seq(Commit(2))))
    val fresh = Seq(segment(2, 0, 3)(Seq(rows(2))), segment(2, 1, 5)(Seq(rows(1))))
    val (scan, contentOf) = foundIn(Seq(first) ++ late ++ fresh: _*)
    assert(contentOf == sound(0, 6) && scan.next == 6)
    val paths = scan.rows.collect { case (_, s: StoredRows) => s.segment }
    assert(paths.forall(path => !late.exists(s => path.endsWith(s.name))))
  }

  test("a sync group that was written again into the next segment counts once, wherever the disk was full") {
    val whole = segment(1, 0, 0)(threeGroups: _*)
    val lastGroup = whole.groups.last
    val next = whole.at.filter(_._1 <= lastGroup).last._2
    val again = segment(1, 1, next)(threeGroups.last)
    (lastGroup to whole.bytes.length).foreach { length =>
      val (scan, contentOf) = foundIn(cut(whole, length), again)
      assert(contentOf == sound(0, whole.next) && scan.next == whole.next, s"full at byte $length")
      assert(scan.rows.map(_._2.count).sum == whole.next)
    }
  }

  test("a row group in a torn tail leaves neither rows nor a cursor") {
    val s = segment(1, 0, 0)(Seq(rows(2)), Seq(Rows(Seq(3, 3), Some(Cursor(0, "8")))))
    val secondFrame = s.at(2)._1
    Seq(secondFrame, secondFrame + 1, s.bytes.length - 1).foreach { length =>
      val scan = scanOf(cut(s, length))
      assert(scan.next == 2 && scan.cursors.isEmpty)
    }
    assert(scanOf(s).cursors == Map(0 -> "8"))
  }

  test("a million rows in 100,000 frames have a small index that finds each row") {
    val group = Seq.fill(100)(rows(10))
    val s = segment(1, 0, 0)(Seq.fill(1000)(group): _*)
    inFolder(s) { (_, files) =>
      val scan = LogScan.of(files, 0)
      assert(scan.next == 1000000 && scan.rows.length < 100, s"${scan.rows.length} blocks")
      assert(scan.rows.forall(_._2.byteSize <= LogScan.BlockBytes))
      val (first, block) = scan.rows(1)
      Seq(0 -> 1, 9 -> 11, 1234 -> 1236, block.count - 1 -> block.count).foreach { case (from, until) =>
        assert(Logs.ids(Seq(Slice(block, from, until))) == (first + from until first + until))
      }
    }
  }

  test("notes and commits between the rows of a block are skipped") {
    val s = segment(1, 0, 0)(
      Seq(rows(2), Rows(Nil, Some(Cursor(0, "1")))),
      Seq(Commit(0)),
      Seq(Rows(Nil, Some(Cursor(1, "1"))), rows(3))
    )
    inFolder(s) { (_, files) =>
      val scan = LogScan.of(files, 0)
      assert(scan.rows.length == 1)
      for (from <- 0 until 5; until <- from + 1 to 5)
        assert(Logs.ids(Seq(Slice(scan.rows.head._2, from, until))) == (from.toLong until until))
    }
  }

  test("a file that cannot be read is an error, not a torn tail") {
    val a = segment(1, 0, 0)(Seq(rows(3)))
    val b = segment(1, 1, 3)(Seq(rows(3)))
    inFolder(a, b) { (folder, local) =>
      val broken = new Passing(local) {
        override def read(name: String): LogFiles.In = {
          val in = super.read(name)
          if (name == a.name) in
          else
            new LogFiles.In {
              override def length: Long = in.length
              override def readAt(position: Long, into: Array[Byte], length: Int): Int =
                throw new java.io.IOException("the line is dead")
              override def close(): Unit = in.close()
            }
        }
      }
      assert(Try(LogScan.of(broken, 0)).failed.get.getMessage == "the line is dead")
      assert(Files.exists(folder.resolve(b.name)))
    }
  }

  test("files with other names are ignored") {
    inFolder(segment(1, 0, 0)(Seq(rows(3)))) { (folder, files) =>
      Seq("lock", "manifest-00000001.json", "00000001-000000000001.segment.tmp", "1-1.segment", "x").foreach {
        name =>
          Files.write(folder.resolve(name), Array[Byte](1, 2, 3))
      }
      assert(LogScan.of(files, 0).next == 3)
    }
  }

  test("more than Int.MaxValue lost rows are reported in pieces") {
    val scan = scanOf(segment(1, 0, 0)(Seq(rows(1))), segment(1, 2, 5000000000L)(Seq(rows(1))))
    val lost = scan.rows.collect { case (first, rows: LostRows) => (first, rows.count.toLong) }
    assert(lost.map(_._2).sum == 5000000000L - 1 && scan.next == 5000000001L)
    assert(lost.zip(lost.tail).forall { case ((first, count), (next, _)) => first + count == next })
  }
}

/** Delegates to other files, so that a test can override one method. */
private class Passing(files: LogFiles) extends LogFiles {
  override def pathOf(name: String): String = files.pathOf(name)
  override def list(): Seq[String] = files.list()
  override def read(name: String): LogFiles.In = files.read(name)
  override def writeAtomically(name: String, bytes: Array[Byte]): Unit = files.writeAtomically(name, bytes)
  override def create(name: String): LogFiles.Out = files.create(name)
  override def delete(name: String): Unit = files.delete(name)
  override def sync(name: String): Unit = files.sync(name)
  override def canAppend: Boolean = files.canAppend
  override def lock(): java.io.Closeable = files.lock()
}
