package headwater.log

import scala.util.{Random, Using}

import headwater.core.{ArrowRows, Cursor, RowGroup}
import headwater.testing.{NoThreadLeft, NumberedRows}
import org.scalatest.funsuite.AnyFunSuite

/** Random runs of a log against a model: rows are the numbers from 0 on, each row group is complete or missing, and rows in
  * the checkpoint can be read. A failure prints its seed; `HEADWATER_LOG_SEED=17` runs that seed again.
  */
class LogModelSuite extends AnyFunSuite with NoThreadLeft {
  import LogModelSuite._

  test("a log behaves like a list of rows in any sequence of runs") {
    val seeds = sys.env.get("HEADWATER_LOG_SEED").map(_.toInt).fold[Seq[Int]](1 to Seeds.count(500))(Seq(_))
    seeds.foreach { seed =>
      Using.resource(new Disk) { disk =>
        val run = new Run(disk, new Random(seed))
        try run.run()
        catch { case e: Throwable => fail(s"seed $seed, after ${run.steps.mkString(" ")}", e) }
      }
    }
  }
}

private object LogModelSuite {
  import Logs._

  final class Run(disk: Disk, random: Random) {
    private val retain = random.nextInt(4)
    private val options = settings(
      Codec.all(random.nextInt(3)),
      retainBatches = retain,
      segmentBytes = Seq(1, 500, 2000, 1 << 20)(random.nextInt(4)).toLong
    )
    var steps = Vector.empty[String]

    // The upstream, and how much of it may be in the log.
    private var next = 0L
    private var rowGroups = Set(-1L) // their ends
    private var offered = -1L
    // Spark's checkpoint.
    private var noted = Vector.empty[Long] // the end of each batch
    private var done = 0 // how many of them are committed
    private var commits =
      Vector.empty[Long] // the commits that the source received, without those after a step back
    private var files: FaultyFiles = _
    private var store: LogStore = _

    def run(): Unit = {
      if (random.nextInt(3) == 0) beginWithFormat1()
      start()
      try (1 to 25).foreach(_ => step())
      finally {
        files.die()
        close(store)
      }
    }

    /** A log of headwater 0.1, whose last sync group may be torn. */
    private def beginWithFormat1(): Unit = {
      say("format1")
      val groups = (0 to random.nextInt(4)).map { _ =>
        (0 to random.nextInt(2)).map { _ =>
          val counts = (0 to random.nextInt(3)).map(_ => 1 + random.nextInt(5))
          next += counts.sum
          rowGroups += next - 1
          Written.Rows(counts, Some(Cursor(0, (next - 1).toString)))
        }
      }
      val codec = Codec.all(random.nextInt(3))
      val written = Written.segment(1, 0, 0, codec = codec, version = 1)(groups: _*)
      val durable = written.groups.last
      offered = written.at.filter(_._1 <= durable).last._2 - 1
      disk.put("manifest-00000001.json", Version1.json(Logs.manifest.copy(epoch = 1)).getBytes("UTF-8"))
      disk.put(written.name, disk.survivors(written.bytes.take(durable), written.bytes, random))
    }

    private def step(): Unit = random.nextInt(100) match {
      case n if n < 40 => produce()
      case n if n < 60 => plan()
      case n if n < 70 => readAgain()
      case n if n < 80 => commit()
      case n if n < 84 => say("stop"); stop(); start()
      case n if n < 88 => say("kill"); kill(); start()
      case n if n < 92 => say("power"); kill(); disk.loseUnsynced(random); start()
      case n if n < 96 => rollBack()
      case _ => corrupt()
    }

    private def say(what: String): Unit = steps :+= what

    private def produce(): Unit = {
      val rows = Vector.newBuilder[ArrowRows]
      (1 to 1 + random.nextInt(3)).foreach { _ =>
        val count = 1 + random.nextInt(6)
        rows += NumberedRows.rows(next, count, 8 + random.nextInt(120))
        next += count
      }
      say(s"produce(${next - 1})")
      assert(store.append(RowGroup(rows.result(), Some(Cursor(0, (next - 1).toString)))))
      rowGroups += next - 1
      if (random.nextInt(10) == 0) assert(store.append(RowGroup(Nil, Some(Cursor(1, next.toString)))))
      if (random.nextInt(3) > 0) settle(store)
    }

    private def plan(): Unit = {
      val start = noted.lastOption.getOrElse(-1L)
      val latest = store.buffer.latest
      offered = math.max(offered, latest)
      if (latest > start) {
        val end = start + 1 + random.nextInt((latest - start).toInt)
        noted :+= end
        say(s"plan($end)")
        check(start, end)
      }
    }

    private def readAgain(): Unit = if (done < noted.length) {
      val from = if (done == 0) -1L else noted(done - 1)
      say(s"read($from, ${noted.last}]")
      check(from, noted.last)
    }

    private def check(start: Long, end: Long): Unit = {
      val actual = ids(store, start, end)
      assert(actual == (start + 1 to end), s"($start, $end] gave $actual")
    }

    private def commit(): Unit = if (done < noted.length) {
      val end = noted(done)
      done += 1
      say(s"commit($end)")
      if (commits.lastOption.forall(_ < end)) commits :+= end
      store.commit(end)
    }

    private def stop(): Unit = {
      settle(store)
      offered = math.max(offered, store.buffer.latest)
      close(store)
    }

    private def kill(): Unit = {
      if (random.nextBoolean()) settle(store)
      if (random.nextBoolean()) files.dieAfter(random.nextInt(10).toLong)
      else files.die()
      store.buffer.close()
      close(store)
      offered = math.max(offered, store.buffer.latest)
      files.die()
    }

    private def start(): Unit = {
      files = new FaultyFiles(disk)
      store = open(files, options, noted.lastOption.map(offset(_).get))
      assert(store.next > offered, s"rows up to $offered were offered, up to ${store.next - 1} are there")
      assert(rowGroups(store.next - 1), s"half a parcel: it ends with ${store.next - 1}")
      assert(store.cursors.get(0) == Option.when(store.next > 0)((store.next - 1).toString))
      rowGroups = rowGroups.filter(_ < store.next)
      next = store.next
      // The retained batches can be read again, whatever was deleted.
      val first = store.buffer.firstNotDropped
      val floor = if (commits.length > retain) commits(commits.length - 1 - retain) else -1L
      assert(first <= floor + 1, s"rows from $first on are left, those behind $floor must be")
      check(floor, store.buffer.latest)
    }

    /** The user deletes the last batches from the checkpoint, no more than are retained. */
    private def rollBack(): Unit = if (done > 0 && retain > 0 && commits.last == noted(done - 1)) {
      val back = 1 + random.nextInt(math.min(retain, done))
      if (done > back) {
        say(s"rollBack($back)")
        stop()
        done -= back
        noted = noted.take(done)
        start()
        check(noted.last, store.buffer.latest)
      }
    }

    /** Flips one bit in a copy. Every row is as written, or reported as lost. */
    private def corrupt(): Unit = {
      settle(store)
      offered = math.max(offered, store.buffer.latest)
      Using.resource(new Disk) { copy =>
        disk.names.foreach(name => copy.put(name, disk.bytes(name)))
        val name = copy.segments.lift(random.nextInt(math.max(1, copy.segments.length)))
        name.foreach { name =>
          val (groups, durable) = in(copy, copy.segments.last) { file =>
            val groups = file.groups
            (groups, groups.headOption.toSeq.flatMap(file.framesFrom(_, groups.last)).map(_.rows).sum)
          }
          val position = random.nextInt(copy.bytes(name).length)
          say(s"corrupt($name, $position)")
          copy.flip(name, position, random.nextInt(8))
          val files = new FaultyFiles(copy)
          val scan = LogScan.of(files, Manifest.read(files), 0)
          val rows = contentOf(scan)
          rows.foreach {
            case (seq, Right(id)) => assert(seq == id)
            case (_, Left(why)) => assert(why.contains(name), why)
          }
          val isLast = name == copy.segments.last
          val headerIsGone = isLast && position < groups.headOption.getOrElse(Long.MaxValue)
          val mayBeTorn = isLast && groups.lastOption.forall(position >= _) || headerIsGone
          assert(
            scan.next == store.buffer.latest + 1 || mayBeTorn || rows.exists(_._2.isLeft),
            s"rows from ${scan.next} on are gone silently"
          )
          if (headerIsGone && durable > 0)
            assert(rows.exists(_._2.isLeft), "several groups are gone silently")
        }
      }
    }

    private def in[T](disk: Disk, name: String)(body: SegmentFile => T): T =
      Using.resource(new SegmentFile(name, LocalFiles.open(disk.folder.resolve(name))))(body)
  }
}
