package headwater.log

import java.nio.file.{Files, Path, Paths}

import scala.jdk.CollectionConverters._
import scala.util.Using

import headwater.core.{ArrowRows, Cursor, RowGroup, Slice}
import headwater.task.{SliceColumns, SliceRows}
import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite

/** Files of every released format stay readable. They were not written by this code: see tests/log_writer.py. */
class GoldenLogSuite extends AnyFunSuite {

  private val golden = Seq("tests", "../tests").map(Paths.get(_, "golden")).find(Files.isDirectory(_)).get

  private def copy(name: String): Path = {
    val folder = Files.createTempDirectory("headwater-golden")
    Using.resource(Files.list(golden.resolve(name)))(
      _.iterator.asScala.foreach(f => Files.copy(f, folder.resolve(f.getFileName)))
    )
    folder
  }

  private def stored(scan: LogScan): Vector[ArrowRows] = {
    val slices = scan.rows.iterator.map { case (_, rows) => Slice.whole(rows) }
    Using.resource(new StoredSlices(slices, () => new Configuration, (e, _) => throw e))(
      _.map(_.rows.asInstanceOf[ArrowRows]).toVector
    )
  }

  for (name <- Seq("log-v1", "log-v2", "log-v1-and-v2"))
    test(s"$name is read completely: rows, cursors and commits") {
      val files = new LocalFiles(copy(name), durable = false)
      val manifest = Manifest.read(files).get
      assert(manifest.source == "letters" && manifest.shards == 2)
      assert(manifest.identity == Map("url" -> "x"))
      val scan = LogScan.of(files, Some(manifest), manifest.first)
      assert(scan.next == 12 && scan.commits == Vector(2L, 7L) && scan.lost.isEmpty)
      assert(scan.cursors == Map(0 -> """{"id":14}""", 1 -> """"b-5""""))
      val segment = files.list().filter(_.endsWith(".segment")).min
      val schema = new SegmentFile("golden", files.read(segment)).header.arrowSchema
      val rows = new SliceRows(new SliceColumns(schema.bytes, stored(scan).iterator.map(Slice.whole(_))))
      val read = rows.map(row => row.getInt(0) -> row.getUTF8String(1).toString).toVector
      assert(read == (0 until 12).map(n => n -> ('a' + n).toChar.toString))
    }

  test("arrival times and shards of format 2 are read with the rows; format 1 has none") {
    def origins(name: String) = {
      val files = new LocalFiles(copy(name), durable = false)
      stored(LogScan.of(files, Manifest.read(files), 0)).map(rows => (rows.count, rows.shard, rows.arrived))
    }
    val (first, second) = (1700000000000000L, 1700000060000000L)
    val inFirst = Vector((3, 0, first), (2, 1, first + 1), (1, 1, first + 2))
    val inSecond = Vector((2, 0, second), (4, 0, second + 1))
    assert(origins("log-v2") == inFirst ++ inSecond)
    assert(origins("log-v1-and-v2") == Vector((3, 0, 0L), (2, 0, 0L), (1, 0, 0L)) ++ inSecond)
  }

  test("what this code writes is, byte for byte, the golden log of format 2") {
    val files = new LocalFiles(copy("log-v2"), durable = false)
    val manifest = Manifest.read(files).get
    val name = "00000001-000000000000.segment"
    val rows = stored(LogScan.of(files, Some(manifest), 0)).map(_.copy(schema = None))
    val schema = new SegmentFile("golden", files.read(name)).header.arrowSchema
    val folder = Files.createTempDirectory("headwater-golden")
    val empty = LogScan.of(new LocalFiles(folder, durable = false), None, 0)
    val settings = SegmentLog.Settings(Codec.None, 100, Long.MaxValue)
    val written = new LocalFiles(folder, durable = false)
    Using.resource(new SegmentWriter(written, manifest, empty, schema, settings)) { writer =>
      writer.write(
        Vector(
          RowGroup(rows.take(1), Some(Cursor(0, """{"id":2}"""))),
          RowGroup(rows.slice(1, 3), Some(Cursor(1, """"b-5"""")))
        ),
        -1
      )
      writer.write(Vector.empty, 2)
    }
    assert(
      Files
        .readAllBytes(folder.resolve(name))
        .sameElements(Files.readAllBytes(golden.resolve("log-v2").resolve(name)))
    )
    val text = Files.readString(golden.resolve("log-v2").resolve(manifest.name))
    assert(manifest.json == text.trim)
  }
}
