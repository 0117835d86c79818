package headwater.adapters

import headwater.core.{Limits, RowStream}
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.types.StructType

/** A stream as Spark's V1 `Source`.
  *
  * @param limits
  *   of one batch
  * @param frameOf
  *   a streaming DataFrame with the rows of a planned batch
  * @param onStopped
  *   called when the stream has been stopped
  */
private[headwater] final class V1Source[Plan](
    protected override val stream: RowStream[Plan],
    override val schema: StructType,
    protected override val limits: Limits,
    frameOf: Plan => DataFrame,
    onStopped: () => Unit
) extends Source
    with StreamAdapter[Plan] {

  override def getBatch(start: Option[Offset], end: Offset): DataFrame = endingWhenInterrupted {
    frameOf(plan(start, end))
  }

  override def commit(end: Offset): Unit = commitUpTo(end)

  override def getOffset: Option[Offset] = newest

  protected override def afterStop(): Unit = onStopped()
}
