package headwater.adapters

import java.lang.reflect.Constructor

import headwater.buffer.{BufferedStream, StoredBatch}
import headwater.core.{Durability, FeedDefinition}
import headwater.log.Stores
import headwater.task.BatchTasks
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.headwater.StreamingFrames

/** Makes the stream of one query from the definition of a feed, for either interface of Spark.
  *
  * @param folder
  *   of this source in the query's checkpoint
  */
private[headwater] final class StreamFactory(
    spark: SparkSession,
    folder: String,
    definition: FeedDefinition
) {
  import definition._

  if (isResumable && options.durability == Durability.Log) Stores.warnIfTemporary(name, folder)

  def v1: V1Source[StoredBatch] = {
    val tasks = newTasks
    val frames = new StreamingFrames(spark, description, schema, arrowSchema, tasks)
    new V1Source(newStream(tasks), schema, options.limits, frames.of, onStopped)
  }

  def v2: V2Stream = {
    val tasks = newTasks
    val stream = newStream(tasks)
    StreamFactory.realTimeStream.fold(new V2Stream(definition, stream, tasks, onStopped))(
      _.newInstance(definition, stream, tasks, onStopped)
    )
  }

  private def newTasks = new BatchTasks(spark, options.failOnDataLoss)

  private def newStream(tasks: BatchTasks) = new BufferedStream(
    name,
    description,
    options,
    Stores.opener(spark, folder, options, newRun, logSettings, nanoTime),
    newFeed,
    () => tasks.rowsLost,
    nanoTime,
    afterTasks,
    shards
  )

  private def logSettings =
    Stores.logSettings(spark, options, name, schema, arrowSchema, shards, isResumable, identity)

  private def onStopped: () => Unit = () => UnfinishedOffsets.delete(spark, folder)
}

private object StreamFactory {

  /** The constructor of a stream that also has Spark's interface of real-time mode, where Spark has that interface: from
    * 4.1 on.
    */
  private lazy val realTimeStream: Option[Constructor[_ <: V2Stream]] =
    try {
      Class.forName("org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode")
      val stream = Class.forName("headwater.adapters.RealTimeStream").asSubclass(classOf[V2Stream])
      Some(
        stream.getConstructor(
          classOf[FeedDefinition],
          classOf[BufferedStream],
          classOf[BatchTasks],
          classOf[() => Unit]
        )
      )
    } catch { case _: ClassNotFoundException => None }
}
