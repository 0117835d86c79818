package headwater.log

import java.io.IOException

import scala.util.{Random, Try}

import headwater.core.Cursor
import org.scalatest.funsuite.AnyFunSuite

class FrameSuite extends FrameTests(version = 2) {
  import FrameTests._

  test("a frame is valid only in its log, in its segment and at its position") {
    val frame = frameOf("rows".getBytes, Codec.None, isFirst = true, hasMore = false, Some(Cursor(2, "7")))
    val text = Array.fill[Byte](100)('x') ++ bytesOf(frame, 100) ++ "rows".getBytes
    def isFrame(format: FrameFormat, text: Array[Byte], position: Long) =
      new SegmentFile("file:/x", new InMemory(text), Some(format)).frameAt(position).nonEmpty
    assert(isFrame(new FrameFormat.V2(Logs.Key, 1, 0), text, 100))
    assert(!isFrame(new FrameFormat.V2(Logs.Key.replace('0', '1'), 1, 0), text, 100), "another log")
    assert(!isFrame(new FrameFormat.V2(Logs.Key, 2, 0), text, 100), "another epoch")
    assert(!isFrame(new FrameFormat.V2(Logs.Key, 1, 1), text, 100), "another segment")
    assert(!isFrame(new FrameFormat.V2(Logs.Key, 1, 0), text.drop(1), 99), "another position")
    assert(!isFrame(FrameFormat.V1, text, 100), "another version")
  }

  test("a shard and an arrival time are stored exactly") {
    for (shard <- Seq(0, 1, 255, Int.MaxValue); arrived <- Seq(0L, 1L, 1700000000123456L, Long.MaxValue)) {
      val frame = frameOf("rows".getBytes, Codec.None, isFirst = true, hasMore = false, None)
      val read = fileOf(frame.copy(shard = shard, arrived = arrived), "rows".getBytes).frameAt(0).get
      assert(read.shard == shard && read.arrived == arrived)
    }
  }
}

class FrameFormat1Suite extends FrameTests(version = 1)

/** One frame in a file: what was written is read, and anything else is refused. */
abstract class FrameTests(version: Int) extends AnyFunSuite {
  import FrameTests._

  protected val format: FrameFormat = if (version == 1) FrameFormat.V1 else new FrameFormat.V2(Logs.Key, 1, 0)

  protected def bytesOf(frame: Frame, position: Long = 0): Array[Byte] = Written.bytes(frame, position)

  protected def frameOf(
      raw: Array[Byte],
      codec: Codec,
      isFirst: Boolean,
      hasMore: Boolean,
      cursor: Option[Cursor]
  ): Frame = {
    val stored = codec.compress(raw)
    val crc = Frame.crcOf(stored, 0, stored.length)
    val note = Written.note(format, cursor)
    val shard = if (version == 1) 0 else cursor.fold(0)(_.shard)
    Frame(
      format,
      Frame.RowsKind,
      codec,
      isFirst,
      hasMore,
      shard,
      5,
      123,
      0,
      stored.length,
      raw.length,
      crc,
      note
    )
  }

  protected def fileOf(frame: Frame, payload: Array[Byte]): SegmentFile = fileOf(bytesOf(frame) ++ payload)

  protected def fileOf(bytes: Array[Byte]): SegmentFile =
    new SegmentFile("file:/x", new InMemory(bytes), Some(format))

  private val random = new Random(7)

  private def bytes(length: Int): Array[Byte] = {
    val out = new Array[Byte](length)
    random.nextBytes(out)
    out
  }

  test("a frame is read as it was written: kinds, flags, codecs, notes") {
    for {
      codec <- Codec.all
      isFirst <- Seq(true, false)
      hasMore <- Seq(true, false)
      cursor <- Seq(None, Some(Cursor(3, """{"a":[1,"ü}",null]}""")), Some(Cursor(0, "1.10")))
      length <- Seq(0, 1, 7, 1000, 100000)
    } {
      val raw = bytes(length)
      val frame = frameOf(raw, codec, isFirst, hasMore, cursor)
      val file = fileOf(frame, codec.compress(raw))
      val read = file.frameAt(0).get
      assert(bytesOf(read).sameElements(bytesOf(frame)) && read.note.sameElements(frame.note))
      assert(read.copy(note = frame.note) == frame)
      assert(read.cursor == cursor)
      assert(file.isPayloadIntact(read, 0) && file.payload(read, 0).sameElements(raw))
    }
    val commit = Frame.commit(format, 77, isFirst = true)
    val read = fileOf(commit, Array.emptyByteArray).frameAt(0).get
    assert(
      !read.isRows && read.seq == 77 && read.next == 77 && read.isFirst && read.length == format.fixedBytes
    )
  }

  test("every flipped bit in header, note or payload is detected") {
    val raw = bytes(50)
    val frame = frameOf(raw, Codec.None, isFirst = true, hasMore = false, Some(Cursor(1, """"here"""")))
    val whole = bytesOf(frame) ++ raw
    whole.indices.foreach { i =>
      (0 until 8).foreach { bit =>
        val flipped = whole.clone()
        flipped(i) = (flipped(i) ^ (1 << bit)).toByte
        val file = fileOf(flipped)
        val read = file.frameAt(0)
        if (i < frame.headerBytes) assert(read.isEmpty, s"byte $i, bit $bit of the head")
        else {
          assert(!file.isPayloadIntact(read.get, 0), s"byte $i, bit $bit of the payload")
          assert(
            intercept[DamagedException](file.payload(read.get, 0)).getMessage.contains("damaged at byte 0")
          )
        }
      }
    }
  }

  test("a frame that is truncated at any byte is not a frame") {
    val raw = bytes(30)
    val frame = frameOf(raw, Codec.None, isFirst = false, hasMore = false, Some(Cursor(1, "5")))
    val whole = bytesOf(frame) ++ raw
    whole.indices.foreach { length =>
      assert(fileOf(whole.take(length)).frameAt(0).isEmpty, s"$length bytes")
    }
  }

  test("invalid lengths are rejected even with a correct checksum, without large allocations") {
    val frame = Frame.commit(format, 1, isFirst = true)
    val invalid =
      for (value <- Seq(Int.MinValue, -1, Int.MaxValue, Int.MaxValue - 8, 2000000000))
        yield Seq(
          frame.copy(storedBytes = value),
          frame.copy(rawBytes = value),
          frame.copy(rows = if (value < 0) value else -value)
        )
    val seqs = Seq(-1L, Long.MinValue, Long.MaxValue, (1L << 62) + 1).map(seq => frame.copy(seq = seq))
    (invalid.flatten ++ seqs).foreach { frame =>
      val file = fileOf(bytesOf(frame) ++ new Array[Byte](100))
      assert(file.frameAt(0).isEmpty && file.searchGroup(0).isEmpty, frame)
    }
    assert(fileOf(bytesOf(frame)).frameAt(0).nonEmpty)
  }

  test("random bytes contain no frames, and the search for the next sync group ends") {
    val noise = bytes(1 << 20)
    (0 until noise.length - 4 by 97).foreach(i => bytesOf(frame).copyToArray(noise, i, 4))
    assert(fileOf(noise).searchGroup(0).isEmpty)
  }

  private def frame: Frame = Frame.commit(format, 5, isFirst = true)

  test("the next sync group is found at every distance, across the pieces that are read at once") {
    Seq(0, 1, 39, 40, 41, 59, 60, 61, 16343, 16344, 16345, 16383, 16384, 16385, 50000, (1 << 20) - 30)
      .foreach { distance =>
        val header = bytesOf(frame, distance.toLong)
        val file = fileOf(new Array[Byte](distance) ++ header ++ new Array[Byte](9))
        assert(file.searchGroup(0).contains(distance.toLong))
      }
  }

  Codec.all.foreach { codec =>
    test(s"${codec.name}: what is damaged or cut off is an IOException, or comes back otherwise") {
      val raw = Array.tabulate[Byte](4000)(i => (i / 50).toByte) ++ bytes(200)
      val stored = codec.compress(raw)
      def attempt(bytes: Array[Byte], rawBytes: Int): Unit =
        Try(codec.restore(bytes, rawBytes)).failed.foreach {
          case _: IOException =>
          case other => fail(s"${codec.name} threw $other")
        }
      stored.indices.foreach { i =>
        val flipped = stored.clone()
        flipped(i) = (flipped(i) ^ (1 << random.nextInt(8))).toByte
        attempt(flipped, raw.length)
      }
      (0 to 200).foreach(_ => attempt(bytes(random.nextInt(500)), random.nextInt(5000)))
      stored.indices.by(7).foreach(length => attempt(stored.take(length), raw.length))
      if (codec != Codec.None) Seq(0, raw.length - 1, raw.length + 1).foreach { length =>
        intercept[IOException](codec.restore(stored, length))
      }
    }
  }

  test("a cursor's JSON is stored exactly") {
    Seq("0", "1.10", "\"}\"", "{\"a\": 1 }", "null", "[1,\n2]", "\"\\u0000é😀\"", "1E400", "9" * 100000)
      .foreach { json =>
        val cursor = Some(Cursor(12, json))
        val frame = frameOf("rows".getBytes, Codec.None, isFirst = false, hasMore = false, cursor)
        assert(fileOf(frame, "rows".getBytes).frameAt(0).get.cursor == cursor)
      }
  }
}

private object FrameTests {
  final class InMemory(bytes: Array[Byte]) extends LogFiles.In {
    override def length: Long = bytes.length.toLong
    override def readAt(position: Long, into: Array[Byte], wanted: Int): Int = {
      val there = math.max(0L, math.min(wanted.toLong, bytes.length - position)).toInt
      System.arraycopy(bytes, position.toInt, into, 0, there)
      there
    }
    override def close(): Unit = ()
  }
}
