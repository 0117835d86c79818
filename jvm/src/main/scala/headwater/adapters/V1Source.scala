package headwater.adapters

import java.util.{Map => JMap, Optional}

import scala.concurrent.duration._
import scala.jdk.CollectionConverters._

import headwater.core.{Limits, RowStream, StreamOffset}
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, _}
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.types.StructType

/** A stream as Spark's V1 `Source`. [[RowStream]] says what Spark calls, and when.
  *
  * @param limits
  *   of one batch
  * @param frameOf
  *   a streaming DataFrame with the rows of a planned batch
  */
private[headwater] final class V1Source[Plan](
    stream: RowStream[Plan],
    override val schema: StructType,
    limits: Limits,
    frameOf: Plan => DataFrame
) extends Source
    with SupportsTriggerAvailableNow
    with ReportsSourceMetrics {
  import V1Source._

  override def getDefaultReadLimit: ReadLimit = ReadLimits.of(limits)

  override def prepareForTriggerAvailableNow(): Unit = stream.fixEnd()

  /** Returns `start` while there is nothing new; it is null before the first batch. */
  override def latestOffset(start: AnyOffset, limit: ReadLimit): AnyOffset = {
    val from = Option(start).fold(stream.beginning)(parse)
    stream.open(from)
    stream.latest(from, ReadLimits.admission(limit)).fold(start)(new V1Offset(_))
  }

  override def getBatch(start: Option[Offset], end: Offset): DataFrame = {
    val to = parse(end)
    stream.open(to)
    frameOf(stream.plan(start.fold(stream.beginning)(parse), to))
  }

  override def commit(end: Offset): Unit = {
    val to = parse(end)
    stream.open(to)
    stream.commit(to)
  }

  override def getOffset: Option[Offset] = stream.newest.map(new V1Offset(_))

  override def reportLatestOffset(): AnyOffset = getOffset.orNull

  override def metrics(latestConsumedOffset: Optional[AnyOffset]): JMap[String, String] =
    stream.metrics.asJava

  override def stop(): Unit = stream.stop(StopTimeout.fromNow)

  override def toString: String = stream.description

  private def parse(offset: AnyOffset): StreamOffset = stream.parse(offset.json)
}

private[headwater] object V1Source {

  /** The one limit of a stop; everything below gets what is left of it. `query.stop()` itself waits without a timeout by
    * default.
    */
  private val StopTimeout = 5.seconds
}

/** An offset as the V1 API wants it. With an offset that extends only the V2 class, Spark silently makes the first batch
  * empty.
  */
private[headwater] final class V1Offset(val position: StreamOffset) extends Offset {
  override def json: String = position.json
}
