package headwater.alpha

import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

class PacerSuite extends AnyFunSuite with ScalaCheckPropertyChecks {

  private val rates = Gen.oneOf(1L, 3L, 500L, 12345L, 1000000000L)
  private val starts = Gen.oneOf(0L, -1L, 987654321987654L, Long.MinValue / 2)
  private val steps = Gen.listOf(Gen.choose(0L, 5000000000L))

  test("at any time exactly the rows due since the start were produced") {
    forAll(rates, starts, steps) { (rate, start, waits) =>
      val pacer = new Pacer(rate, start)
      var now = start
      var rows = BigInt(0)
      waits.foreach { wait =>
        now += wait
        val due = pacer.due(now)
        pacer.added(due, took = 0)
        rows += due
        assert(rows == BigInt(now - start) * rate / 1000000000L)
        assert(pacer.due(now) == 0)
      }
    }
  }

  test("the next row is due at the time it says, and not a nanosecond before") {
    forAll(rates, starts, steps) { (rate, start, waits) =>
      val pacer = new Pacer(rate, start)
      var now = start
      waits.foreach { wait =>
        now += wait
        pacer.added(pacer.due(now), took = 0)
        val next = pacer.nextAt
        assert(next > now)
        assert(pacer.due(next - 1) == 0 && pacer.due(next) >= 1)
        now = next
        pacer.added(pacer.due(next), took = 0)
      }
    }
  }

  test("a feed catches up after a delay, and does not after it was blocked") {
    val pacer = new Pacer(rowsPerSecond = 1000, start = 0)
    pacer.added(pacer.due(1000000000L), took = 0)
    assert(pacer.due(3000000000L) == 2000)
    pacer.added(2000, took = 4000000000L)
    assert(pacer.due(7000000000L) == 0, "blocked until now")
    assert(pacer.due(8000000000L) == 1000)
  }
}
