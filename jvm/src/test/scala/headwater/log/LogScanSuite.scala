package headwater.log

import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.{Files, Path}

import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}

import headwater.InvalidOffsetException
import headwater.core.{Cursor, Slice}
import headwater.testing.NumberedRows
import org.scalatest.funsuite.AnyFunSuite

class LogScanSuite extends LogScanTests(version = 2)

class LogScanFormat1Suite extends LogScanTests(version = 1)

/** The content of a log after its files were truncated, damaged or deleted.
  *
  * @param version
  *   of the format of the segments
  */
abstract class LogScanTests(version: Int) extends AnyFunSuite {
  import Written.{segment => _, _}

  private def segment(
      epoch: Long,
      number: Long,
      first: Long,
      cursors: Map[Int, String] = Map.empty,
      codec: Codec = Codec.None
  )(groups: Seq[Entry]*): Segment = Written.segment(epoch, number, first, cursors, codec, version)(groups: _*)

  private def scan(files: LogFolder): LogScan = LogScan.of(files, Some(Logs.manifest), first = 0)

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
    inFolder(segments: _*)((_, files) => scan(files))

  private def cut(segment: Segment, length: Int): Segment = segment.copy(bytes = segment.bytes.take(length))

  /** Reads the rows while the folder exists. */
  private def foundIn(segments: Segment*): (LogScan, Map[Long, Either[String, Long]]) =
    inFolder(segments: _*) { (_, files) =>
      val scan = this.scan(files)
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
      val isReported = version == 1 && scan.lost.nonEmpty // then it is not known how many rows are lost
      assert(
        scan.next >= beforeLast || isReported,
        s"byte $position: what was durable before the last group is gone silently"
      )
      if (position >= lastGroup) assert(contentOf.forall(_._2.isRight), s"byte $position")
      else if (position >= b.headerBytes)
        // What follows a header of format 1 that cannot be read may be the text of a row.
        assert(scan.next == b.next || isReported, s"byte $position")
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
      // In format 1 one row stands for those that are lost.
      assert(scan.next >= (if (version == 1) 1 else next) && contentOf.nonEmpty, last)
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
    assert(scan.rows.map(_._2.count) == Seq(3, 4))
  }

  test("whole segments that a replaced writer added late do not count, however many") {
    val first = segment(1, 0, 0)(Seq(rows(3)))
    val late =
      Seq(segment(1, 1, 3)(Seq(rows(4))), segment(1, 2, 7)(Seq(rows(4))), segment(1, 3, 11)(Seq(Commit(2))))
    val fresh = Seq(segment(2, 0, 3)(Seq(rows(2))), segment(2, 1, 5)(Seq(rows(1))))
    val (scan, contentOf) = foundIn(Seq(first) ++ late ++ fresh: _*)
    assert(contentOf == sound(0, 6) && scan.next == 6)
    val paths = scan.rows.map(_._2.segment)
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
      val scan = this.scan(files)
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
      val scan = this.scan(files)
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
      assert(Try(scan(broken)).failed.get.getMessage == "the line is dead")
      assert(Files.exists(folder.resolve(b.name)))
    }
  }

  /** Frames as an author of rows could write them who even knows the key of the log, but not the position. */
  private def forged(groups: Seq[Entry]*): Array[Byte] = {
    val guessed = Seq(1, 2).map(version => Written.segment(1, 0, 2, version = version)(groups: _*))
    guessed.flatMap(segment => segment.bytes.drop(segment.headerBytes)).toArray
  }

  test("a frame within the text of a row is never read as a frame behind a torn tail") {
    val text = forged(
      Seq(Rows(Seq(1), Some(Cursor(0, "\"forged\""))), Commit(1L << 40)),
      Seq(Rows(Nil, Some(Cursor(0, "\"forged too\"")))),
      Seq(rows(1))
    )
    val sound = segment(1, 0, 0)(Seq(Rows(Seq(2), Some(Cursor(0, "1")))))
    // The header of the frame did not reach the disk, its payload did.
    val torn = sound.copy(bytes = sound.bytes ++ new Array[Byte](60) ++ text ++ new Array[Byte](8))
    def check(what: String, rows: Long, isDamage: Boolean, segments: Segment*): Unit = {
      val (scan, content) = foundIn(segments: _*)
      assert(scan.cursors == Map(0 -> "1") && scan.commits.isEmpty, what)
      assert(content.collect { case (seq, Right(_)) => seq }.toSet == (0L until rows).toSet, what)
      assert(scan.lost.nonEmpty == isDamage, what)
    }
    // In format 1 it may have been a durable frame: that is reported, and nothing of it is used.
    check("the newest segment", 2, isDamage = version == 1, torn)
    val next = segment(2, 0, 2, Map(0 -> "1"))(Seq(rows(3)))
    check("a later segment begins with the next row", 5, isDamage = false, torn, next)
    val headless = torn.copy(bytes = Array.fill[Byte](16)(0) ++ torn.bytes.drop(16))
    val (scan, content) = foundIn(headless)
    assert(scan.cursors.isEmpty && scan.commits.isEmpty && content.values.forall(_.isLeft))
  }

  test("the text of a damaged payload is not searched for frames, and the sync groups behind it count") {
    val text = forged(Seq(Rows(Seq(1), Some(Cursor(0, "\"forged\"")))), Seq(Commit(1L << 40)))
    val before = segment(1, 0, 0)(Seq(rows(2)))
    val format = if (version == 1) FrameFormat.V1 else new FrameFormat.V2(Logs.Key, 1, 0)
    def frame(rows: Int, seq: Long, payload: Array[Byte], cursor: Option[Cursor], position: Int) = {
      val crc = Frame.crcOf(payload, 0, payload.length)
      val note = Written.note(format, cursor)
      val size = payload.length
      val frame =
        Frame(format, Frame.RowsKind, Codec.None, true, false, 0, rows, seq, 0, size, size, crc, note)
      Written.bytes(frame, position.toLong) ++ payload
    }
    val row = frame(3, 2, text, None, before.bytes.length)
    row(row.length - 1) = (row.last ^ 1).toByte
    val payload = NumberedRows.rows(5, 4, 24).bytes
    val behind = frame(4, 5, payload, Some(Cursor(0, "8")), before.bytes.length + row.length)
    val (scan, content) = foundIn(before.copy(bytes = before.bytes ++ row ++ behind))
    assert(scan.next == 9 && scan.cursors == Map(0 -> "8") && scan.commits.isEmpty)
    assert(content.collect { case (seq, Left(_)) => seq }.toSet == Set(2L, 3L, 4L))
    val (torn, _) = foundIn(before.copy(bytes = before.bytes ++ row))
    assert(torn.next == 2 && torn.cursors.isEmpty && torn.lost.isEmpty, "the last sync group")
  }

  test("a marker without rows and without a cursor, the first of its group, is a frame") {
    val s = segment(1, 0, 0)(Seq(rows(2)), Seq(Rows(Nil)), Seq(Rows(Nil)), Seq(rows(1)), Seq(Rows(Nil)))
    val (scan, content) = foundIn(s)
    assert(content == sound(0, 3) && scan.next == 3 && scan.cursors.isEmpty && scan.lost.isEmpty)
    val report = inFolder(s)((_, files) => LogScan.report(files, Some(Logs.manifest)))
    assert(report.account.findings.isEmpty && report.account.segments.map(_.frames) == Seq(5))
    // A marker shows that everything before it was durable.
    val flipped = s.bytes.clone()
    flipped(s.at(1)._1 - 1) = (flipped(s.at(1)._1 - 1) ^ 1).toByte
    assert(scanOf(s.copy(bytes = flipped)).lost.map(lost => (lost.first, lost.last)) == Seq((0L, 1L)))
  }

  test("a segment of another log, and one under another name, are refused by name") {
    val a = segment(1, 0, 0)(Seq(rows(3)))
    val b = segment(1, 1, 3)(Seq(rows(3)))
    inFolder(a) { (folder, files) =>
      val copy = Files.write(folder.resolve("99999999-000000000000.segment"), b.bytes)
      val error = intercept[InvalidOffsetException](scan(files)).getMessage
      assert(error.contains("99999999-000000000000.segment") && error.contains("epoch 1, number 1"))
      Files.delete(copy)
      val other = Some(Logs.manifest.copy(run = "00000000000000aa"))
      assert(intercept[InvalidOffsetException](LogScan.of(files, other, 0)).getMessage.contains(a.name))
    }
  }

  test("a file with the name of a segment whose epoch has not begun is ignored and stays") {
    inFolder(segment(1, 0, 0)(Seq(rows(3)))) { (folder, files) =>
      Seq(Array.emptyByteArray, Array[Byte](1, 2, 3), new Array[Byte](1000)).foreach { bytes =>
        Files.write(folder.resolve("99999999-000000000000.segment"), bytes)
        val found = scan(files)
        assert(found.next == 3 && found.torn.isEmpty && found.epoch == 1 && found.lost.isEmpty)
        val report = LogScan.report(files, Some(Logs.manifest))
        assert(report.account.findings.map(_.kind) == Seq(Finding.Ignored))
      }
    }
  }

  test("numbers that no log reaches are not believed, and 2^62 rows are one lost range") {
    Seq(Long.MaxValue, Long.MaxValue - 1, (1L << 62) + 1).foreach { seq =>
      val (scan, content) = foundIn(segment(1, 0, 0)(Seq(rows(1))), segment(1, 1, seq)(Seq(rows(1))))
      assert(scan.next <= 2 && content(0).isRight, seq)
      val jump = segment(1, 0, seq)(Seq(rows(1)))
      val frames = segment(1, 0, 0)()
      val claim = frames.copy(bytes = frames.bytes ++ jump.bytes.drop(jump.headerBytes))
      assert(scanOf(claim).next <= 1, seq)
    }
    val scan = scanOf(segment(1, 0, 0)(Seq(rows(1))), segment(1, 1, 1L << 62)(Seq(rows(1))))
    assert(scan.lost.map(lost => (lost.first, lost.last)) == Seq((1L, (1L << 62) - 1)))
  }

  test("the time of a scan grows with the length of a file of false headers, not with its square") {
    // Each header claims a note of half the file, so each would be read to its end.
    def reads(count: Int): Long = {
      val sound = segment(1, 0, 0)(Seq(rows(2)))
      val noteBytes = count * 25
      val header = Version1.bytes(Frame.commit(FrameFormat.V1, 5, isFirst = true))
      ByteBuffer.wrap(header).order(ByteOrder.LITTLE_ENDIAN).putInt(36, noteBytes)
      val second = new Array[Byte](60)
      "hwf2".getBytes.copyToArray(second)
      ByteBuffer
        .wrap(second)
        .order(ByteOrder.LITTLE_ENDIAN)
        .put(12, 2: Byte)
        .put(14, 2: Byte)
        .putInt(52, noteBytes)
      val flood = Array.fill(count)(if (version == 1) header else second).flatten
      inFolder(sound.copy(bytes = sound.bytes ++ Array[Byte](1) ++ flood)) { (_, local) =>
        val counting = new Counting(local)
        assert(scan(counting).rows.map(_._2.count) == Seq(2))
        counting.bytes
      }
    }
    val (small, large) = (reads(20000), reads(40000))
    assert(large < 3 * small, s"$small bytes were read, and $large of twice as many headers")
  }

  test("files with other names are ignored") {
    inFolder(segment(1, 0, 0)(Seq(rows(3)))) { (folder, files) =>
      Seq("lock", "manifest-00000001.json", "00000001-000000000001.segment.tmp", "1-1.segment", "x").foreach {
        name =>
          Files.write(folder.resolve(name), Array[Byte](1, 2, 3))
      }
      assert(scan(files).next == 3)
    }
  }

  test("lost rows are one range, however many") {
    val scan = scanOf(segment(1, 0, 0)(Seq(rows(1))), segment(1, 2, 5000000000L)(Seq(rows(1))))
    assert(scan.lost.map(lost => (lost.first, lost.last)) == Seq((1L, 4999999999L)))
    assert(scan.next == 5000000001L)
  }
}

/** Counts the bytes that are read. */
private class Counting(files: LogFiles) extends Passing(files) {
  var bytes = 0L

  override def read(name: String): LogFiles.In = {
    val in = super.read(name)
    new LogFiles.In {
      override def length: Long = in.length
      override def readAt(position: Long, into: Array[Byte], length: Int): Int = {
        bytes += length
        in.readAt(position, into, length)
      }
      override def close(): Unit = in.close()
    }
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
