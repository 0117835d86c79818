package headwater.core

import java.util.concurrent.TimeUnit.MILLISECONDS

import org.scalatest.funsuite.AnyFunSuite

class ArrivalsSuite extends AnyFunSuite {

  private final class Fixture {
    var millis = 0L
    val arrivals = new Arrivals(() => MILLISECONDS.toNanos(millis), () => 1000000L + millis)
    def rates: (Double, Double) = (arrivals.status.rowsPerSecond, arrivals.status.bytesPerSecond)
  }

  test("before the first row there are neither rates nor a time") {
    assert(new Fixture().arrivals.status == Arrivals.NoRows)
  }

  test("in the first second the rate is what has arrived in it, then the average since the start") {
    val f = new Fixture
    f.arrivals.add(10, 100)
    assert(f.rates == ((10.0, 100.0)))
    f.millis = 2000
    assert(f.rates == ((5.0, 50.0)))
    f.arrivals.add(10, 300)
    assert(f.rates == ((10.0, 200.0)))
  }

  test("a steady feed has its rate, at any moment after the first second") {
    val f = new Fixture
    (1 to 60000).foreach { i =>
      f.millis = i.toLong
      f.arrivals.add(2, 20)
      if (i % 777 == 0 && i > 1000) {
        val (rows, bytes) = f.rates
        assert(math.abs(rows - 2000) < 20 && math.abs(bytes - 20000) < 200, s"at $i ms")
      }
    }
  }

  test("ten seconds after the last row the rate is 0, and its time stays") {
    val f = new Fixture
    f.millis = 5500
    f.arrivals.add(90, 9)
    f.millis = 14999
    assert(f.rates._1 > 0)
    f.millis = 15500
    assert(f.rates == ((0.0, 0.0)))
    f.millis = 99999999
    assert(f.rates == ((0.0, 0.0)))
    assert(f.arrivals.status.lastAt.contains(1005500L))
  }
}
