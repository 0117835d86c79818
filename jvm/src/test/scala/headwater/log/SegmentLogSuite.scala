package headwater.log

import java.io.IOException
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicReference

import scala.jdk.CollectionConverters._
import scala.util.{Random, Try, Using}

import headwater.core.{Cursor, RowGroup, Store}
import headwater.testing.{NoThreadLeft, NumberedRows, Script}
import org.scalatest.funsuite.AnyFunSuite

/** The writer of the log, on a disk that fails, fills up, is slow, and loses what was not synced. */
class SegmentLogSuite extends AnyFunSuite with NoThreadLeft {
  import Logs._

  private def withDisk[T](body: Disk => T): T = Using.resource(new Disk)(body)

  /** Each group gets a segment of its own. */
  private def small(retainBatches: Int = 100, retainBytes: Long = Long.MaxValue): LogStore.Settings =
    settings(retainBatches = retainBatches, retainBytes = retainBytes, segmentBytes = 1)

  /** What a start after this moment finds: rows, cursors, commits. */
  private def scanOf(disk: Disk): LogScan = LogScan.of(new FaultyFiles(disk), 0)

  test("nothing is offered before it is durable") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk)) { store =>
        val gate = disk.block()
        assert(store.give(parcel(0, 5)))
        Script.await("it is not written")(disk.segments.exists(name => disk.bytes(name).length > 400))
        assert(store.buffer.latest == -1 && !store.isSettled)
        gate.countDown()
        settle(store)
        assert(store.buffer.latest == 4 && all(store) == (0 to 4))
      }
    }
  }

  test("what is in the index is there after a power cut at any step, and parcels are whole") {
    (1 to Seeds.count(150)).foreach { seed =>
      try powerCuts(seed)
      catch { case e: Throwable => fail(s"seed $seed", e) }
    }
  }

  private def powerCuts(seed: Int): Unit = withDisk { disk =>
    val random = new Random(seed)
    val codec = Codec.all(random.nextInt(3))
    val used = settings(codec, retainBatches = random.nextInt(3), segmentBytes = 1 + random.nextInt(3000))
    var offered = -1L // what a source has told Spark
    var known = -1L // what Spark has noted of it
    var ends = Set(-1L) // where parcels end
    (1 to 6).foreach { round =>
      val files = new FaultyFiles(disk)
      if (random.nextInt(4) > 0) files.dieAfter(random.nextInt(60).toLong)
      val opened = Try(open(files, used, Option.when(known >= 0)(offset(known).get)))
      opened.failed.foreach(e => assert(files.isDead, s"round $round: $e"))
      opened.foreach { store =>
        assert(
          store.next > offered,
          s"round $round: rows up to $offered were offered, up to ${store.next - 1} are there"
        )
        assert(ends(store.next - 1), s"round $round: half a parcel, up to ${store.next - 1}")
        // Those before may be on their way out.
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
              if (store.give(RowGroup(rows, Some(Cursor(0, (next - 1).toString))))) ends += next - 1
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

  /** Closing forgets the rows, not the numbers. */
  private def lastOffered(store: Store): Long = store.buffer.latest

  test("a sync that fails ends the log: it is not tried again, and what was offered stays readable") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk)) { store =>
        give(store, parcel(0, 3))
        disk.failSyncs("Input/output error")
        give(store, parcel(3, 3))
        val syncs = disk.syncCount
        assert(
          store.failure.exists(e =>
            e.isInstanceOf[LogFailedException] && e.getMessage.contains("Input/output error")
          )
        )
        assert(store.failure.get.getMessage.contains(disk.segments.last))
        assert(!store.give(parcel(6, 1)) && store.buffer.latest == 2 && all(store) == (0 to 2))
        store.commit(1)
        close(store)
        assert(disk.syncCount == syncs)
      }
    }
  }

  test(
    "a disk that is full at any byte holds the feed back, and nothing is lost or repeated when it has room again"
  ) {
    val disks = (0L to 1200L by 60L).map { room =>
      val disk = new Disk
      val fresh = room % 120 == 0
      val store = open(new FaultyFiles(disk), settings(segmentBytes = 2000))
      if (!fresh) give(store, parcel(0, 2))
      disk.limit(room)
      val first = if (fresh) 0L else 2L
      (0 until 20).foreach(i => assert(store.give(parcel(first + i * 3, 3))))
      (disk, store, first + 60)
    }
    disks.foreach { case (disk, store, _) =>
      Script.await("it was not full")(disk.refusedWrites > 0 || store.failure.nonEmpty)
    }
    disks.foreach { case (_, store, _) => assert(store.failure.isEmpty) }
    disks.foreach { case (disk, _, _) => disk.limit(Long.MaxValue) }
    disks.foreach { case (disk, store, end) =>
      settle(store)
      assert(store.failure.isEmpty && all(store) == (0L until end))
      close(store)
      withStore(new FaultyFiles(disk), known = offset(0))(again => assert(all(again) == (0L until end)))
      disk.close()
    }
  }

  test("a sync that fails since the disk is full ends the log as any other does") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk)) { store =>
        give(store, parcel(0, 3))
        disk.failSyncs("No space left on device")
        give(store, parcel(3, 3))
        assert(store.failure.exists(_.isInstanceOf[LogFailedException]) && disk.syncCount == 2)
        assert(all(store) == (0 to 2))
      }
    }
  }

  test("on a full disk what Spark commits is deleted meanwhile, and makes room") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk), small(retainBatches = 0)) { store =>
        (0 until 5).foreach(i => give(store, parcel(i * 2L, 2)))
        disk.limit(0)
        assert(store.give(parcel(10, 2)))
        store.commit(9)
        settle(store)
        assert(store.failure.isEmpty && ids(store, 9, 11) == Seq(10, 11))
      }
    }
  }

  test("a full disk does not undo what a segment without rows has kept: its cursors and commits") {
    withDisk { disk =>
      val files = new FaultyFiles(disk)
      val store = open(files, small())
      give(store, parcel(0, 3))
      store.commit(1)
      give(store, RowGroup(Nil, Some(Cursor(0, "\"far\"")))) // in a segment of its own, with the commit
      assert(scanOf(disk).cursors == Map(0 -> "\"far\"") && scanOf(disk).commits == Seq(1))
      disk.limit(0)
      assert(store.give(parcel(3, 3)))
      Script.await("it was not tried")(disk.refusedWrites > 0)
      files.die()
      disk.limit(Long.MaxValue)
      settle(store)
      close(store)
      assert(scanOf(disk).cursors == Map(0 -> "\"far\"") && scanOf(disk).commits == Seq(1))
    }
  }

  test("commit keeps the last batches, and drops the segments before them") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk), small(retainBatches = 2)) { store =>
        (0 until 10).foreach(i => give(store, parcel(i * 2L, 2)))
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
    "committed segments weigh no more than retainBytes, and one with an uncommitted row is never dropped"
  ) {
    withDisk { disk =>
      withStore(new FaultyFiles(disk), small(retainBatches = 100, retainBytes = 1)) { store =>
        (0 until 6).foreach(i => give(store, parcel(i * 2L, 2)))
        store.commit(6) // in the middle of the fourth
        Script.await(s"${disk.segments}")(disk.segments.length == 3)
        assert(ids(store, 6, 11) == (7 to 11))
        give(store, parcel(12, 1))
        assert(disk.segments.length == 4)
        assert(store.metrics("retainedBytes") == 0)
        assert(store.metrics("logBytes") == disk.segments.map(disk.bytes(_).length).sum)
      }
    }
  }

  test("the last segment stays, however much is committed: it holds numbers and cursors") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk), small(retainBatches = 0, retainBytes = 1)) { store =>
        (0 until 3).foreach(i => give(store, parcel(i * 2L, 2)))
        store.commit(5)
        Script.await(s"${disk.segments}")(disk.segments.length == 1)
      }
      val scan = scanOf(disk)
      assert(scan.next == 6 && scan.cursors == Map(0 -> "5") && scan.commits.last == 5)
    }
  }

  test("close writes what was given, though a sync is slow") {
    withDisk { disk =>
      val store = open(new FaultyFiles(disk))
      val gate = disk.block()
      (0 until 10).foreach(i => assert(store.give(parcel(i.toLong, 1))))
      val closing = new Thread(() => close(store))
      closing.start()
      Script.await("close does not wait")(closing.getState == Thread.State.TIMED_WAITING)
      gate.countDown()
      closing.join()
      assert(scanOf(disk).next == 10 && !store.give(parcel(10, 1)))
    }
  }

  test("close records what was committed last") {
    withDisk { disk =>
      val store = open(new FaultyFiles(disk))
      give(store, parcel(0, 4))
      store.commit(2)
      close(store)
      assert(scanOf(disk).commits == Seq(2))
    }
  }

  test("give blocks while too much is not durable, goes on when it is, and close frees it") {
    withDisk { disk =>
      val store = open(new FaultyFiles(disk))
      val gate = disk.block()
      val taken = new AtomicReference[Seq[Boolean]](Nil)
      val feed = new Thread(() => {
        var open = true
        var i = 0
        while (open && i < 1000) {
          open = store.give(parcel(i.toLong, 1, bytes = 4 << 20))
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

  test("the index lets the log wait, and the feed behind it, until a batch takes rows") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk), settings(logBytes = 100)) { store =>
        (0 until 10).foreach(i => assert(store.give(parcel(i * 2L, 2, bytes = 60))))
        Script.await("it is not full")(store.buffer.isBlocked)
        assert(!store.isSettled)
        while (store.buffer.latest < 19) {
          val end = store.buffer.latest
          store.buffer.take(end)
          store.commit(end)
          Script.await("it does not go on")(store.buffer.latest > end || store.isSettled)
        }
        settle(store)
      }
      assert(scanOf(disk).next == 20)
    }
  }

  test("what is durable is told, newest cursor of each shard, and a listener that fails does no harm") {
    withDisk { disk =>
      withStore(new FaultyFiles(disk)) { store =>
        val told = new AtomicReference[Map[Int, String]](Map.empty)
        store.onDurable { cursors =>
          assert(scanOf(disk).cursors.toSet.intersect(cursors.toSet) == cursors.toSet, "not durable")
          told.updateAndGet(_ ++ cursors)
          throw new IllegalStateException("the listener is broken")
        }
        give(
          store,
          RowGroup(Nil, Some(Cursor(1, "\"a\""))),
          parcel(0, 2),
          RowGroup(Nil, Some(Cursor(1, "\"b\"")))
        )
        Script.await(s"told ${told.get}")(told.get == Map(0 -> "1", 1 -> "\"b\""))
        assert(store.failure.isEmpty && store.buffer.latest == 1)
      }
    }
  }

  test(
    "a second query is refused while the first has the folder, and not afterwards; the first keeps its lock"
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
      give(first, parcel(0, 3))
      close(first)
      assert(!isLockedForOthers)
      withStore(new LocalFiles(folder, durable = true))(store => assert(all(store) == (0 to 2)))
    } finally {
      Using.resource(Files.list(folder))(_.iterator.asScala.toVector).foreach(Files.delete)
      Files.delete(folder)
    }
  }

  test("a driver that was replaced stops, where there is no lock, and its late rows do not count") {
    withDisk { disk =>
      val old = open(new FaultyFiles(disk, canAppend = false))
      give(old, parcel(0, 3))
      val fresh = open(new FaultyFiles(disk, canAppend = false), known = offset(1))
      assert(fresh.next == 3)
      give(fresh, parcel(3, 2))
      give(old, parcel(3, 9))
      assert(
        old.failure.exists(e =>
          e.getMessage.contains("Another driver has taken over") && e.getMessage.contains("epoch 2")
        )
      )
      assert(!old.give(parcel(12, 1)))
      close(old)
      give(fresh, parcel(5, 2))
      assert(fresh.failure.isEmpty && all(fresh) == (0 to 6))
      close(fresh)
      assert(disk.segments.length == 3, "each group is a file")
      withStore(new FaultyFiles(disk, canAppend = false), known = offset(1))(store =>
        assert(all(store) == (0 to 6))
      )
    }
  }

  test("a group that was being written when another driver took over is offered by one of them at most") {
    withDisk { disk =>
      val old = open(new FaultyFiles(disk, canAppend = false))
      give(old, parcel(0, 3))
      val gate = disk.block()
      assert(old.give(parcel(3, 9)))
      Script.await("the group was not begun")(disk.segments.length == 2)
      val fresh = open(new FaultyFiles(disk, canAppend = false), known = offset(1))
      gate.countDown()
      settle(old)
      assert(old.failure.exists(_.getMessage.contains("Another driver has taken over")))
      assert(old.buffer.latest == 2, "what the new driver may not have seen")
      Seq(old, fresh).foreach(close)
    }
  }

  test("on Hadoop's file systems a restart finds the same rows, in a file for each group") {
    val folder = Files.createTempDirectory("headwater-hadoop")
    val path = new org.apache.hadoop.fs.Path(folder.toUri)
    def files = new HadoopFiles(path, new org.apache.hadoop.conf.Configuration)
    try {
      withStore(files) { store =>
        give(store, parcel(0, 3))
        give(store, parcel(3, 3))
        store.commit(1)
      }
      withStore(files, known = offset(1)) { store =>
        assert(all(store) == (0 to 5) && store.cursors == Map(0 -> "5"))
        give(store, parcel(6, 1))
        assert(all(store) == (0 to 6))
      }
    } finally {
      Using.resource(Files.list(folder))(_.iterator.asScala.toVector).foreach(Files.delete)
      Files.delete(folder)
    }
  }
}
