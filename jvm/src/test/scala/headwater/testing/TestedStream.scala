package headwater.testing

import java.util.{Map => JMap, Optional}

import headwater.DataLossException
import headwater.adapters.{StreamAdapter, V1Source, V2Stream}
import headwater.buffer.StoredBatch
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, ReadLimit}
import org.apache.spark.sql.execution.streaming.Offset
import org.apache.spark.sql.headwater.BatchRows

/** A stream as Spark's query thread sees it, through either interface. */
abstract class TestedStream(adapter: StreamAdapter[_]) {
  def getBatch(start: Option[Offset], end: Offset): TestedBatch
  def commit(end: Offset): Unit

  /** None on V1. */
  def initialOffset: Option[AnyOffset] = None

  def latestOffset(start: AnyOffset, limit: ReadLimit): AnyOffset = adapter.latestOffset(start, limit)
  def getDefaultReadLimit: ReadLimit = adapter.getDefaultReadLimit
  def prepareForTriggerAvailableNow(): Unit = adapter.prepareForTriggerAvailableNow()
  def reportLatestOffset(): AnyOffset = adapter.reportLatestOffset()
  def metrics(consumed: Optional[AnyOffset]): JMap[String, String] = adapter.metrics(consumed)
  def stop(): Unit = adapter.stop()
}

/** A planned batch, which can run any number of times. */
trait TestedBatch {
  def rows(): Seq[Long]
}

final class TestedV1(source: V1Source[StoredBatch]) extends TestedStream(source) {
  override def getBatch(start: Option[Offset], end: Offset): TestedBatch = {
    val frame = source.getBatch(start, end)
    () => BatchRows.longs(frame)
  }

  override def commit(end: Offset): Unit = source.commit(end)
}

final class TestedV2(stream: V2Stream, spark: SparkSession) extends TestedStream(stream) {

  /** Spark plans the partitions when the batch runs, so a loss counts as one of the run. */
  override def getBatch(start: Option[Offset], end: Offset): TestedBatch = {
    val planned =
      try Right(stream.planInputPartitions(start.getOrElse(stream.initialOffset()), end).toSeq)
      catch { case loss: DataLossException => Left(loss) }
    () => planned.fold(throw _, BatchRows.longs(spark, _, stream.createReaderFactory()))
  }

  override def commit(end: Offset): Unit = stream.commit(end)

  override def initialOffset: Option[AnyOffset] = Some(stream.initialOffset())
}
