package headwater.buffer

import headwater.core.{Cursor, RowGroup}
import headwater.testing.Script
import org.scalatest.funsuite.AnyFunSuite

/** When cursors are reported as committed. */
class MemoryStoreSuite extends AnyFunSuite {

  private final class Fixture(listens: Boolean = true) {
    val store = new MemoryStore("00000000000000aa", new Buffer(1000, 1 << 20, 0))
    var committed = Seq.empty[Map[Int, String]]
    if (listens) store.onCommitted(cursors => committed :+= cursors)

    def append(rows: Int, cursor: String = null, shard: Int = 0): Unit = {
      val values = if (rows == 0) Nil else Seq(Script.arrow(Seq.fill(rows)(0L)))
      assert(store.append(RowGroup(values, Option(cursor).map(Cursor(shard, _)))))
    }
  }

  test("a cursor is reported when all rows up to it are committed, and once") {
    val f = new Fixture
    f.append(3, "a")
    f.append(2)
    f.append(1, "b")
    f.store.commit(1)
    assert(f.committed.isEmpty)
    f.store.commit(2)
    f.store.commit(2)
    f.store.commit(4)
    assert(f.committed == Seq(Map(0 -> "a")))
    f.store.commit(5)
    assert(f.committed == Seq(Map(0 -> "a"), Map(0 -> "b")))
  }

  test("of several cursors the last is reported, for each shard") {
    val f = new Fixture
    f.append(1, "a")
    f.append(1, "b", shard = 1)
    f.append(1, "c")
    f.store.commit(2)
    assert(f.committed == Seq(Map(0 -> "c", 1 -> "b")))
  }

  test("a cursor without rows waits for the rows before it, and replaces the one before") {
    val f = new Fixture
    f.append(2, "a")
    f.append(0, "b")
    f.store.commit(0)
    assert(f.committed.isEmpty)
    f.store.commit(1)
    assert(f.committed == Seq(Map(0 -> "b")))
  }

  test("without a listener no cursor is kept") {
    val f = new Fixture(listens = false)
    f.append(1, "a")
    f.store.onCommitted(cursors => f.committed :+= cursors)
    f.store.commit(0)
    assert(f.committed.isEmpty)
  }
}
