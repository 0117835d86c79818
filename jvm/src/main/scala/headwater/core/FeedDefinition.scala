package headwater.core

import java.security.SecureRandom

import headwater.task.PlannedRows
import org.apache.spark.sql.types.StructType

/** What the stream of a feed is, whichever of Spark's interfaces it is read through.
  *
  * @param description
  *   what progress reports and the UI show; it contains no secret
  * @param arrowSchema
  *   of the rows, in IPC format
  * @param newFeed
  *   creates the feed for a store, in the query's thread
  * @param shards
  *   how many feeds run side by side
  * @param identity
  *   the options that must not change between restarts
  * @param newRun
  *   a name for a run that begins
  * @param nanoTime
  *   a monotonic clock
  * @param afterTasks
  *   calls a function when tasks that Spark has cancelled no longer look for their rows
  */
private[headwater] final case class FeedDefinition(
    name: String,
    description: String,
    schema: StructType,
    arrowSchema: Array[Byte],
    options: BufferedOptions,
    newFeed: Store => Feed,
    shards: Int = 1,
    isResumable: Boolean = false,
    identity: Map[String, String] = Map.empty,
    newRun: () => String = () => FeedDefinition.newRun(),
    nanoTime: () => Long = () => System.nanoTime(),
    afterTasks: (() => Unit) => Unit = PlannedRows.afterTasks
)

private[headwater] object FeedDefinition {
  private val random = new SecureRandom

  def newRun(): String = f"${random.nextLong()}%016x"
}
