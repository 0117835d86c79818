package headwater

import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.PartitionedSource.{Batch, Reading}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.headwater.PartitionFrames

/** The partitions of a source that is written in Python: the driver's Python watches them, tasks read them. */
private[headwater] final class PythonReading private (
    bridge: Bridge,
    id: String,
    override val watch: Watch,
    frames: PartitionFrames
) extends Reading {

  override def frame(tasks: Seq[String]): Batch = {
    val (frame, reports) = frames.of(tasks)
    Batch(frame, reports)
  }

  override def close(): Unit = {
    watch.close()
    bridge.ended(id)
  }
}

private[headwater] object PythonReading {

  /** @param known
    *   partitions whose start is known
    * @param id
    *   what Python calls it
    * @param status
    *   where the query stands
    */
  def open(
      spark: SparkSession,
      loaded: PythonProvider.Loaded,
      options: PartitionedOptions,
      opening: ObjectNode,
      known: Set[String],
      id: String,
      status: => PartitionedSource
  ): Reading = {
    val bridge = Bridge.current
    opening.put("failOnDataLoss", options.failOnDataLoss)
    options.startFrom.writeTo(opening.putObject("startFrom"))
    val named = opening.putArray("known")
    known.foreach(named.add)
    val watch = new PythonWatch(bridge, id, opening)
    watch.start()
    try {
      val reader = bridge.takeReader(id)
      bridge.started(id, () => statusOf(status.offsets, watch))
      val frames =
        new PartitionFrames(spark, loaded.description, loaded.schema, loaded.arrowSchema, reader)
      new PythonReading(bridge, id, watch, frames)
    } catch { case e: Throwable => watch.close(); throw e }
  }

  private def statusOf(offsets: Map[String, Long], watch: Watch): ObjectNode = {
    val told = Peer.Json.createObjectNode()
    val latest = watch.seen.fold(Map.empty[String, Long])(_.latest)
    val by = told.putObject("offsets")
    offsets.foreach { case (partition, offset) => by.put(partition, offset) }
    told.put(
      "waitingRows",
      latest.map { case (p, until) => math.max(0L, until - offsets.getOrElse(p, until)) }.sum
    )
  }
}
