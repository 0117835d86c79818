package headwater

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, ObjectInputStream, ObjectOutputStream}

import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

class CargoSuite extends AnyFunSuite with ScalaCheckPropertyChecks {

  private val batches = Gen.nonEmptyListOf(Gen.choose(8, 300000)).map { sizes =>
    sizes.zipWithIndex.map { case (bytes, i) => Slice.whole(Numbered.rows(i * 10L, 10, bytes)) }
  }

  test("the parts of a batch are its rows, in order, each within its weight unless it is one slice") {
    forAll(batches, Gen.choose(1, 16), Gen.choose(1L, 2000000L)) { (slices, cores, maxBytes) =>
      val parts = Parts.split(slices, cores, maxBytes)
      assert(parts.flatten == slices)
      parts.filter(_.length > 1).foreach { part =>
        assert(part.init.map(_.weight).sum <= maxBytes)
      }
    }
  }

  test("a large batch gives every core a part, a small one is not cut") {
    val slices = (0 until 64).map(i => Slice.whole(Numbered.rows(i * 10L, 10, 100000)))
    val parts = Parts.split(slices, 4, Long.MaxValue)
    assert(parts.map(_.length) == Seq(16, 16, 16, 16))
    assert(Parts.split(slices.take(2), 4, Long.MaxValue).length == 1)
    assert(Parts.split(Nil, 4, Long.MaxValue).isEmpty)
  }

  private def sent(cargo: Cargo): (Cargo, Int) = {
    val out = new ByteArrayOutputStream
    new ObjectOutputStream(out).writeObject(cargo)
    val in = new ObjectInputStream(new ByteArrayInputStream(out.toByteArray))
    (in.readObject().asInstanceOf[Cargo], out.size)
  }

  private val slices = Seq(Slice(Numbered.rows(0, 10, 50000), 2, 7), Slice.whole(Numbered.rows(10, 3, 50000)))

  test("packed cargo arrives as it was sent") {
    val (arrived, size) = sent(Cargo(slices))
    assert(Numbered.ids(arrived.slices) == Numbered.ids(slices))
    assert(arrived.slices.map(_.rows.bytes.toSeq) == slices.map(_.rows.bytes.toSeq))
    assert(size > 100000)
  }

  test("local cargo sends a number, and finds the very slices by it") {
    val cargo = LocalCargo(slices)
    val (arrived, size) = sent(cargo)
    assert(arrived.slices eq slices)
    assert(size < 1000)
    assert(cargo.slices eq slices) // and so the driver's copy is alive until here
  }

  test("local cargo is gone with the driver's copy of it, and says so") {
    val arrived = sent(LocalCargo(Seq(Slice.whole(Numbered.rows(0, 1)))))._1
    Script.await("the slices were never let go") {
      System.gc()
      scala.util.Try(arrived.slices).isFailure
    }
    assert(intercept[IllegalStateException](arrived.slices).getMessage.contains("outlived its frame"))
  }
}
