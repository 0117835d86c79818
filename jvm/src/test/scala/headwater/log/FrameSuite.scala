package headwater.log

import java.io.IOException
import java.nio.{ByteBuffer, ByteOrder}

import scala.util.{Random, Try}

import headwater.core.Cursor
import org.scalatest.funsuite.AnyFunSuite

/** One frame in a file: what was written is read, and anything else is refused. */
class FrameSuite extends AnyFunSuite {
  import FrameSuite._

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
      assert(read.header.sameElements(frame.header) && read.note.sameElements(frame.note))
      assert(read.copy(note = frame.note) == frame)
      assert(read.cursor == cursor)
      assert(file.isPayloadIntact(read, 0) && file.payload(read, 0).sameElements(raw))
    }
    val commit = Frame.commit(77, isFirst = true)
    val read = fileOf(commit, Array.emptyByteArray).frameAt(0).get
    assert(
      !read.isRows && read.seq == 77 && read.next == 77 && read.isFirst && read.length == Frame.HeaderBytes
    )
  }

  test("every flipped bit in header, note or payload is detected") {
    val raw = bytes(50)
    val frame = frameOf(raw, Codec.None, isFirst = true, hasMore = false, Some(Cursor(1, """"here"""")))
    val whole = frame.header ++ raw
    whole.indices.foreach { i =>
      (0 until 8).foreach { bit =>
        val flipped = whole.clone()
        flipped(i) = (flipped(i) ^ (1 << bit)).toByte
        val file = new SegmentFile("file:/x", new InMemory(flipped))
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
    val whole = frame.header ++ raw
    whole.indices.foreach { length =>
      assert(
        new SegmentFile("file:/x", new InMemory(whole.take(length))).frameAt(0).isEmpty,
        s"$length bytes"
      )
    }
  }

  test("invalid lengths are rejected even with a correct checksum, without large allocations") {
    val at = Seq("rows" -> 12, "stored" -> 24, "raw" -> 28, "note" -> 36)
    val values = Seq(Int.MinValue, -1, Int.MaxValue, Int.MaxValue - 8, 2000000000)
    for ((what, offset) <- at; value <- values if what != "rows" || value < 0) {
      val header = Frame.commit(1, isFirst = true).header
      val in = ByteBuffer.wrap(header).order(ByteOrder.LITTLE_ENDIAN)
      in.putInt(offset, value)
      in.putInt(4, Frame.crcOf(header, 8, Frame.HeaderBytes - 8))
      val file = new SegmentFile("file:/x", new InMemory(header ++ new Array[Byte](100)))
      assert(file.frameAt(0).isEmpty, s"$what $value")
      assert(file.nextGroup(0).isEmpty)
    }
    Seq(-1L, Long.MinValue).foreach { seq =>
      assert(
        new SegmentFile("file:/x", new InMemory(Frame.commit(seq, isFirst = true).header)).frameAt(0).isEmpty
      )
    }
  }

  test("random bytes contain no frames, and the search for the next sync group ends") {
    val noise = bytes(1 << 20)
    val marks = "hwfr".getBytes
    (0 until noise.length - 4 by 97).foreach(i => System.arraycopy(marks, 0, noise, i, 4))
    assert(new SegmentFile("file:/x", new InMemory(noise)).nextGroup(0).isEmpty)
  }

  test("the next sync group is found at every distance, across the pieces that are read at once") {
    val header = Frame.commit(5, isFirst = true).header
    Seq(0, 1, 39, 40, 41, 16343, 16344, 16345, 16383, 16384, 16385, 50000).foreach { distance =>
      val file =
        new SegmentFile("file:/x", new InMemory(new Array[Byte](distance) ++ header ++ new Array[Byte](9)))
      assert(file.nextGroup(0).contains(distance.toLong))
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
        assert(Frame.Note.read(Frame.Note.write(Cursor(12, json))) == Cursor(12, json))
      }
    intercept[IOException](Frame.Note.read("{}".getBytes))
  }
}

private object FrameSuite {
  final class InMemory(bytes: Array[Byte]) extends LogFiles.In {
    override def length: Long = bytes.length.toLong
    override def readAt(position: Long, into: Array[Byte], wanted: Int): Int = {
      val there = math.max(0L, math.min(wanted.toLong, bytes.length - position)).toInt
      System.arraycopy(bytes, position.toInt, into, 0, there)
      there
    }
    override def close(): Unit = ()
  }

  def frameOf(
      raw: Array[Byte],
      codec: Codec,
      isFirst: Boolean,
      hasMore: Boolean,
      cursor: Option[Cursor]
  ): Frame = {
    val stored = codec.compress(raw)
    val crc = Frame.crcOf(stored, 0, stored.length)
    val note = cursor.fold(Array.emptyByteArray)(Frame.Note.write)
    Frame(Frame.RowsKind, codec, isFirst, hasMore, 5, 123, stored.length, raw.length, crc, note)
  }

  def fileOf(frame: Frame, payload: Array[Byte]): SegmentFile =
    new SegmentFile("file:/x", new InMemory(frame.header ++ payload))
}
