package headwater.log

import java.nio.file.{Files, Path, Paths}

import scala.jdk.CollectionConverters._
import scala.util.Using

import headwater.core.Slice
import headwater.task.SliceRows
import org.apache.arrow.memory.RootAllocator
import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite

/** Files of every released format stay readable. They were not written by this code: see tests/log_writer.py. */
class GoldenLogSuite extends AnyFunSuite {

  private val golden =
    Seq("tests", "../tests").map(Paths.get(_, "golden", "log-v1")).find(Files.isDirectory(_)).get

  private def copy(): Path = {
    val folder = Files.createTempDirectory("headwater-golden")
    Using.resource(Files.list(golden))(
      _.iterator.asScala.foreach(f => Files.copy(f, folder.resolve(f.getFileName)))
    )
    folder
  }

  test("a log of version 1 is read completely: rows, cursors and commits") {
    val files = new LocalFiles(copy(), durable = false)
    val manifest = Manifest.read(files).get
    assert(manifest.source == "letters" && manifest.epoch == 1 && manifest.shards == 2)
    assert(manifest.identity == Map("url" -> "x"))
    val scan = LogScan.of(files, manifest.first)
    assert(scan.next == 12 && scan.commits == Vector(2L, 7L))
    assert(scan.cursors == Map(0 -> """{"id":14}""", 1 -> """"b-5""""))
    val slices = scan.rows.iterator.map { case (_, rows) => Slice.whole(rows) }
    val stored = new StoredSlices(slices, () => new Configuration, (e, _) => throw e)
    val schema = new SegmentFile("golden", files.read("00000001-000000000000.segment")).header.arrowSchema
    Using.resource(new SliceRows(schema.bytes, stored, new RootAllocator)) { rows =>
      val read = rows.map(row => row.getInt(0) -> row.getUTF8String(1).toString).toVector
      assert(read == (0 until 12).map(n => n -> ('a' + n).toChar.toString))
    }
    stored.close()
  }
}
