package headwater.buffer

import java.util.concurrent.atomic.AtomicLong

import headwater.core.{ArrowRows, Slice}
import headwater.testing.{NumberedRows, Script}
import org.scalacheck.Gen
import org.scalacheck.Shrink
import org.scalatest.concurrent.Eventually
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.time.{Seconds, Span}
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

/** The laws of the buffer, against a plain list of rows. */
class BufferSuite extends AnyFunSuite with ScalaCheckPropertyChecks with Eventually {
  import BufferSuite._

  implicit override val generatorDrivenConfig: PropertyCheckConfiguration =
    PropertyCheckConfiguration(minSuccessful = 2000, sizeRange = 60)
  implicit override val patienceConfig: PatienceConfig = PatienceConfig(timeout = Span(20, Seconds))

  test("a buffer behaves like a list of rows in any sequence of steps") {
    forAll(steps, Gen.choose(0L, 1000L)) { (script, first) =>
      val buffer = new Buffer(Long.MaxValue, Long.MaxValue, first)
      val model = new Model(first)
      script.foreach {
        case Append(count, bytes) =>
          assert(buffer.append(NumberedRows.rows(model.latest + 1, count, bytes)))
          model.append(count, math.max(8, bytes))
        case Read(a, b) =>
          val (start, end) = model.window(a, b)
          val window = buffer.read(start, end)
          assert(NumberedRows.ids(window.slices) == model.read(start, end))
          assert(buffer.read(start, end) == window)
          assert(window.goneUpTo == model.goneUpTo(start, end))
        case EndWithin(a, maxRows, maxBytes) =>
          val start = math.max(model.at(a), model.dropped)
          assert(buffer.endWithin(start, maxRows, maxBytes) == model.endWithin(start, maxRows, maxBytes))
        case Take(a) =>
          buffer.take(model.at(a))
          model.take(model.at(a))
        case Commit(a) =>
          buffer.commit(model.at(a))
          model.commit(model.at(a))
      }
      val status = buffer.status
      assert(buffer.latest == model.latest)
      assert(status.waitingRows == model.latest - model.taken)
      assert(status.waitingBytes == model.waitingBytes)
      assert(status.readRows == model.latest - first + 1)
    }
  }

  test("sizes of adjacent slices add up to the batch exactly") {
    forAll(Gen.choose(1, 10000), Gen.choose(8, 100000), Gen.choose(0.0, 1.0)) { (count, bytes, cut) =>
      val rows = NumberedRows.rows(0, count, bytes)
      val at = (count * cut).toInt
      val parts =
        Seq((0, at), (at, count)).filter { case (a, b) => a < b }.map { case (a, b) => Slice(rows, a, b) }
      assert(parts.map(_.byteSize).sum == Slice.whole(rows).byteSize && Slice.whole(rows).byteSize == bytes)
    }
  }

  test("a full buffer blocks the feed until a batch takes rows, not until they are committed") {
    val buffer = new Buffer(maxRows = 10, maxBytes = Long.MaxValue, first = 0)
    withProducer(buffer, batches = 3, count = 10) { done =>
      eventually(assert(buffer.isBlocked && buffer.latest == 9))
      buffer.take(9)
      eventually(assert(buffer.isBlocked && buffer.latest == 19))
      assert(
        NumberedRows.ids(buffer.read(-1, 19).slices) == (0L to 19L),
        "taken rows stay until their commit"
      )
      buffer.take(19)
      eventually(assert(done()))
      assert(buffer.status.blockedNanos > 0)
    }
  }

  test("taking some rows makes room for as many, and splits a batch") {
    val buffer = new Buffer(maxRows = 10, maxBytes = Long.MaxValue, first = 0)
    withProducer(buffer, batches = 2, count = 10) { _ =>
      eventually(assert(buffer.isBlocked))
      buffer.take(2)
      eventually(assert(buffer.isBlocked && buffer.latest == 12))
      assert(buffer.status.waitingRows == 10)
    }
  }

  test("a batch larger than the buffer is appended in pieces") {
    val buffer = new Buffer(maxRows = 3, maxBytes = Long.MaxValue, first = 0)
    withProducer(buffer, batches = 1, count = 10) { done =>
      Seq(2L, 5L, 8L, 9L).foreach { end =>
        eventually(assert(buffer.latest == end))
        assert(NumberedRows.ids(buffer.read(end - 1, end).slices) == Seq(end))
        buffer.take(end)
      }
      eventually(assert(done()))
    }
  }

  test("a row larger than the cap is accepted only when nothing else waits") {
    val buffer = new Buffer(maxRows = Long.MaxValue, maxBytes = 100, first = 0)
    assert(buffer.append(NumberedRows.rows(0, 1, 50)))
    withProducer(buffer, batches = 1, count = 1, bytes = 1000, firstId = 1) { done =>
      eventually(assert(buffer.isBlocked && buffer.latest == 0))
      buffer.take(0)
      eventually(assert(done() && buffer.latest == 1))
    }
  }

  test("a row larger than the byte limit of a batch is read alone") {
    val buffer = new Buffer(Long.MaxValue, Long.MaxValue, first = 0)
    buffer.append(NumberedRows.rows(0, 1, 1000))
    buffer.append(NumberedRows.rows(1, 1, 1000))
    assert(buffer.endWithin(-1, Long.MaxValue, 10) == 0)
    assert(buffer.endWithin(0, Long.MaxValue, 1) == 1)
    assert(buffer.endWithin(1, Long.MaxValue, 1) == 1)
  }

  test("a commit beyond the latest row is refused, and drops nothing") {
    val buffer = new Buffer(Long.MaxValue, Long.MaxValue, first = 0)
    buffer.append(NumberedRows.rows(0, 5))
    assert(
      intercept[IllegalArgumentException](buffer.commit(5)).getMessage.contains("beyond the latest row, 4")
    )
    assert(NumberedRows.ids(buffer.read(-1, 4).slices) == (0L to 4L))
  }

  test("lag is the age of the oldest row that waits") {
    val now = new AtomicLong(100)
    val buffer = new Buffer(Long.MaxValue, Long.MaxValue, first = 0, () => now.get)
    assert(buffer.status.lagNanos == 0)
    buffer.append(NumberedRows.rows(0, 5))
    now.set(150)
    buffer.append(NumberedRows.rows(5, 5))
    now.set(200)
    assert(buffer.status.lagNanos == 100)
    buffer.take(4)
    assert(buffer.status.lagNanos == 50)
    buffer.take(9)
    assert(buffer.status.lagNanos == 0)
  }

  test("close releases a blocked feed, and refuses later rows") {
    val buffer = new Buffer(maxRows = 1, maxBytes = Long.MaxValue, first = 0)
    withProducer(buffer, batches = 2, count = 1) { done =>
      eventually(assert(buffer.isBlocked))
      buffer.close()
      eventually(assert(done()))
      assert(buffer.latest == 0)
      assert(!buffer.append(NumberedRows.rows(1, 1)))
      assert(NumberedRows.ids(buffer.read(-1, 0).slices) == Seq(0L), "what is held stays readable")
    }
  }

  test("time in which several feeds are blocked counts once") {
    val now = new AtomicLong(0)
    val buffer = new Buffer(maxRows = 1, maxBytes = Long.MaxValue, first = 0, () => now.get)
    def blockedNanos = buffer.status.blockedNanos
    assert(buffer.append(NumberedRows.rows(0, 1)))
    now.set(1000)
    assert(blockedNanos == 0 && !buffer.isBlocked)
    val first = appending(buffer, NumberedRows.rows(1, 1))
    awaitBlocked(first)
    now.set(1030)
    val second = appending(buffer, NumberedRows.rows(2, 1))
    awaitBlocked(second)
    now.set(1100)
    assert(blockedNanos == 100 && buffer.isBlocked, "not 170")
    buffer.take(0)
    Script.await("nobody got in")(buffer.latest == 1)
    Script.await("both got in")(Seq(first, second).count(_.getState == Thread.State.WAITING) == 1)
    Script.await("the one that got in goes on")(Seq(first, second).count(_.isAlive) == 1)
    assert(blockedNanos == 100 && buffer.isBlocked)
    now.set(1150)
    assert(blockedNanos == 150, "the other one is still blocked")
    buffer.take(1)
    assert(!buffer.isBlocked, "it has room, whether it has woken or not")
    Seq(first, second).foreach(_.join(20000))
    assert(!first.isAlive && !second.isAlive && buffer.latest == 2)
    now.set(5000)
    assert(blockedNanos == 150 && !buffer.isBlocked)
    val third = appending(buffer, NumberedRows.rows(3, 1))
    awaitBlocked(third)
    now.set(5007)
    assert(blockedNanos == 157, "and from here on it counts again")
    buffer.close()
    third.join(20000)
    assert(!third.isAlive)
  }

  test("a take that makes enough room releases all blocked feeds, each with its rows in order") {
    val buffer = new Buffer(maxRows = 100, maxBytes = Long.MaxValue, first = 0)
    assert(buffer.append(NumberedRows.rows(0, 100)))
    val threads = (1 to 5).map(p => appending(buffer, NumberedRows.rows(p * 1000, 10)))
    threads.foreach(awaitBlocked)
    buffer.take(99)
    Script.await("some are still blocked")(threads.forall(!_.isAlive))
    assert(threads.forall(!_.isAlive) && !buffer.isBlocked && buffer.latest == 149)
    val ids = NumberedRows.ids(buffer.read(99, 149).slices)
    assert(ids.groupBy(_ / 1000) == (1 to 5).map(p => p.toLong -> (p * 1000L until p * 1000L + 10)).toMap)
  }

  test("close releases all blocked feeds, and appends none of their rows") {
    val buffer = new Buffer(maxRows = 1, maxBytes = Long.MaxValue, first = 0)
    assert(buffer.append(NumberedRows.rows(0, 1)))
    val threads = (1 to 5).map(p => appending(buffer, NumberedRows.rows(p, 1)))
    threads.foreach(awaitBlocked)
    buffer.close()
    Script.await("some are still blocked")(threads.forall(!_.isAlive))
    assert(threads.forall(!_.isAlive) && buffer.latest == 0)
    assert(!buffer.isBlocked)
  }

  private def appending(buffer: Buffer, rows: ArrowRows): Thread = {
    val thread = new Thread(() => buffer.append(rows))
    thread.setDaemon(true)
    thread.start()
    thread
  }

  private def awaitBlocked(thread: Thread): Unit =
    Script.await(s"it is ${thread.getState}, not blocked")(thread.getState == Thread.State.WAITING)

  test("a full buffer holds exactly the rows that fit, and at least one") {
    forAll(
      Gen.choose(1L, 30L),
      Gen.choose(1L, 400L),
      Gen.nonEmptyListOf(Gen.zip(Gen.choose(1, 12), Gen.choose(8, 200)))
    ) { (maxRows, maxBytes, batches) =>
      val buffer = new Buffer(maxRows, maxBytes, first = 0)
      val weights = batches.flatMap { case (count, bytes) =>
        (1 to count).map(n => bytes.toLong * n / count - bytes.toLong * (n - 1) / count)
      }
      val sums = weights.scanLeft(0L)(_ + _).tail
      val fits = sums.zipWithIndex.takeWhile { case (sum, i) =>
        i == 0 || (sum <= maxBytes && i < maxRows)
      }.length
      val producer = new Thread(() => {
        var id = 0L
        batches.foreach { case (count, bytes) =>
          buffer.append(NumberedRows.rows(id, count, bytes))
          id += count
        }
      })
      producer.start()
      Script.await("the feed neither ended nor was blocked")(!producer.isAlive || buffer.isBlocked)
      assert(buffer.latest + 1 == fits)
      buffer.close()
      producer.join(20000)
      assert(!producer.isAlive)
    }
  }

  test("awaitCatchUp returns when the feed is finished, blocked or closed, or the time is up, not before") {
    val buffer = new Buffer(maxRows = 1, maxBytes = Long.MaxValue, first = 0)
    def waiting(nanos: Long)(isFinished: => Boolean) = {
      val thread = new Thread(() => buffer.awaitCatchUp(nanos)(isFinished))
      thread.start()
      thread
    }
    def ended(thread: Thread) = eventually(assert(!thread.isAlive))
    ended(waiting(1)(isFinished = false))
    @volatile var over = false
    val untilOver = waiting(Long.MaxValue)(over)
    eventually(assert(untilOver.getState == Thread.State.TIMED_WAITING))
    over = true
    buffer.wake()
    ended(untilOver)
    val untilBlocked = waiting(Long.MaxValue)(isFinished = false)
    eventually(assert(untilBlocked.getState == Thread.State.TIMED_WAITING))
    withProducer(buffer, batches = 2, count = 1) { _ =>
      ended(untilBlocked)
      buffer.take(0)
      eventually(assert(buffer.latest == 1))
    }
    ended(waiting(Long.MaxValue)(isFinished = false)) // closed by now
  }

  private def withProducer(buffer: Buffer, batches: Int, count: Int, bytes: Int = 64, firstId: Long = 0)(
      body: (() => Boolean) => Unit
  ): Unit = {
    val thread = new Thread(() => {
      (0 until batches).foreach(i => buffer.append(NumberedRows.rows(firstId + i * count, count, bytes)))
    })
    thread.start()
    try body(() => !thread.isAlive)
    finally {
      buffer.close()
      thread.join(20000)
      assert(!thread.isAlive)
    }
  }
}

object BufferSuite {

  sealed trait Step
  final case class Append(count: Int, bytes: Int) extends Step

  /** Positions are fractions of the content at the time of the step. */
  final case class Read(a: Double, b: Double) extends Step
  final case class EndWithin(a: Double, maxRows: Long, maxBytes: Long) extends Step
  final case class Take(a: Double) extends Step
  final case class Commit(a: Double) extends Step

  private val share = Gen.choose(0.0, 1.0)
  private val limit = Gen.oneOf(Gen.choose(1L, 200L), Gen.const(Long.MaxValue))

  val steps: Gen[List[Step]] = Gen.listOf(
    Gen.frequency[Step](
      4 -> Gen.zip(Gen.choose(1, 20), Gen.choose(8, 300)).map { case (n, b) => Append(n, b) },
      3 -> Gen.zip(share, share).map { case (a, b) => Read(a, b) },
      3 -> Gen.zip(share, limit, limit).map { case (a, r, b) => EndWithin(a, r, b) },
      1 -> share.map(Take),
      1 -> share.map(Commit)
    )
  )

  implicit val noShrink: Shrink[List[Step]] = Shrink.shrinkAny

  /** The model of a buffer: a list of the sizes of all rows that were ever appended. */
  final class Model(first: Long) {
    private var weights = Vector.empty[Long]
    var taken: Long = first - 1
    var dropped: Long = first - 1

    def latest: Long = first + weights.length - 1

    def append(count: Int, bytes: Int): Unit = {
      def upTo(n: Int): Long = bytes.toLong * n / count
      weights ++= (1 to count).map(n => upTo(n) - upTo(n - 1))
    }
    def at(share: Double): Long = first - 1 + ((latest - first + 1) * share).toLong
    def window(a: Double, b: Double): (Long, Long) = (at(math.min(a, b)), at(math.max(a, b)))
    def read(start: Long, end: Long): Seq[Long] = math.max(start, dropped) + 1 to end
    def goneUpTo(start: Long, end: Long): Long = math.max(start, math.min(dropped, end))
    def take(end: Long): Unit = taken = math.max(taken, end)
    def commit(end: Long): Unit = {
      take(end)
      dropped = math.max(dropped, end)
    }
    def waitingBytes: Long = (taken + 1 to latest).map(seq => weights((seq - first).toInt)).sum

    def endWithin(start: Long, maxRows: Long, maxBytes: Long): Long = {
      var end = start
      var bytes = 0L
      def next = weights((end + 1 - first).toInt)
      while (end < latest && end - start < maxRows && (end == start || bytes + next <= maxBytes)) {
        bytes += next
        end += 1
      }
      end
    }
  }
}
