package headwater.bugs

import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.connector.read.streaming.{
  Offset => AnyOffset,
  ReadLimit,
  SupportsAdmissionControl
}
import org.apache.spark.sql.execution.streaming.Offset

/** Says that rows are lost when a batch is planned. */
private[bugs] final class EagerLoss(spark: SparkSession) extends HandWritten(spark) {
  override def getBatch(start: Option[Offset], end: Offset): DataFrame = synchronized {
    val from = start.fold(0L)(Count.of)
    if (from < dropped || held.length < Count.of(end) - dropped)
      throw new IllegalStateException(s"the rows from $from to below ${end.json} are lost")
    super.getBatch(start, end)
  }
}

/** Lets no more than `cap` rows be in memory. */
private[bugs] final class CapOnHeld(spark: SparkSession, cap: Int) extends HandWritten(spark) {
  override protected def hasRoom: Boolean = held.length < cap
}

/** Lets no more than `cap` rows wait for a batch. */
private[bugs] final class CapOnWaiting(spark: SparkSession, cap: Int) extends HandWritten(spark) {
  override protected def hasRoom: Boolean = dropped + held.length - taken < cap
}

/** Takes offsets for what it made itself. */
private[bugs] final class CastOffset(spark: SparkSession) extends HandWritten(spark) {
  override def getBatch(start: Option[Offset], end: Offset): DataFrame =
    super.getBatch(start.map(_.asInstanceOf[Count]), end.asInstanceOf[Count])
}

/** Answers with an offset of the class that `latestOffset` is declared to return. */
private[bugs] final class OtherOffset(spark: SparkSession)
    extends HandWritten(spark)
    with SupportsAdmissionControl {
  override def latestOffset(start: AnyOffset, limit: ReadLimit): AnyOffset =
    getOffset.map(offset => new AnyOffset { override val json: String = offset.json }).orNull
}

/** The same, with the class that Spark looks for. */
private[bugs] final class OwnOffset(spark: SparkSession)
    extends HandWritten(spark)
    with SupportsAdmissionControl {
  override def latestOffset(start: AnyOffset, limit: ReadLimit): AnyOffset = getOffset.orNull
}
