package headwater.testing

import headwater.buffer.Buffer
import headwater.core.{ArrowRows, RowGroup, RowSink}

/** An outlet for tests that call a feed themselves. */
object TestSink {
  def apply(take: ArrowRows => Boolean): RowSink = new RowSink {
    override def give(parcel: RowGroup): Boolean = parcel.rows.forall(take)
    override def caughtUp(): Unit = ()
    override def status: Buffer.Status = Buffer.Status(0, 0, -1, 0, 0, 0)
  }
}
