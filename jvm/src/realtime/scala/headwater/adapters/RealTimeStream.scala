package headwater.adapters

import javax.annotation.concurrent.GuardedBy

import headwater.buffer.BufferedStream
import headwater.core.{Beginning, FeedDefinition, LiveBatches, LiveRows, StreamOffset}
import headwater.task.{BatchTasks, LiveReader, LiveStreams, MetadataColumn, TaskReader}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.{
  Offset,
  PartitionOffset,
  ReadLimit,
  SupportsRealTimeMode,
  SupportsRealTimeRead
}
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead.RecordStatus
import org.apache.spark.sql.headwater.LiveEndpoint
import org.apache.spark.util.SerializableConfiguration

/** A feed that Spark can also read in real-time mode: a task for each shard runs for the whole batch, which takes minutes,
  * and gets rows as they become available. Spark logs the offset at the end of the batch. If the query dies before, its
  * rows come again.
  *
  * With another trigger it is a [[V2Stream]] and nothing else.
  */
final class RealTimeStream private[headwater] (
    definition: FeedDefinition,
    stream: BufferedStream,
    tasks: BatchTasks,
    onStopped: () => Unit
) extends V2Stream(definition, stream, tasks, onStopped)
    with SupportsRealTimeMode {

  @GuardedBy("this") private[this] var isRealTime = false
  @GuardedBy("this") private[this] var served: Option[Served] = None

  override def prepareForRealTimeMode(): Unit = synchronized { isRealTime = true }

  override def readsRows: Boolean = synchronized(isRealTime)

  /** In real-time mode Spark runs batches whether there are rows or not, and needs an offset. */
  override def latestOffset(start: Offset, limit: ReadLimit): Offset =
    Option(super.latestOffset(start, limit)).getOrElse(if (readsRows) start else null)

  override def planInputPartitions(start: Offset): Array[InputPartition] = endingWhenInterrupted {
    val from = positionOf(Some(start))
    stream.open(from)
    val Served(live, place, _) = serve()
    live
      .begin(from)
      .zipWithIndex
      .map { case (seq, shard) =>
        new RealTimePartition(place, shard, seq, stream.run, tasks.hadoopForAll): InputPartition
      }
      .toArray
  }

  override def mergeOffsets(offsets: Array[PartitionOffset]): Offset = {
    val positions = offsets.collect { case position: RealTimePosition => position }.sortBy(_.shard)
    stream.live.end(positions.map(_.seq).toVector) match {
      case end: StreamOffset => new SparkOffset(end)
      case Beginning => initialOffset()
    }
  }

  override def createReaderFactory(): PartitionReaderFactory =
    if (readsRows) new RealTimeReaders(stream.name, definition.arrowSchema, tasks.reader)
    else super.createReaderFactory()

  protected override def afterStop(): Unit = {
    synchronized(served).foreach(_.stop())
    super.afterStop()
  }

  private def serve(): Served = synchronized {
    served.getOrElse {
      val live = stream.live
      val serving =
        if (tasks.seeDriver) {
          val id = LiveStreams.put(live)
          Served(live, InThisJvm(id), () => LiveStreams.drop(id))
        } else {
          val endpoint = new LiveEndpoint(live)
          Served(live, OnDriver(endpoint.address), () => endpoint.stop())
        }
      served = Some(serving)
      serving
    }
  }
}

private final case class Served(live: LiveBatches, place: LivePlace, stop: () => Unit)

/** Where a task finds the rows of a stream. */
private sealed trait LivePlace extends Serializable {
  def rows: LiveRows
}

private final case class InThisJvm(id: Long) extends LivePlace {
  override def rows: LiveRows = LiveStreams.get(id)
}

private final case class OnDriver(address: LiveEndpoint.Address) extends LivePlace {
  override def rows: LiveRows = address.connect()
}

/** Up to which seq a reader has handed on the rows of its shard. */
private final case class RealTimePosition(shard: Int, seq: Long) extends PartitionOffset

private final class RealTimePartition(
    val place: LivePlace,
    val shard: Int,
    val start: Long,
    val run: String,
    val hadoop: Broadcast[SerializableConfiguration]
) extends InputPartition

private final class RealTimeReaders(source: String, arrowSchema: Array[Byte], reader: TaskReader)
    extends PartitionReaderFactory {

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = {
    val part = partition.asInstanceOf[RealTimePartition]
    new RealTimeReader(
      part.shard,
      new LiveReader(
        part.place.rows,
        part.shard,
        part.start,
        arrowSchema,
        new MetadataColumn(source, part.run),
        reader,
        Some(part.hadoop)
      )
    )
  }
}

private final class RealTimeReader(shard: Int, rows: LiveReader) extends SupportsRealTimeRead[InternalRow] {

  /** Spark 4.1 calls this one. */
  override def nextWithTimeout(timeoutMs: java.lang.Long): RecordStatus =
    if (!rows.next(timeoutMs)) RecordStatus.newStatusWithoutArrivalTime(false)
    else if (rows.arrivedMillis == 0) RecordStatus.newStatusWithoutArrivalTime(true)
    else RecordStatus.newStatusWithArrivalTimeMs(rows.arrivedMillis)

  /** Spark 4.2 and later call this one, which 4.1 does not have. */
  def nextWithTimeout(startTimeMs: java.lang.Long, timeoutMs: java.lang.Long): RecordStatus =
    nextWithTimeout(timeoutMs)

  override def next(): Boolean = rows.next(0)

  override def get(): InternalRow = rows.get

  override def getOffset: PartitionOffset = RealTimePosition(shard, rows.position)

  override def close(): Unit = ()
}
