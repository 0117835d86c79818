package headwater.log

import java.io.{IOException, StringWriter, Writer}
import java.lang.management.ManagementFactory
import java.nio.ByteBuffer
import java.nio.ByteOrder.LITTLE_ENDIAN
import java.nio.file.{Files, Path}

import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}

import headwater.core.{Cursor, LostRows}
import org.scalatest.funsuite.AnyFunSuite

/** What the report on a log says beside what recovery does with the same files. tests/test_checkpoint.py has the rest. */
class CheckpointToolSuite extends AnyFunSuite {
  import Written._

  private val manifest =
    Manifest(Logs.Source, Logs.Run, 1, 0, 1, """{"type":"struct","fields":[]}""", Map.empty)

  private def withCheckpoint[T](segments: Segment*)(body: (Path, Path) => T): T = {
    val checkpoint = Files.createTempDirectory("headwater-checkpoint")
    val log = Files.createDirectories(checkpoint.resolve("sources/0"))
    try {
      Files.writeString(log.resolve(manifest.name), manifest.json)
      segments.foreach(segment => Files.write(log.resolve(segment.name), segment.bytes))
      body(checkpoint, log)
    } finally {
      val files = Using.resource(Files.walk(checkpoint))(_.iterator.asScala.toVector)
      files.reverse.foreach(Files.delete)
    }
  }

  private def run(verb: String, checkpoint: Path): (Int, String) = {
    val out = new StringWriter
    val status = CheckpointTool.run(verb, "text", checkpoint.toString, out, new StringWriter)
    (status, out.toString)
  }

  /** The rows that recovery reports as lost, or its error. */
  private def recovered(log: Path): Try[Set[Long]] = Try {
    val scan = LogScan.of(new LocalFiles(log, durable = false), 0)
    scan.rows.collect { case (first, lost: LostRows) => first until first + lost.count }.flatten.toSet
  }

  private def report(log: Path): LogScan = LogScan.report(new LocalFolder(log), Some(manifest))

  test(
    "the report and recovery agree on rows, cursors and lost rows, whichever byte of the last segment is flipped"
  ) {
    val a = segment(1, 0, 0)(Seq(rows(2)))
    val b = segment(1, 1, a.next)(
      Seq(rows(3), rows(2, 2), Rows(Nil, Some(Cursor(0, "1")))),
      Seq(Commit(4), Rows(Seq(1), Some(Cursor(0, "2")))),
      Seq(rows(1), rows(2, 1))
    )
    withCheckpoint(a, b) { (_, log) =>
      b.bytes.indices.foreach { position =>
        val bytes = b.bytes.clone()
        bytes(position) = (bytes(position) ^ (1 << (position % 8))).toByte
        Files.write(log.resolve(b.name), bytes)
        val recovery = LogScan.of(new LocalFiles(log, durable = false), 0)
        val reported = report(log)
        assert(reported.copy(account = recovery.account) == recovery, s"byte $position")
        val isLost = recovery.rows.exists(_._2.isInstanceOf[LostRows])
        val isDamaged = reported.account.findings.exists(_.kind == Finding.Damage)
        assert(reported.account.findings.nonEmpty && (isDamaged || !isLost), s"byte $position")
      }
    }
  }

  test("the note of a frame is reported exactly when recovery refuses it") {
    Seq(
      """{"shard":0,"cursor":1}""" -> true,
      """{"shard":0}""" -> false,
      "x" -> false,
      """{"shard":1234567890,"cursor":1}""" -> false
    )
      .foreach { case (note, isValid) =>
        withCheckpoint(segment(1, 0, 0)()) { (checkpoint, log) =>
          val frame = Frame(Frame.RowsKind, Codec.None, true, false, 0, 0, 0, 0, 0, note.getBytes("UTF-8"))
          val file = log.resolve(SegmentHeader.nameOf(1, 0))
          Files.write(file, Files.readAllBytes(file) ++ frame.header)
          assert(recovered(log).isSuccess == isValid, note)
          assert(run("verify", checkpoint)._1 == (if (isValid) 0 else 1), note)
        }
      }
  }

  test("the header of a segment is refused above the same length as in recovery") {
    Seq(0 -> true, 1 -> false).foreach { case (above, isValid) =>
      withCheckpoint(segment(1, 1, 2)(Seq(rows(2)))) { (checkpoint, log) =>
        Files.write(log.resolve(SegmentHeader.nameOf(1, 0)), headerOf(SegmentHeader.MaxBytes + above))
        assert(recovered(log).get.isEmpty == isValid)
        val (status, out) = run("verify", checkpoint)
        assert(status == (if (isValid) 0 else 1), out)
        if (!isValid)
          assert(out.contains("33554433 bytes, more than the limit of 33554432; rows 0 to 1 are lost"), out)
      }
    }
  }

  /** A segment that begins with row 0, with two rows; spaces make its header so long. */
  private def headerOf(length: Int): Array[Byte] = {
    val plain = segment(1, 0, 0)(Seq(rows(2)))
    val size = ByteBuffer.wrap(plain.bytes).order(LITTLE_ENDIAN).getInt(8)
    val json =
      plain.bytes.slice(SegmentHeader.FixedBytes, SegmentHeader.FixedBytes + size).padTo(length, ' '.toByte)
    val start = ByteBuffer.allocate(SegmentHeader.FixedBytes).order(LITTLE_ENDIAN).put(SegmentHeader.Magic)
    start.putInt(length).putInt(Frame.crcOf(json, 0, length))
    start.array ++ json ++ plain.bytes.drop(SegmentHeader.FixedBytes + size)
  }

  test("a segment of a newer format is neither deleted by recovery nor reported as a torn tail") {
    withCheckpoint(segment(1, 0, 0)(Seq(rows(2)))) { (checkpoint, log) =>
      val file = log.resolve(SegmentHeader.nameOf(1, 1))
      Files.write(file, "HWLOG".getBytes ++ Array[Byte](0, 0, 2) ++ new Array[Byte](100))
      assert(LogScan.of(new LocalFiles(log, durable = false), 0).torn.isEmpty)
      assert(run("verify", checkpoint)._1 == 1)
    }
  }

  test("a length that is garbage is not allocated, and a large payload is read in pieces") {
    val threads = ManagementFactory.getThreadMXBean.asInstanceOf[com.sun.management.ThreadMXBean]
    def allocated(body: => Unit): Long = {
      val before = threads.getCurrentThreadAllocatedBytes
      body
      threads.getCurrentThreadAllocatedBytes - before
    }
    val garbage =
      Seq[ByteBuffer => Unit](_.putInt(36, Int.MaxValue), _.putInt(24, 97 << 20), _.putInt(36, -1))
    val frames = garbage.map { change =>
      val frame = Frame(Frame.RowsKind, Codec.None, true, false, 1, 0, 0, 0, 0, Array.emptyByteArray).header
      change(ByteBuffer.wrap(frame).order(LITTLE_ENDIAN))
      frame
    }
    val payload = new Array[Byte](48 << 20)
    val crc = Frame.crcOf(payload, 0, payload.length)
    val large = Frame(
      Frame.RowsKind,
      Codec.None,
      true,
      false,
      5,
      0,
      payload.length,
      payload.length,
      crc,
      Array.emptyByteArray
    )
    (frames :+ (large.header ++ payload)).zipWithIndex.foreach { case (frame, i) =>
      withCheckpoint(segment(1, 0, 0)()) { (_, log) =>
        val file = log.resolve(SegmentHeader.nameOf(1, 0))
        Files.write(file, Files.readAllBytes(file) ++ frame)
        report(log) // loads classes
        assert(allocated(report(log)) < (4 << 20), s"frame $i")
      }
    }
    withCheckpoint() { (_, log) =>
      val file = log.resolve(SegmentHeader.nameOf(1, 0))
      val start = ByteBuffer.allocate(1 << 20).order(LITTLE_ENDIAN).put(SegmentHeader.Magic).putInt(70 << 20)
      Files.write(file, start.array)
      assert(allocated(report(log)) < (4 << 20))
    }
  }

  test("a segment that a running query has begun since its header was read is read again") {
    val first = segment(1, 0, 0)(Seq(rows(2)))
    val next = segment(1, 1, 2)(Seq(rows(3)))
    withCheckpoint(first) { (_, log) =>
      val file = Files.createFile(log.resolve(next.name))
      var reads = 0
      val folder = new LocalFolder(log) {
        override def read(name: String): LogFiles.In = {
          if (name == next.name) {
            reads += 1
            if (reads == 2) Files.write(file, next.bytes)
          }
          super.read(name)
        }
      }
      val facts = CheckpointFolder.stable(folder)(LogFacts.read(folder))
      assert(facts.findings.isEmpty && facts.ranges == Vector((0L, 4L)) && reads == 4)
    }
  }

  test("the exit status is 1, without an error, when nobody reads the output") {
    withCheckpoint(segment(1, 0, 0)(Seq(rows(2)))) { (checkpoint, _) =>
      val gone = new Writer {
        override def write(text: Array[Char], from: Int, length: Int): Unit =
          throw new IOException("Broken pipe")
        override def flush(): Unit = ()
        override def close(): Unit = ()
      }
      val err = new StringWriter
      assert(CheckpointTool.run("show", "text", checkpoint.toString, gone, err) == 1)
      assert(err.toString.isEmpty)
    }
  }
}
