package headwater.log

import java.io.{IOException, StringWriter, Writer}
import java.lang.management.ManagementFactory
import java.nio.ByteBuffer
import java.nio.ByteOrder.LITTLE_ENDIAN
import java.nio.file.{Files, Path}

import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}

import headwater.core.Cursor
import org.scalatest.funsuite.AnyFunSuite

/** What the report on a log says beside what recovery does with the same files. tests/test_checkpoint.py has the rest. */
class CheckpointToolSuite extends AnyFunSuite {
  import Written._

  private val manifest = Logs.manifest

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
    recovery(log).lost.flatMap(lost => lost.first to lost.last).toSet
  }

  private def recovery(log: Path): LogScan =
    LogScan.of(new LocalFiles(log, durable = false), Some(manifest), manifest.first)

  private def report(log: Path): LogScan = LogScan.report(new LocalFolder(log), Some(manifest))

  for (version <- Seq(1, 2))
    test(
      s"format $version: the report and recovery agree on rows, cursors and lost rows, whichever byte of the last segment is flipped"
    ) {
      val a = segment(1, 0, 0, version = version)(Seq(rows(2)))
      val b = segment(1, 1, a.next, version = version)(
        Seq(rows(3), rows(2, 2), Rows(Nil, Some(Cursor(0, "1")))),
        Seq(Commit(4), Rows(Seq(1), Some(Cursor(0, "2")))),
        Seq(rows(1), rows(2, 1))
      )
      withCheckpoint(a, b) { (_, log) =>
        b.bytes.indices.foreach { position =>
          val bytes = b.bytes.clone()
          bytes(position) = (bytes(position) ^ (1 << (position % 8))).toByte
          Files.write(log.resolve(b.name), bytes)
          val recovery = this.recovery(log)
          val reported = report(log)
          assert(reported.copy(account = recovery.account) == recovery, s"byte $position")
          val isLost = recovery.lost.nonEmpty
          val isDamaged = reported.account.findings.exists(_.kind == Finding.Damage)
          assert(reported.account.findings.nonEmpty && (isDamaged || !isLost), s"byte $position")
        }
      }
    }

  for (version <- Seq(1, 2))
    test(s"format $version: a cursor is reported exactly when recovery refuses it") {
      def wrapped(json: String) = if (version == 1) s"""{"shard":0,"cursor":$json}""" else json
      val valid = Seq(wrapped("1"), wrapped("\"" + "x" * (15 << 20) + "\""))
      val invalid = "x" +:
        (if (version == 1) Seq("""{"shard":0}""", """{"shard":1234567890,"cursor":1}""") else Nil)
      val limits = Seq("9" * 20000, "[" * 2000 + "]" * 2000, "1e9999999999").map(wrapped)
      val format = if (version == 1) FrameFormat.V1 else new FrameFormat.V2(Logs.Key, 1, 0)
      (valid ++ invalid ++ limits).foreach { note =>
        withCheckpoint(segment(1, 0, 0, version = version)()) { (checkpoint, log) =>
          val file = log.resolve(SegmentHeader.nameOf(1, 0))
          val before = Files.readAllBytes(file)
          val bytes = note.getBytes("UTF-8")
          val frame = Frame.commit(format, 0, isFirst = true).copy(kind = Frame.RowsKind, note = bytes)
          Files.write(file, before ++ Written.bytes(frame, before.length.toLong))
          val isSound = run("verify", checkpoint)._1 == 0
          assert(starts(log) == isSound, note.take(30))
          assert(isSound || !valid.contains(note), note.take(30))
          assert(!isSound || !invalid.contains(note), note.take(30))
        }
      }
    }

  test(
    "cursors that together are too large for the header of a segment are reported, and no start takes them"
  ) {
    Seq(220 -> true, 256 -> false).foreach { case (shards, isValid) =>
      val groups =
        (0 until shards).map(shard => Seq(Rows(Nil, Some(Cursor(shard, "\"" + "x" * 140000 + "\"")))))
      withCheckpoint(segment(1, 0, 0)(groups: _*)) { (checkpoint, log) =>
        assert(starts(log) == isValid, shards)
        val (status, out) = run("verify", checkpoint)
        assert(status == (if (isValid) 0 else 1), out)
        if (!isValid) assert(out.contains("the cursors of 256 shards have"), out)
      }
    }
  }

  /** Whether a query could start here, and write. */
  private def starts(log: Path): Boolean = Try {
    Logs.withStore(new LocalFiles(log, durable = false))(store => Logs.append(store, Logs.rowGroup(0, 1)))
  }.isSuccess

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
    val plain = segment(1, 0, 0, version = 1)(Seq(rows(2)))
    val size = ByteBuffer.wrap(plain.bytes).order(LITTLE_ENDIAN).getInt(8)
    val json =
      plain.bytes.slice(SegmentHeader.FixedBytes, SegmentHeader.FixedBytes + size).padTo(length, ' '.toByte)
    val start = ByteBuffer.allocate(SegmentHeader.FixedBytes).order(LITTLE_ENDIAN).put(SegmentHeader.magic(1))
    start.putInt(length).putInt(Frame.crcOf(json, 0, length))
    start.array ++ json ++ plain.bytes.drop(SegmentHeader.FixedBytes + size)
  }

  test("a segment of a newer format is neither deleted by recovery nor reported as a torn tail") {
    withCheckpoint(segment(1, 0, 0)(Seq(rows(2)))) { (checkpoint, log) =>
      val file = log.resolve(SegmentHeader.nameOf(1, 1))
      Files.write(file, "HWLOG".getBytes ++ Array[Byte](0, 0, 3) ++ new Array[Byte](100))
      assert(recovery(log).torn.isEmpty)
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
    val format = new FrameFormat.V2(Logs.Key, 1, 0)
    val position = segment(1, 0, 0)().bytes.length.toLong
    val garbage =
      Seq[ByteBuffer => Unit](_.putInt(52, Int.MaxValue), _.putInt(40, 97 << 20), _.putInt(52, -1))
    val frames = garbage.map { change =>
      val frame = format.header(Frame.commit(format, 0, isFirst = true), position)
      change(ByteBuffer.wrap(frame).order(LITTLE_ENDIAN))
      frame
    }
    val payload = new Array[Byte](48 << 20)
    val crc = Frame.crcOf(payload, 0, payload.length)
    val large = Frame(
      format,
      Frame.RowsKind,
      Codec.None,
      true,
      false,
      0,
      5,
      0,
      0,
      payload.length,
      payload.length,
      crc,
      Array.emptyByteArray
    )
    (frames :+ (format.header(large, position) ++ payload)).zipWithIndex.foreach { case (frame, i) =>
      withCheckpoint(segment(1, 0, 0)()) { (_, log) =>
        val file = log.resolve(SegmentHeader.nameOf(1, 0))
        Files.write(file, Files.readAllBytes(file) ++ frame)
        report(log) // loads classes
        assert(allocated(report(log)) < (4 << 20), s"frame $i")
      }
    }
    withCheckpoint() { (_, log) =>
      val file = log.resolve(SegmentHeader.nameOf(1, 0))
      val start =
        ByteBuffer.allocate(1 << 20).order(LITTLE_ENDIAN).put(SegmentHeader.magic(2)).putInt(70 << 20)
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
