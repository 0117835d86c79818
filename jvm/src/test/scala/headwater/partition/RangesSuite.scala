package headwater.partition

import headwater.core.PartitionKeyType
import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

class RangesSuite extends AnyFunSuite with ScalaCheckPropertyChecks {

  private val widths = Gen.nonEmptyListOf(Gen.oneOf(Gen.choose(1L, 50L), Gen.choose(1L, Long.MaxValue / 2)))

  private def ranges(widths: Seq[Long]): Seq[PartitionRange] =
    widths.zipWithIndex.map { case (width, i) => PartitionRange(i, s"p$i", 7, 7 + width) }

  test("tasks read every offset of a batch once, in the order of each partition") {
    forAll(widths, Gen.choose(1, 40), Gen.choose(1, 8)) { (widths, minTasks, slots) =>
      val tasks = Ranges.tasks(ranges(widths), minTasks, slots)
      val read = tasks.flatten.groupBy(_.partition)
      assert(tasks.forall(_.nonEmpty))
      widths.zipWithIndex.foreach { case (width, i) =>
        val pieces = read(s"p$i")
        assert(pieces.head.start == 7 && pieces.last.end == 7 + width)
        assert(pieces.zip(pieces.tail).forall { case (one, next) => one.end == next.start })
        assert(pieces.forall(_.width > 0))
      }
      assert(tasks.flatten.map(_.number).sorted == tasks.flatten.indices)
    }
  }

  test("there are at most as many tasks as slots, or minTasks") {
    forAll(widths, Gen.choose(1, 8)) { (widths, slots) =>
      assert(Ranges.tasks(ranges(widths), 1, slots).size == math.min(widths.size, slots))
    }
    assert(
      Ranges.tasks(ranges(Seq(1000, 1000)), minTasks = 10, slots = 2).map(_.map(_.width)) == Seq.fill(10)(
        Seq(200L)
      )
    )
    assert(
      Ranges
        .tasks(ranges(Seq(900, 100)), minTasks = 10, slots = 2)
        .map(_.head.partition)
        .count(_ == "p0") == 9
    )
    forAll(widths, Gen.choose(1, 40)) { (widths, wanted) =>
      assert(Ranges.tasks(ranges(widths), wanted, slots = 2).size >= math.min(wanted, widths.sum))
    }
    assert(Ranges.tasks(ranges(Seq(100, 100, 100)), minTasks = 4, slots = 2).size >= 4)
    assert(Ranges.tasks(ranges(Seq(2)), minTasks = 10, slots = 2).size == 2, "an offset cannot be cut")
    assert(Ranges.tasks(Seq.empty, minTasks = 10, slots = 2).isEmpty)
  }

  test("many small ranges are distributed evenly") {
    val tasks = Ranges.tasks(ranges(Seq.tabulate(512)(i => i % 7 + 1L)), 1, 4)
    val weights = tasks.map(_.map(_.width).sum)
    assert(weights.max - weights.min <= 7)
  }

  test("the ranges of a task are written as JSON") {
    assert(
      Ranges.json(PartitionKeyType.Numbers, Seq(PartitionRange(3, "0", 5, 9))) ==
        """{"ranges":[{"i":3,"p":"0","kind":"int","start":5,"end":9}]}"""
    )
  }

  test("shares sum up to the limit, and never exceed what waits") {
    val waiting =
      Gen.nonEmptyListOf(Gen.oneOf(Gen.const(0L), Gen.choose(0L, 100L), Gen.choose(0L, Long.MaxValue)))
    forAll(waiting, Gen.oneOf(Gen.choose(1L, 200L), Gen.choose(1L, Long.MaxValue)), Gen.choose(0, 1000)) {
      (waiting, max, turn) =>
        val shares = Shares.of(waiting.toIndexedSeq, max, turn % waiting.size)
        assert(shares.map(BigInt(_)).sum == waiting.map(BigInt(_)).sum.min(max))
        assert(shares.zip(waiting).forall { case (share, rows) => 0 <= share && share <= rows })
        if (max >= waiting.size)
          assert(shares.zip(waiting).forall { case (share, rows) => share > 0 || rows == 0 })
    }
  }

  test("shares are in proportion to what waits") {
    assert(Shares.of(Vector(900, 90, 10), 100, 0) == Vector(89, 10, 1))
    assert(Shares.of(Vector(1000, 1000), 101, 1) == Vector(50, 51))
  }

  test("with fewer rows than partitions, each partition has its turn") {
    val shares = (0 until 10).map(turn => Shares.of(Vector(1000000, 5, 0, 5, 5, 5, 5, 5, 5, 5), 1, turn))
    assert(shares.forall(_.sum == 1))
    val served = shares.map(_.indexOf(1L)).toSet
    assert(served == Set(0, 1, 3, 4, 5, 6, 7, 8, 9))
  }
}
