package headwater.log

import java.io.IOException
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicReference

import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.{Random, Try, Using}

import headwater.core.{Cursor, RowGroup, Store}
import headwater.testing.{CapturedLog, NoThreadLeft, NumberedRows, Script}
import org.scalatest.funsuite.AnyFunSuite

/** The writer of the log on a disk that fails, fills up, is slow, and loses unsynced bytes. */
class SegmentLogSuite extends AnyFunSuite with NoThreadLeft {
  import Logs._

  private def withDisk[T](body: Disk => T): T = Using.resource(new Disk)(body)

  /** Each sync group has its own segment. */
  private def small(retainBatches: Int = 100, retainBytes: Long = Long.MaxValue): LogStore.Settings =
    settings(retainBatches = retainBatches, retainBytes = retainBytes, segmentBytes = 1)

  /** The content of the log as a start at this moment finds it. */
  private def scanOf(disk: Disk): LogScan = {
    val files = new FaultyFiles(disk)
    LogScan.of(files, Manifest.read(files), 0)
  }

  test("nothing is offered before it is durable") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk)) { store =>
        val gate = disk.block()
        assert(store.append(rowGroup(0, 5)))
        Script.await("it is not written")(disk.segments.exists(name => disk.bytes(name).length > 400))
        assert(store.buffer.latest == -1 && !store.isFlushed)
        gate.countDown()
        settle(store)
        assert(store.buffer.latest == 4 && all(store) == (0 to 4))
      }
    }
  }

  test("rows in the index survive a power cut at any step, and row groups are complete") {
    (1 to Seeds.count(150)).foreach { seed =>
      try powerCuts(seed)
      catch { case e: Throwable => fail(s"seed $seed", e) }
    }
  }

  private def powerCuts(seed: Int): Unit = withDisk { disk =>
    val random = new Random(seed)
    val codec = Codec.all(random.nextInt(3))
    val options = settings(codec, retainBatches = random.nextInt(3), segmentBytes = 1 + random.nextInt(3000))
    var offered = -1L // the newest offset that Spark was offered
    var known = -1L // the newest offset in the checkpoint
    var ends = Set(-1L) // the ends of row groups
    (1 to 6).foreach { round =>
      val files = new FaultyFiles(disk)
      if (random.nextInt(4) > 0) files.dieAfter(random.nextInt(60).toLong)
      val opened = Try(open(files, options, Option.when(known >= 0)(offset(known).get)))
      opened.failed.foreach(e => assert(files.isDead, s"round $round: $e"))
      opened.foreach { store =>
        assert(
          store.next > offered,
          s"round $round: rows up to $offered were offered, up to ${store.next - 1} are there"
        )
        assert(ends(store.next - 1), s"round $round: half a parcel, up to ${store.next - 1}")
        // Earlier rows may be about to be deleted.
        assert(ids(store, known, store.next - 1) == (known + 1 until store.next), s"round $round")
        assert(store.buffer.firstNotDropped <= known + 1, s"round $round: uncommitted rows are dropped")
        assert(
          store.cursors.get(0) == Option.when(store.next > 0)((store.next - 1).toString),
          s"round $round"
        )
        ends = ends.filter(_ < store.next)
        var next = store.next
        val steps = random.nextInt(15)
        (1 to steps).foreach { _ =>
          random.nextInt(10) match {
            case 0 if store.buffer.latest > known =>
              known += 1 + random.nextInt((store.buffer.latest - known).toInt)
              assert(ids(store, known - 1, known) == Seq(known))
              store.commit(known)
            case 1 => settle(store)
            case _ =>
              val rows = Seq.tabulate(1 + random.nextInt(3)) { i =>
                val batch = NumberedRows.rows(next, 1 + random.nextInt(5), 8 + random.nextInt(200))
                next += batch.count
                batch
              }
              if (store.append(RowGroup(rows, Some(Cursor(0, (next - 1).toString))))) ends += next - 1
              else next -= rows.map(_.count).sum
          }
        }
        if (random.nextBoolean()) settle(store)
        val powerCut = random.nextInt(3) > 0
        if (random.nextInt(4) > 0) files.die()
        close(store)
        offered = math.max(offered, lastOffered(store))
        if (powerCut) disk.loseUnsynced(random)
      }
      if (opened.isFailure && random.nextBoolean()) disk.loseUnsynced(random)
      files.die()
    }
  }

  /** Closing drops rows, and keeps seqs. */
  private def lastOffered(store: Store): Long = store.buffer.latest

  test("a failed sync ends the log: it is not retried, and rows that were offered stay readable") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk)) { store =>
        append(store, rowGroup(0, 3))
        disk.failSyncs("Input/output error")
        append(store, rowGroup(3, 3))
        val syncs = disk.syncCount
        assert(
          store.failure.exists(e =>
            e.isInstanceOf[LogFailedException] && e.getMessage.contains("Input/output error")
          )
        )
        assert(store.failure.get.getMessage.contains(disk.segments.last))
        assert(!store.append(rowGroup(6, 1)) && store.buffer.latest == 2 && all(store) == (0 to 2))
        store.commit(1)
        close(store)
        assert(disk.syncCount == syncs)
      }
    }
  }

  test(
    "a disk that is full at any byte blocks the feed, and nothing is lost or repeated when it has room again"
  ) {
    val disks = (0L to 1200L by 60L).map { room =>
      val disk = new Disk
      val fresh = room % 120 == 0
      val store = open(new FaultyFiles(disk), settings(segmentBytes = 2000))
      if (!fresh) append(store, rowGroup(0, 2))
      disk.limit(room)
      val first = if (fresh) 0L else 2L
      (0 until 20).foreach(i => assert(store.append(rowGroup(first + i * 3, 3))))
      (disk, store, first + 60)
    }
    disks.foreach { case (disk, store, _) =>
      Script.await("it was not full")(disk.refusedWrites > 0 || store.failure.nonEmpty)
    }
    disks.foreach { case (_, store, _) => assert(store.failure.isEmpty) }
    disks.foreach { case (disk, _, _) => disk.limit(Long.MaxValue) }
    disks.foreach { case (disk, store, end) =>
      awaitFlushed(store)
      assert(store.failure.isEmpty && all(store) == (0L until end))
      close(store)
      withStore(new FaultyFiles(disk), known = offset(0))(again => assert(all(again) == (0L until end)))
      disk.close()
    }
  }

  test("a sync that fails on a full disk ends the log like any other failed sync") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk)) { store =>
        append(store, rowGroup(0, 3))
        disk.failSyncs("No space left on device")
        append(store, rowGroup(3, 3))
        assert(store.failure.exists(_.isInstanceOf[LogFailedException]) && disk.syncCount == 2)
        assert(all(store) == (0 to 2))
      }
    }
  }

  test("on a full disk committed rows are deleted, and make room") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk), small(retainBatches = 0)) { store =>
        (0 until 5).foreach(i => append(store, rowGroup(i * 2L, 2)))
        disk.limit(0)
        assert(store.append(rowGroup(10, 2)))
        store.commit(9)
        awaitFlushed(store)
        assert(store.failure.isEmpty && ids(store, 9, 11) == Seq(10, 11))
      }
    }
  }

  test("a full disk does not remove the cursors and commits of a segment without rows") {
    withDisk { disk =>
      val files = new FaultyFiles(disk)
      val store = open(files, small())
      append(store, rowGroup(0, 3))
      store.commit(1)
      append(store, RowGroup(Nil, Some(Cursor(0, "\"far\"")))) // in a segment of its own, with the commit
      assert(scanOf(disk).cursors == Map(0 -> "\"far\"") && scanOf(disk).commits == Seq(1))
      disk.limit(0)
      assert(store.append(rowGroup(3, 3)))
      Script.await("it was not tried")(disk.refusedWrites > 0)
      files.die()
      disk.limit(Long.MaxValue)
      awaitFlushed(store)
      close(store)
      assert(scanOf(disk).cursors == Map(0 -> "\"far\"") && scanOf(disk).commits == Seq(1))
    }
  }

  test("commit retains the last batches, and deletes the segments before them") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk), small(retainBatches = 2)) { store =>
        (0 until 10).foreach(i => append(store, rowGroup(i * 2L, 2)))
        val names = disk.segments
        assert(names.length == 10)
        (0 until 10).foreach { i =>
          store.commit(i * 2 + 1)
          val left = names.drop(math.max(0, i - 1))
          Script.await(s"after commit $i there are ${disk.segments}")(disk.segments == left)
        }
      }
      withStore(new FaultyFiles(disk), small(retainBatches = 2), offset(19)) { store =>
        assert(store.buffer.firstNotDropped <= 16 && all(store).last == 19, "two batches can be read again")
      }
    }
  }

  test(
    "committed segments have at most retainBytes, and a segment with an uncommitted row is never deleted"
  ) {
    withDisk { disk =>
      withStore(new FaultyFiles(disk), small(retainBatches = 100, retainBytes = 1)) { store =>
        (0 until 6).foreach(i => append(store, rowGroup(i * 2L, 2)))
        store.commit(6) // in the middle of the fourth
        Script.await(s"${disk.segments}")(disk.segments.length == 3)
        assert(ids(store, 6, 11) == (7 to 11))
        append(store, rowGroup(12, 1))
        assert(disk.segments.length == 4)
        assert(store.metrics("retainedBytes") == 0)
        assert(store.metrics("logBytes") == disk.segments.map(disk.bytes(_).length).sum)
      }
    }
  }

  test("the last segment is never deleted, since it has the next seq and the cursors") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk), small(retainBatches = 0, retainBytes = 1)) { store =>
        (0 until 3).foreach(i => append(store, rowGroup(i * 2L, 2)))
        store.commit(5)
        Script.await(s"${disk.segments}")(disk.segments.length == 1)
      }
      val scan = scanOf(disk)
      assert(scan.next == 6 && scan.cursors == Map(0 -> "5") && scan.commits.last == 5)
    }
  }

  test("close writes what was appended, even if a sync is slow") {
    withDisk { disk =>
      val store = open(new FaultyFiles(disk))
      val gate = disk.block()
      (0 until 10).foreach(i => assert(store.append(rowGroup(i.toLong, 1))))
      val closing = new Thread(() => close(store))
      closing.start()
      Script.await("close does not wait")(closing.getState == Thread.State.TIMED_WAITING)
      gate.countDown()
      closing.join()
      assert(scanOf(disk).next == 10 && !store.append(rowGroup(10, 1)))
    }
  }

  test("close records the last commit") {
    withDisk { disk =>
      val store = open(new FaultyFiles(disk))
      append(store, rowGroup(0, 4))
      store.commit(2)
      close(store)
      assert(scanOf(disk).commits == Seq(2))
    }
  }

  test("append blocks while too many bytes are not durable, continues when they are, and close releases it") {
    withDisk { disk =>
      val store = open(new FaultyFiles(disk))
      val gate = disk.block()
      val taken = new AtomicReference[Seq[Boolean]](Nil)
      val feed = new Thread(() => {
        var open = true
        var i = 0
        while (open && i < 1000) {
          open = store.append(rowGroup(i.toLong, 1, bytes = 4 << 20))
          taken.updateAndGet(_ :+ open)
          i += 1
        }
      })
      feed.start()
      Script.await("the feed is not held back")(feed.getState == Thread.State.WAITING)
      val before = taken.get.length
      assert(before >= 4 && before <= 8, "16 MiB wait, and what is being written")
      gate.countDown()
      disk.synchronized { disk.gate = None }
      Script.await("the feed does not go on")(taken.get.length > before)
      disk.block()
      Script.await("the feed is not held back")(feed.getState == Thread.State.WAITING)
      val last = disk.synchronized(disk.gate.get)
      val start = System.nanoTime()
      close(store)
      feed.join(20000)
      assert(!feed.isAlive && !taken.get.last && System.nanoTime() - start < 10000000000L)
      last.countDown()
    }
  }

  test("a full index blocks the log and its feed until a batch takes rows") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk), settings(logBytes = 100)) { store =>
        (0 until 10).foreach(i => assert(store.append(rowGroup(i * 2L, 2, bytes = 60))))
        Script.await("it is not full")(store.buffer.isBlocked)
        assert(!store.isFlushed)
        while (store.buffer.latest < 19) {
          val end = store.buffer.latest
          store.buffer.take(end)
          store.commit(end)
          Script.await("it does not go on")(store.buffer.latest > end || store.isFlushed)
        }
        settle(store)
      }
      assert(scanOf(disk).next == 20)
    }
  }

  test("durable rows are acknowledged while the log is full") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk), settings(logBytes = 100)) { store =>
        val acknowledged = new AtomicReference[Map[Int, String]](Map.empty)
        store.onDurable(cursors => { acknowledged.updateAndGet(_ ++ cursors); () })
        assert(store.append(rowGroup(0, 4, bytes = 200))) // more than fits
        Script.await("it is not full")(store.buffer.isBlocked)
        Script.await("it is durable, and was not acknowledged")(acknowledged.get == Map(0 -> "3"))
        assert(store.buffer.latest < 3, "not all of it is in the index")
      }
    }
  }

  test("a full log closes in time, and the next start has every row that was appended") {
    withDisk { disk =>
      val store = open(new FaultyFiles(disk), settings(logBytes = 100))
      (0 until 10).foreach(i => assert(store.append(rowGroup(i * 2L, 2, bytes = 60))))
      Script.await("it is not full")(store.buffer.isBlocked)
      store.buffer.close()
      store.close(30.seconds.fromNow, availableNow = false)
      assert(store.failure.isEmpty && !store.append(rowGroup(20, 1)))
      withStore(new FaultyFiles(disk), settings(logBytes = 100)) { again =>
        assert(again.cursors == Map(0 -> "19") && all(again) == (0 to 19))
      }
    }
  }

  test("a disk that is nearly full blocks the feed before Spark's own files have no room") {
    withDisk { disk =>
      disk.resize(free = 200000, total = 800000) // 100000 bytes are left for Spark
      withStore(new FaultyFiles(disk)) { store =>
        val rows = (0 until 40).map(i => rowGroup(i.toLong, 1, bytes = 5000))
        rows.foreach(rowGroup => assert(store.append(rowGroup)))
        Script.await("the feed is not held back")(store.buffer.isBlocked)
        assert(disk.free >= 100000 && disk.refusedWrites == 0 && store.failure.isEmpty)
        assert(
          all(store) == (0L to store.buffer.latest) && store.buffer.latest > 10,
          "as many as fit are there"
        )
        disk.resize(free = 800000, total = 800000)
        awaitFlushed(store)
        assert(all(store) == (0 until 40))
      }
    }
  }

  test("a nearly full disk does not stop the next batch, whose commit makes room") {
    withDisk { disk =>
      disk.resize(free = 200000, total = 800000)
      withStore(new FaultyFiles(disk)) { store =>
        (0 until 100).foreach(i => assert(store.append(rowGroup(i.toLong, 1, bytes = 5000))))
        var taken = -1L
        while (taken < 99) { // as Spark does it: a batch is committed when the next one has been planned
          Script.await(s"no row after $taken")(store.buffer.latest > taken)
          val end = store.buffer.latest
          assert(ids(store, taken, end) == (taken + 1 to end))
          store.buffer.take(end)
          if (taken >= 0) store.commit(taken)
          taken = end
          assert(disk.free >= 50000 && disk.refusedWrites == 0)
        }
      }
    }
  }

  test("a query that stops on a nearly full disk loses no row") {
    withDisk { disk =>
      disk.resize(free = 120000, total = 800000) // 100000 bytes are left for Spark
      val store = open(new FaultyFiles(disk))
      (0 until 10).foreach(i => assert(store.append(rowGroup(i.toLong, 1, bytes = 5000))))
      Script.await("the feed is not held back")(store.buffer.isBlocked)
      close(store)
      assert(store.failure.isEmpty && disk.free >= 50000)
      withStore(new FaultyFiles(disk))(again => assert(all(again) == (0 until 10)))
    }
  }

  test("a sync group that a full disk refused in the middle uses no space") {
    withDisk { disk =>
      val store = open(new FaultyFiles(disk))
      append(store, rowGroup(0, 2))
      val durable = disk.bytes(disk.segments.last).length
      disk.limit(3000)
      assert(store.append(rowGroup(2, 1, bytes = 5000)))
      Script.await("it was not tried")(disk.refusedWrites > 0)
      Script.await(s"${disk.bytes(disk.segments.last).length} bytes are left of $durable")(
        disk.bytes(disk.segments.head).length == durable
      )
      disk.limit(Long.MaxValue)
      awaitFlushed(store)
      assert(all(store) == (0 to 2))
      close(store)
      assert(scanOf(disk).account.findings.isEmpty)
    }
  }

  test("a log on a full disk ends soon when its query stops, without an error") {
    withDisk { disk =>
      val store = open(new FaultyFiles(disk))
      append(store, rowGroup(0, 2))
      disk.limit(0)
      assert(store.append(rowGroup(2, 2)))
      Script.await("the feed is not held back")(store.buffer.isBlocked)
      CapturedLog(classOf[SegmentLog]) { log =>
        store.buffer.close()
        Script.await("append does not return")(!store.append(rowGroup(4, 1)))
        close(store)
        assert(!log.lines.exists(_.startsWith("ERROR")), log.lines)
        assert(log.has("WARN", "the log ends before its last 2 rows are durable"))
      }
      disk.limit(Long.MaxValue)
      withStore(new FaultyFiles(disk))(again => assert(all(again) == (0 to 1)))
    }
  }

  test("the largest cursors of 256 shards, and those of earlier versions, are found again") {
    val largest = s"\"${"x" * (Cursor.MaxTotalBytes / 256 - 2)}\""
    val cursors = (0 until 256).map(_ -> largest).toMap
    val earlier = Map(0 -> "9" * 1500, 1 -> ("[" * 900 + "]" * 900))
    Seq(cursors, earlier).foreach { cursors =>
      withDisk { disk =>
        withStore(new FaultyFiles(disk)) { store =>
          append(
            store,
            cursors.toSeq.map { case (shard, json) => RowGroup(Nil, Some(Cursor(shard, json))) }: _*
          )
        }
        (0 to 1).foreach { i =>
          withStore(new FaultyFiles(disk)) { store =>
            assert(store.cursors == cursors)
            append(
              store,
              RowGroup(Seq(NumberedRows.rows(i.toLong, 1)))
            ) // begins a segment, with the cursors in its header
            assert(store.failure.isEmpty)
          }
        }
      }
    }
  }

  test("the listener gets the newest durable cursor of each shard, and its failure does no harm") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk)) { store =>
        val durable = new AtomicReference[Map[Int, String]](Map.empty)
        store.onDurable { cursors =>
          assert(scanOf(disk).cursors.toSet.intersect(cursors.toSet) == cursors.toSet, "not durable")
          durable.updateAndGet(_ ++ cursors)
          throw new IllegalStateException("the listener is broken")
        }
        append(
          store,
          RowGroup(Nil, Some(Cursor(1, "\"a\""))),
          rowGroup(0, 2),
          RowGroup(Nil, Some(Cursor(1, "\"b\"")))
        )
        Script.await(s"the listener got ${durable.get}")(durable.get == Map(0 -> "1", 1 -> "\"b\""))
        assert(store.failure.isEmpty && store.buffer.latest == 1)
      }
    }
  }

  test(
    "a second query is refused while the first holds the lock, and accepted afterwards"
  ) {
    val folder = Files.createTempDirectory("headwater-lock")
    def isLockedForOthers: Boolean = {
      val inode = Files.getAttribute(folder.resolve("lock"), "unix:ino").toString
      Files.readAllLines(java.nio.file.Paths.get("/proc/locks")).asScala.exists(_.contains(s":$inode "))
    }
    try {
      val first = open(new LocalFiles(folder, durable = true))
      assert(isLockedForOthers)
      val refused = intercept[IOException](open(new LocalFiles(folder, durable = true)))
      assert(refused.getMessage.contains("one query at a time may use a checkpoint"))
      assert(isLockedForOthers, "the refused one has opened the folder to other processes")
      append(first, rowGroup(0, 3))
      close(first)
      assert(!isLockedForOthers)
      withStore(new LocalFiles(folder, durable = true))(store => assert(all(store) == (0 to 2)))
    } finally {
      Using.resource(Files.list(folder))(_.iterator.asScala.toVector).foreach(Files.delete)
      Files.delete(folder)
    }
  }

  test("without a lock, a replaced driver stops, and its late rows do not count") {
    withDisk { disk =>
      val old = open(new FaultyFiles(disk, canAppend = false))
      append(old, rowGroup(0, 3))
      val fresh = open(new FaultyFiles(disk, canAppend = false), known = offset(1))
      assert(fresh.next == 3)
      append(fresh, rowGroup(3, 2))
      append(old, rowGroup(3, 9))
      assert(
        old.failure.exists(e =>
          e.getMessage.contains("Another driver has taken over") && e.getMessage.contains("epoch 2")
        )
      )
      assert(!old.append(rowGroup(12, 1)))
      close(old)
      append(fresh, rowGroup(5, 2))
      assert(fresh.failure.isEmpty && all(fresh) == (0 to 6))
      close(fresh)
      assert(disk.segments.length == 3, "each group is a file")
      withStore(new FaultyFiles(disk, canAppend = false), known = offset(1))(store =>
        assert(all(store) == (0 to 6))
      )
    }
  }

  test("a sync group that was being written at a takeover is offered by at most one driver") {
    withDisk { disk =>
      val old = open(new FaultyFiles(disk, canAppend = false))
      append(old, rowGroup(0, 3))
      val gate = disk.block()
      assert(old.append(rowGroup(3, 9)))
      Script.await("the group was not begun")(disk.segments.length == 2)
      val fresh = open(new FaultyFiles(disk, canAppend = false), known = offset(1))
      gate.countDown()
      settle(old)
      assert(old.failure.exists(_.getMessage.contains("Another driver has taken over")))
      assert(old.buffer.latest == 2, "what the new driver may not have seen")
      Seq(old, fresh).foreach(close)
    }
  }

  test("on Hadoop file systems a restart finds the same rows, in one file for each sync group") {
    val folder = Files.createTempDirectory("headwater-hadoop")
    val path = new org.apache.hadoop.fs.Path(folder.toUri)
    def files = new HadoopFiles(path, new org.apache.hadoop.conf.Configuration)
    try {
      withStore(files) { store =>
        append(store, rowGroup(0, 3))
        append(store, rowGroup(3, 3))
        store.commit(1)
      }
      withStore(files, known = offset(1)) { store =>
        assert(all(store) == (0 to 5) && store.cursors == Map(0 -> "5"))
        append(store, rowGroup(6, 1))
        assert(all(store) == (0 to 6))
      }
    } finally {
      Using.resource(Files.list(folder))(_.iterator.asScala.toVector).foreach(Files.delete)
      Files.delete(folder)
    }
  }
}
