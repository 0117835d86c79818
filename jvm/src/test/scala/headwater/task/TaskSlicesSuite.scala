package headwater.task

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, ObjectInputStream, ObjectOutputStream}
import java.lang.ref.WeakReference

import headwater.DataLossException
import headwater.core.Slice
import headwater.testing.{NumberedRows, Script}
import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

class TaskSlicesSuite extends AnyFunSuite with ScalaCheckPropertyChecks {

  private val batches = Gen.nonEmptyListOf(Gen.choose(8, 300000)).map { sizes =>
    sizes.zipWithIndex.map { case (bytes, i) => Slice.whole(NumberedRows.rows(i * 10L, 10, bytes)) }.toVector
  }

  test("parts contain all slices in order, none is empty, and none exceeds its size unless it is one slice") {
    forAll(batches, Gen.choose(1, 16), Gen.choose(1L, 2000000L)) { (slices, cores, maxBytes) =>
      val ends = TaskSplitter.ends(slices, cores, maxBytes)
      assert(ends == ends.distinct.sorted && ends.head > 0 && ends.last == slices.length)
      (0 +: ends).zip(ends).map { case (from, end) => slices.slice(from, end) }.filter(_.length > 1).foreach {
        part =>
          assert(part.init.map(_.byteSize).sum <= maxBytes)
      }
    }
  }

  test("a large batch has a part for every core, a small one is not split") {
    val slices = (0 until 64).map(i => Slice.whole(NumberedRows.rows(i * 10L, 10, 100000)))
    assert(TaskSplitter.ends(slices, 4, Long.MaxValue) == Seq(16, 32, 48, 64))
    assert(TaskSplitter.ends(slices.take(2), 4, Long.MaxValue) == Seq(2))
    assert(TaskSplitter.ends(Vector.empty, 4, Long.MaxValue).isEmpty)
  }

  private def sent(taskSlices: TaskSlices): (TaskSlices, Int) = {
    val out = new ByteArrayOutputStream
    new ObjectOutputStream(out).writeObject(taskSlices)
    val in = new ObjectInputStream(new ByteArrayInputStream(out.toByteArray))
    (in.readObject().asInstanceOf[TaskSlices], out.size)
  }

  private def slices = Vector(
    Slice.whole(NumberedRows.rows(0, 3, 50000)),
    Slice(NumberedRows.rows(10, 10, 50000), 2, 7),
    Slice.whole(NumberedRows.rows(20, 3, 50000))
  )

  test("task slices that carry their rows do not need the driver's rows once they are sent") {
    val number = PlannedRows.put(slices)
    val (arrived, size) = sent(TaskSlices(number, 1, 3, byId = false))
    PlannedRows.drop(number)
    assert(NumberedRows.ids(arrived.slices) == Seq(12, 13, 14, 15, 16, 20, 21, 22))
    assert(size > 100000)
  }

  test("task slices by id are sent as an id, and find the same slices by it") {
    val held = slices
    val number = PlannedRows.put(held)
    val (arrived, size) = sent(TaskSlices(number, 0, 2, byId = true))
    assert(arrived.slices.map(_.rows).zip(held.map(_.rows)).forall { case (a, b) => a eq b })
    assert(arrived.slices.length == 2 && size < 1000)
    PlannedRows.drop(number)
  }

  test(
    "dropped rows are released at once, even if the task slices are kept, which then fail with the reason"
  ) {
    var rows = Vector(Slice.whole(NumberedRows.rows(0, 1)))
    val number = PlannedRows.put(rows)
    val watch = new WeakReference(rows.head.rows)
    val cargos = Seq(true, false).map(TaskSlices(number, 0, 1, _))
    rows = Vector.empty
    assert(cargos.forall(_.slices.nonEmpty))
    PlannedRows.drop(number)
    Script.await("the rows were never let go") {
      System.gc()
      watch.get == null
    }
    assert(intercept[DataLossException](cargos.head.slices).getMessage.contains("its batch was committed"))
    assert(intercept[DataLossException](sent(cargos.last)).getMessage.contains("its batch was committed"))
  }
}
