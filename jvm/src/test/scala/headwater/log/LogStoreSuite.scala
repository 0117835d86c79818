package headwater.log

import scala.util.Using

import headwater.core.{ArrowSchema, Cursor, Durability, RowGroup, SeqOffset}
import headwater.task.{SliceColumns, SliceRows}
import headwater.testing.{NoThreadLeft, NumberedRows, Script}
import headwater.{DataLossException, InvalidOffsetException}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}
import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.types.{DataType, DoubleType, LongType, StringType, StructType}
import org.scalatest.funsuite.AnyFunSuite

/** Starts with a log and a checkpoint, which may not belong together. */
class LogStoreSuite extends AnyFunSuite with NoThreadLeft {
  import Logs._

  private def withDisk[T](body: Disk => T): T = Using.resource(new Disk)(body)

  private def on[T](disk: Disk, used: LogStore.Settings = settings(), known: Option[SeqOffset] = None)(
      body: LogStore => T
  ): T = withStore(new FaultyFiles(disk), used, known)(body)

  private def refused(
      disk: Disk,
      used: LogStore.Settings = settings(),
      known: Option[SeqOffset] = None
  ): String = {
    val before = disk.names.map(name => name -> disk.bytes(name).toSeq)
    val error = intercept[RuntimeException](open(new FaultyFiles(disk), used, known))
    assert(error.isInstanceOf[InvalidOffsetException] || error.isInstanceOf[DataLossException], error)
    assert(disk.names.map(name => name -> disk.bytes(name).toSeq) == before, "a refusal changes nothing")
    disk.lock(new FaultyFiles(disk)).close() // it has released the folder
    error.getMessage
  }

  test("a new log begins with row 0, or after the position that Spark has") {
    withDisk(disk => on(disk)(store => assert(store.next == 0 && store.run == Run && store.cursors.isEmpty)))
    withDisk { disk =>
      on(disk, known = offset(41, "00000000000000aa", Durability.Memory)) { store =>
        assert(store.next == 42 && store.buffer.latest == 41 && store.run == Run)
      }
    }
  }

  test("after a restart the same window returns the same rows, seqs continue, and the run stays") {
    withDisk { disk =>
      on(disk) { store =>
        (0 until 5).foreach(i => append(store, rowGroup(i * 3L, 3)))
        assert(ids(store, 3, 11) == (4 to 11))
      }
      (1 to 3).foreach { i =>
        val before = 14L + (i - 1) * 2
        on(disk, known = offset(11)) { store =>
          assert(store.next == before + 1 && store.run == Run && store.cursors == Map(0 -> before.toString))
          assert(ids(store, 3, 11) == (4 to 11))
          append(store, rowGroup(before + 1, 2))
          assert(ids(store, -1, before + 2) == (0L to before + 2))
        }
      }
      assert(disk.names.count(_.startsWith("manifest-")) == 1, "older manifests are gone")
    }
  }

  test("rows that were committed and are retained can be read again after a restart") {
    withDisk { disk =>
      on(disk) { store =>
        append(store, rowGroup(0, 4))
        store.commit(3)
        assert(store.buffer.firstNotDropped == 4)
      }
      on(disk, known = offset(1))(store => assert(ids(store, -1, 3) == (0 to 3)))
    }
  }

  test("rows of an earlier run never block, even above the limit") {
    withDisk { disk =>
      on(disk)(store => append(store, rowGroup(0, 10, bytes = 5000)))
      on(disk, settings(logBytes = 100), offset(3)) { store =>
        assert(store.buffer.latest == 9)
        assert(store.append(rowGroup(10, 1)))
        Script.await("it is not held back")(store.buffer.isBlocked)
        store.buffer.take(9)
        settle(store)
        assert(ids(store, 3, 10) == (4 to 10))
      }
    }
  }

  test("cursors of all shards survive: in notes, in headers of later segments, in row groups without rows") {
    withDisk { disk =>
      val each = settings(segmentBytes = 1, retainBatches = 0)
      on(disk, each) { store =>
        append(
          store,
          RowGroup(Seq(NumberedRows.rows(0, 2)), Some(Cursor(0, """{"b":1.10,"a":[null,"ü"]}""")))
        )
        append(
          store,
          RowGroup(Seq(NumberedRows.rows(2, 2)), Some(Cursor(7, "12345678901234567890.123456789")))
        )
        append(store, RowGroup(Nil, Some(Cursor(3, "\"only\""))))
        append(store, RowGroup(Seq(NumberedRows.rows(4, 2)), None))
        store.commit(5)
        Script.await(s"${disk.segments}")(disk.segments.length == 1)
      }
      on(disk, each, offset(5)) { store =>
        assert(
          store.cursors ==
            Map(0 -> """{"b":1.10,"a":[null,"ü"]}""", 3 -> "\"only\"", 7 -> "12345678901234567890.123456789")
        )
      }
    }
  }

  test("a log of another source is refused by name") {
    withDisk { disk =>
      on(disk)(_ => ())
      assert(
        refused(disk, settings().copy(source = "digits")).contains("it was 'letters' and is 'digits' now")
      )
    }
  }

  test("another concurrency is refused for a resumable source, and accepted for others") {
    withDisk { disk =>
      on(disk)(store => append(store, rowGroup(0, 1)))
      assert(refused(disk, settings().copy(shards = 2)).contains("concurrency was 1 and is 2 now"))
      on(disk, settings().copy(shards = 2, isResumable = false))(store => assert(store.next == 1))
    }
  }

  test("identity options that were changed, removed or added are refused by name") {
    withDisk { disk =>
      val was = settings().copy(identity = Map("url" -> "a", "topic" -> "x"))
      on(disk, was)(_ => ())
      def message(now: Map[String, String]) = refused(disk, was.copy(identity = now))
      assert(message(Map("url" -> "b", "topic" -> "x")).contains("its option 'url' was 'a' and is 'b' now"))
      assert(message(Map("url" -> "a")).contains("its option 'topic' was 'x' and is not set now"))
      assert(message(was.identity + ("zone" -> "1")).contains("its option 'zone' was not set and is '1' now"))
      on(disk, was)(_ => ())
    }
  }

  test(
    "a column that was dropped, has another type or is no longer nullable is refused before any row is read"
  ) {
    withDisk { disk =>
      val two = new StructType().add("value", LongType).add("text", StringType)
      def having(schema: StructType) = settings().copy(schema = schema.json)
      on(disk, having(two))(_ => ())
      assert(refused(disk, having(new StructType().add("value", LongType))).contains("column 'text' is gone"))
      assert(
        refused(disk, having(new StructType().add("value", DoubleType).add("text", StringType)))
          .contains("'value' was BIGINT and is DOUBLE now")
      )
      assert(
        refused(
          disk,
          having(new StructType().add("value", LongType, nullable = false).add("text", StringType))
        )
          .contains("'value' could be null, and cannot be now")
      )
      assert(
        refused(disk, having(two.add("more", LongType, nullable = false)))
          .contains("'more' is new and cannot be null")
      )
    }
  }

  test("a new nullable column is null in earlier rows, at any position") {
    withDisk { disk =>
      on(disk)(store => append(store, RowGroup(Seq(Script.arrow(Seq(5, 6))))))
      val arrow = new Schema(
        java.util.List.of(
          new Field("before", FieldType.nullable(new ArrowType.Utf8), null),
          new Field("value", FieldType.nullable(new ArrowType.Int(64, true)), null),
          new Field("after", FieldType.nullable(new ArrowType.Int(64, true)), null)
        )
      ).serializeAsMessage()
      val schema = new StructType().add("before", StringType).add("value", LongType).add("after", LongType)
      val now = settings().copy(schema = schema.json, arrowSchema = new ArrowSchema(arrow))
      on(disk, now, offset(0)) { store =>
        val stored =
          new StoredSlices(
            store.buffer.read(-1, 1).slices.iterator,
            () => new Configuration(false),
            (e, _) => throw e
          )
        Using.resource(stored) { _ =>
          val rows = new SliceRows(new SliceColumns(arrow, stored))
          val read = rows.map(row => (row.isNullAt(0), row.getLong(1), row.isNullAt(2))).toVector
          assert(read == Seq((true, 5L, true), (true, 6L, true)))
        }
      }
      val manifest = Manifest.read(new FaultyFiles(disk)).get
      assert(DataType.fromJson(manifest.schema) == schema, "the next start compares with this one")
    }
  }

  test(
    "a log without its checkpoint is refused if it records a commit or has dropped rows, and read from the start otherwise"
  ) {
    withDisk { disk =>
      on(disk)(store => append(store, rowGroup(0, 3)))
      on(disk) { store =>
        assert(all(store) == (0 to 2), "no batch was ever done")
        store.commit(1)
      }
      val message = refused(disk)
      assert(message.contains("offsets are gone") && message.contains("the rows up to 1"))
      assert(message.contains(disk.folder.toString) && message.contains("'offsets' and 'commits'"))
    }
    withDisk { disk =>
      val few = settings(retainBatches = 0, segmentBytes = 1)
      on(disk, few) { store =>
        (0 until 3).foreach(i => append(store, rowGroup(i * 2L, 2)))
        store.commit(3)
        Script.await(s"${disk.segments}")(disk.segments.length == 1)
      }
      assert(refused(disk, few).contains("offsets are gone"))
    }
  }

  test(
    "a checkpoint without its log is a loss, or with failOnDataLoss=false a new log after that position"
  ) {
    withDisk { disk =>
      val known = offset(9, "00000000000000aa")
      val message = refused(disk, known = known)
      assert(message.contains("is gone from") && message.contains("failOnDataLoss"))
      val lenient = settings(failOnDataLoss = false)
      on(disk, lenient, known)(store => assert(store.next == 10 && store.run == Run))
      on(disk, settings(), known) { store => // no rows in the meantime
        assert(store.next == 10)
        append(store, rowGroup(10, 2))
      }
      on(disk, settings(), offset(11))(store => assert(store.next == 12))
    }
  }

  test("segments without a manifest are refused") {
    withDisk { disk =>
      on(disk)(store => append(store, rowGroup(0, 3)))
      disk.names.filter(_.startsWith("manifest-")).foreach(disk.remove)
      assert(refused(disk).contains("no manifest"))
      assert(refused(disk, known = offset(1)).contains("no manifest"))
    }
  }

  test("the error for a damaged manifest names the file, whatever it contains") {
    withDisk { disk =>
      on(disk)(store => append(store, rowGroup(0, 3)))
      val name = disk.names.find(_.startsWith("manifest-")).get
      val sound = new String(disk.bytes(name), "UTF-8")
      Seq(
        "",
        "{",
        "[]",
        "null",
        "{}",
        sound.dropRight(1),
        sound.replace("\"v\":2", "\"v\":3"),
        sound.replace("\"v\":2", "\"v\":1"),
        sound.replace("\"shards\":1", "\"shards\":2"),
        sound + sound,
        "\u0000" * 9
      )
        .foreach { text =>
          disk.put(name, text.getBytes("UTF-8"))
          val error = intercept[DamagedException](open(new FaultyFiles(disk)))
          assert(error.getMessage.contains(name), text)
        }
      disk.put(name, sound.getBytes("UTF-8"))
      on(disk)(store => assert(store.next == 3))
    }
  }

  test("every flipped bit of a manifest is reported as damage, by the name of the file") {
    withDisk { disk =>
      on(disk)(store => append(store, rowGroup(0, 3)))
      val name = disk.names.find(_.startsWith("manifest-")).get
      val sound = disk.bytes(name)
      sound.indices.foreach { i =>
        disk.flip(name, i, i % 8)
        val error = intercept[DamagedException](open(new FaultyFiles(disk)))
        assert(error.getMessage.contains(s"$name is damaged"), s"byte $i")
        disk.put(name, sound)
      }
      on(disk)(store => assert(store.next == 3))
    }
  }

  test("a log of format 1 continues in format 2: same run, its segments stay, its manifest is replaced") {
    withDisk { disk =>
      val old = Written.segment(1, 0, 0, version = 1)(Seq(Written.Rows(Seq(3), Some(Cursor(0, "2")))))
      disk.put(old.name, old.bytes)
      disk.put("manifest-00000001.json", Version1.json(Logs.manifest.copy(epoch = 1)).getBytes("UTF-8"))
      on(disk, known = offset(0)) { store =>
        assert(store.run == Run && store.cursors == Map(0 -> "2") && all(store) == (0 to 2))
        append(store, rowGroup(3, 2))
        assert(all(store) == (0 to 4))
      }
      val key = Manifest.read(new FaultyFiles(disk)).get.key
      assert(key.length == 32)
      on(disk, known = offset(0)) { store =>
        assert(all(store) == (0 to 4) && store.cursors == Map(0 -> "4"))
        append(store, rowGroup(5, 1))
      }
      on(disk, known = offset(0))(store => assert(all(store) == (0 to 5)))
      assert(disk.bytes(old.name).sameElements(old.bytes))
      assert(disk.segments.map(name => disk.bytes(name)(7).toInt) == Seq(1, 2, 2))
      assert(Manifest.read(new FaultyFiles(disk)).get.key == key, "a log keeps its key")
    }
  }

  test("the newest segment gone is a loss, whether or not Spark's offsets name its rows") {
    Seq(settings(segmentBytes = 1), settings(segmentBytes = 1).copy(isResumable = false)).foreach { each =>
      withDisk { disk =>
        val files = new FaultyFiles(disk)
        val store = open(files, each)
        append(store, rowGroup(0, 2), rowGroup(2, 3))
        append(store, rowGroup(5, 2))
        files.die() // not a clean end
        close(store)
        disk.remove(disk.segments.last)
        val message = refused(disk, each, known = offset(1))
        assert(
          message.contains("the rows up to 6 were durable") && message.contains("the rows 5 to 6 are lost")
        )
        assert(refused(disk, each).contains("the rows 5 to 6 are lost"), "Spark has no offset yet")
        val lenient = each.copy(failOnDataLoss = false)
        on(disk, lenient, offset(1)) { store =>
          assert(store.next == 7 && store.buffer.read(1, 6).lost.map(l => (l.first, l.last)) == Seq((5L, 6L)))
        }
        // Nothing was written after them, so the next start numbers on from what is there.
        on(disk, each, offset(1)) { store =>
          assert(store.next == 5)
          append(store, rowGroup(5, 4))
        }
        disk.segments.foreach(disk.remove)
        assert(
          refused(disk, each, known = offset(1)).contains("the rows 0 to 8 are lost"),
          "all segments gone"
        )
      }
    }
  }

  test("rows that were durable at the end of a query are missed, wherever the file is cut") {
    withDisk { disk =>
      on(disk)(store => (0 until 3).foreach(i => append(store, rowGroup(i * 2L, 2))))
      val name = disk.segments.last
      val sound = disk.bytes(name)
      val groups = Using.resource(new SegmentFile(name, LocalFiles.open(disk.folder.resolve(name))))(_.groups)
      (groups(1).toInt + 1 until sound.length).foreach { length =>
        val next = if (length < groups(2)) 2L else 4L
        disk.put(name, sound.take(length))
        if (groups.contains(length.toLong)) assert(refused(disk).contains("the rows 4 to 5 are lost"))
        else {
          val lost = LogScan.of(new FaultyFiles(disk), Manifest.read(new FaultyFiles(disk)), 0).lost
          assert(lost.map(lost => (lost.first, lost.last)) == Seq((next, 5L)), s"cut at byte $length")
          assert(lost.head.why.contains(s"$name is damaged at byte "))
        }
      }
    }
  }

  test("a foreign segment is ignored or refused by name, at this start and at all later ones") {
    withDisk { disk =>
      on(disk)(store => append(store, rowGroup(0, 2)))
      disk.put("99999999-000000000000.segment", "not a segment".getBytes)
      (1 to 3).foreach { i =>
        on(disk, known = offset(0)) { store =>
          assert(store.next == i * 2)
          append(store, rowGroup(i * 2L, 2))
        }
      }
      assert(
        disk.names.contains("manifest-00000004.json") && disk.names.contains("99999999-000000000000.segment")
      )
      disk.put("99999999-000000000000.segment", disk.bytes("00000001-000000000000.segment"))
      assert(
        refused(disk, known = offset(0))
          .contains("99999999-000000000000.segment is not a segment of this log")
      )
    }
    withDisk { disk =>
      disk.put("99999999-000000000000.segment", "not a segment".getBytes)
      assert(refused(disk).contains("no manifest"), "a new log is not begun beside it")
    }
  }

  test("epochs beyond eight digits go on, and the last one is refused") {
    withDisk { disk =>
      on(disk)(store => append(store, rowGroup(0, 2)))
      disk.put("manifest-99999999.json", "{".getBytes)
      (1 to 3).foreach { i =>
        on(disk, known = offset(0)) { store =>
          assert(all(store) == (0 until i * 2))
          append(store, rowGroup(i * 2L, 2))
        }
      }
      assert(disk.segments.contains("100000002-000000000000.segment"))
      disk.put("manifest-999999999999999.json", "{".getBytes)
      assert(refused(disk, known = offset(0)).contains("epoch 999999999999999"))
    }
  }

  test(
    "after durability=memory a new log begins after the rows in memory, also after a restart without new rows"
  ) {
    withDisk { disk =>
      val inMemory = offset(4, "00000000000000aa", Durability.Memory)
      on(disk, known = inMemory)(store => assert(store.next == 5))
      on(disk, known = inMemory) { store =>
        assert(store.next == 5)
        append(store, rowGroup(5, 3))
      }
      on(disk, known = inMemory)(store => assert(all(store) == (5 to 7), "no batch had taken them"))
      on(disk, known = offset(6))(store => assert(ids(store, 4, 6) == Seq(5, 6)))
    }
  }

  test("a change from log to memory and back is refused: rows would be repeated or lost") {
    withDisk { disk =>
      on(disk)(store => append(store, rowGroup(0, 5)))
      val message = refused(disk, known = offset(7, "00000000000000aa", Durability.Memory))
      assert(message.contains("durability=memory") && message.contains("Set the option durability to memory"))
    }
  }

  test(
    "a position beyond the end of the log is a loss; with failOnDataLoss=false the log continues after it"
  ) {
    withDisk { disk =>
      on(disk)(store => append(store, rowGroup(0, 5)))
      assert(refused(disk, known = offset(7)).contains("the rows 5 to 7 are lost"))
      on(disk, settings(failOnDataLoss = false), offset(7)) { store =>
        assert(store.next == 8 && store.buffer.latest == 7)
        val window = store.buffer.read(3, 7)
        assert(window.lost.map(lost => (lost.first, lost.last)) == Seq((5L, 7L)))
        assert(ids(window.slices) == Seq(4))
        append(store, rowGroup(8, 2))
        assert(ids(store, 7, 9) == Seq(8, 9))
      }
      on(disk, known = offset(9)) { store =>
        assert(store.next == 10 && ids(store, 7, 9) == Seq(8, 9))
        assert(
          store.buffer.read(-1, 9).lost.map(lost => (lost.first, lost.last)) == Seq((5L, 7L)),
          "still lost, and still named"
        )
      }
    }
  }

  test("rows of a damaged segment are reported with file and position when a batch reads them, not before") {
    withDisk { disk =>
      on(disk, settings(segmentBytes = 1))(store =>
        (0 until 3).foreach(i => append(store, rowGroup(i * 3L, 3)))
      )
      val name = disk.segments(1)
      disk.flip(name, disk.bytes(name).length - 1, 3)
      on(disk, known = offset(8)) { store =>
        assert(ids(store, -1, 2) == (0 to 2) && ids(store, 5, 8) == (6 to 8))
        val error = intercept[DamagedException](ids(store, -1, 8))
        assert(error.getMessage.contains(name) && error.getMessage.contains("rows 3 to 5"))
      }
    }
  }

  test("a segment that was deleted by others is data loss, by name, when its rows are read") {
    withDisk { disk =>
      on(disk) { store =>
        append(store, rowGroup(0, 3))
        disk.remove(disk.segments.head)
        val error = intercept[DataLossException](all(store))
        assert(error.getMessage.contains("00000001-000000000000.segment is not there"))
      }
    }
  }

  test("an incomplete manifest does not count, and its epoch is not used again") {
    withDisk { disk =>
      on(disk)(store => append(store, rowGroup(0, 3)))
      Seq("", "{\"v\":1,").zipWithIndex.foreach { case (text, i) =>
        disk.put(f"manifest-${2 + i * 2}%08d.json", text.getBytes("UTF-8"))
        on(disk)(store => assert(all(store) == (0 to 2) && store.run == Run))
        assert(disk.names.filter(_.startsWith("manifest-")) == Seq(f"manifest-${3 + i * 2}%08d.json"))
      }
    }
  }

  test("an empty segment is deleted at the next start, and no other") {
    withDisk { disk =>
      on(disk)(store => append(store, rowGroup(0, 3)))
      disk.put("00000001-000000000001.segment", Array.emptyByteArray)
      disk.put("00000001-000000000002.segment", new Array[Byte](700))
      on(disk)(store => assert(all(store) == (0 to 2)))
      assert(disk.segments == Seq("00000001-000000000000.segment"))
    }
  }

  test("codecs may change between starts") {
    withDisk { disk =>
      Codec.all.zipWithIndex.foreach { case (codec, i) =>
        on(disk, settings(codec), Option.when(i > 0)(offset(0).get)) { store =>
          append(store, rowGroup(i * 4L, 4, bytes = 3000))
          assert(all(store) == (0L until (i + 1) * 4L))
        }
      }
    }
  }

  test("a store that is closed twice, or never used, releases everything") {
    withDisk { disk =>
      on(disk)(close)
      on(disk)(_ => ())
    }
  }
}
