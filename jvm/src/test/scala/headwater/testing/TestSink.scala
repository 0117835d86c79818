package headwater.testing

import headwater.buffer.Buffer
import headwater.core.{Arrivals, ArrowRows, RowGroup, RowSink}

/** A sink for tests that run a feed themselves. */
object TestSink {
  def apply(take: ArrowRows => Boolean): RowSink = new RowSink {
    override def append(rowGroup: RowGroup): Boolean = rowGroup.rows.forall(take)
    override def caughtUp(): Unit = ()
    override def status: Buffer.Status = Buffer.Status(0, 0, -1, 0, 0, 0, Arrivals.NoRows)
  }
}
