package headwater.adapters

import java.io.InterruptedIOException
import java.nio.channels.ClosedByInterruptException
import java.util.{Map => JMap, Optional}

import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import headwater.core.{Beginning, Limits, Position, RowStream, StreamOffset}
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset, _}
import org.apache.spark.sql.execution.streaming.Offset

/** A stream as Spark's interfaces want it: what they have in common. [[RowStream]] says what Spark calls, and when.
  *
  * @tparam Plan
  *   what the stream plans, for the adapter to make partitions of
  */
private[headwater] trait StreamAdapter[Plan] extends SupportsTriggerAvailableNow with ReportsSourceMetrics {
  import StreamAdapter._

  protected def stream: RowStream[Plan]

  /** Of one batch. */
  protected def limits: Limits

  /** Called when the stream has been stopped. */
  protected def afterStop(): Unit

  QuerySources.add(this)

  final override def getDefaultReadLimit: ReadLimit = ReadLimits.of(limits)

  final override def prepareForTriggerAvailableNow(): Unit = stream.fixEnd()

  /** While there is nothing new this is `start`, and null before the first row: the first offset that is not null makes a
    * batch, even an empty one.
    *
    * @param start
    *   null before the first batch of a V1 source
    */
  override def latestOffset(start: AnyOffset, limit: ReadLimit): AnyOffset = endingWhenInterrupted {
    val from = positionOf(Option(start))
    stream.open(from)
    stream.latest(from, ReadLimits.admission(limit)) match {
      case Some(end) => new SparkOffset(end)
      case None => if (from == Beginning) null else start
    }
  }

  final override def reportLatestOffset(): AnyOffset = newest.orNull

  final override def metrics(latestConsumedOffset: Optional[AnyOffset]): JMap[String, String] =
    stream.metrics.asJava

  /** Stops the other sources of the query as well: Spark stops one after the other, and each may take its time. */
  final override def stop(): Unit = {
    QuerySources.takeOthers(this).foreach { other =>
      val thread = new Thread(() => other.stop(), s"headwater-stop-${other.name}")
      thread.setDaemon(true)
      thread.start()
    }
    try stream.stop(StopTimeout.fromNow)
    finally afterStop()
  }

  final override def toString: String = stream.description

  protected final def newest: Option[SparkOffset] = stream.newest.map(new SparkOffset(_))

  /** The rows of `(start, end]`. */
  protected final def plan(start: Option[AnyOffset], end: AnyOffset): Plan = {
    val to = positionOf(Some(end))
    stream.open(to)
    stream.plan(positionOf(start), to)
  }

  protected final def commitUpTo(end: AnyOffset): Unit = endingWhenInterrupted {
    val to = positionOf(Some(end))
    stream.open(to)
    stream.commit(to)
  }

  /** `query.stop()` interrupts the query's thread. Waits of ours keep such an interrupt for later; Spark would meet it
    * in its next file, and leave a part of that file in the checkpoint. And an exception that an interrupt has caused
    * must be one that Spark recognizes.
    */
  protected final def endingWhenInterrupted[T](call: => T): T = {
    val result =
      try call
      catch {
        case NonFatal(e) if isInterruption(e) => throw new InterruptedException(e.toString).initCause(e)
      }
    if (Thread.interrupted()) throw new InterruptedException(s"${stream.description} was interrupted")
    result
  }

  protected final def positionOf(offset: Option[AnyOffset]): Position =
    offset.fold(stream.beginning)(known => stream.parse(known.json))

  private def name: String = stream.name
}

private[headwater] object StreamAdapter {

  /** The one limit of a stop; everything below gets what is left of it. `query.stop()` itself waits without a timeout by
    * default.
    */
  private val StopTimeout = 5.seconds

  private def isInterruption(e: Throwable): Boolean = Iterator
    .iterate(e)(_.getCause)
    .takeWhile(_ != null)
    .exists {
      case _: InterruptedException | _: InterruptedIOException | _: ClosedByInterruptException => true
      case _ => false
    }
}

/** An offset for Spark, of the V1 class, which extends the V2 class: if a V1 source returns one that extends only the V2
  * class, Spark silently makes the first batch empty.
  */
private[headwater] final class SparkOffset(override val json: String) extends Offset {
  def this(position: StreamOffset) = this(position.json)
}
