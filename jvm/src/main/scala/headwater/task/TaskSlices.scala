package headwater.task

import java.util.concurrent.{CompletableFuture, ConcurrentHashMap, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import headwater.DataLossException
import headwater.core.Slice
import org.apache.spark.TaskContext

/** The rows of planned batches, in the driver. Frames and tasks refer to them by an id; the source that planned
  * the batch drops them. A frame must not hold its rows: applications keep frames of finished batches, and Python
  * does so unknowingly until its garbage collector runs.
  */
object PlannedRows {
  private val ids = new AtomicLong
  private val plannedById = new ConcurrentHashMap[Long, Planned]

  private final case class Planned(slices: IndexedSeq[Slice], isStopped: Boolean)

  def put(slices: IndexedSeq[Slice]): Long = {
    val id = ids.incrementAndGet()
    plannedById.put(id, Planned(slices, isStopped = false))
    id
  }

  /** @param queryId
    *   of the query that asks, from the local properties of the thread or of the task; null outside of queries
    * @throws DataLossException
    *   after [[drop]], and after [[stop]] for everybody but queries and their tasks
    */
  def get(id: Long, queryId: String): IndexedSeq[Slice] =
    Option(plannedById.get(id))
      .filter(planned => !planned.isStopped || queryId != null)
      .map(_.slices)
      .getOrElse {
        throw new DataLossException(
          "The rows of this frame are gone: its batch was committed, or its query stopped. A frame of a micro-batch can be " +
            "used until its batch is done; to keep its rows, write them somewhere."
        )
      }

  /** The query was stopped: from now on only the tasks that Spark is cancelling get the rows. */
  def stop(id: Long): Unit = plannedById.computeIfPresent(id, (_, planned) => planned.copy(isStopped = true))

  def drop(id: Long): Unit = plannedById.remove(id)

  /** Calls `drop` when the tasks of a stopped query have ended. Spark cancels them, and does not say when they have. */
  private[headwater] def afterTasks(drop: () => Unit): Unit =
    CompletableFuture
      .delayedExecutor(CancelSeconds, TimeUnit.SECONDS, (task: Runnable) => task.run())
      .execute(() => drop())

  private val CancelSeconds = 10L

  /** The local property in which a query's thread and its tasks carry the id of the query. */
  val QueryIdProperty = "sql.streaming.queryId"
}

/** The slices that one task reads. A task carries this object. */
sealed trait TaskSlices extends Serializable {
  def slices: Seq[Slice]
}

object TaskSlices {

  /** Adjacent slices of planned rows.
    *
    * @param byId
    *   for tasks that run in the driver's JVM, as under `local[*]`. Spark serializes tasks even there; by id the
    *   slices are not copied. Otherwise the slices are serialized with the task.
    */
  def apply(id: Long, from: Int, until: Int, byId: Boolean): TaskSlices =
    new ById(id, from, until, byId)

  private final class ById(id: Long, from: Int, until: Int, byId: Boolean) extends TaskSlices {
    override def slices: Seq[Slice] = PlannedRows.get(id, queryId).slice(from, until)

    /** Of the task. Spark's scheduler, which serializes tasks, has none: then the batch was planned in time. */
    private def queryId: String =
      Option(TaskContext.get()).fold("scheduler")(_.getLocalProperty(PlannedRows.QueryIdProperty))

    private def writeReplace(): AnyRef = if (byId) this else WithRows(slices.toVector)
  }

  private final case class WithRows(slices: Vector[Slice]) extends TaskSlices
}

/** Splits the slices of a batch into one part for each task. Adjacent slices stay together, in order. */
object TaskSplitter {

  /** A smaller task costs more to start than it saves. */
  val MinBytes: Long = 256L << 10

  /** A task is sent in one message of at most `spark.rpc.message.maxSize`, 128 MiB by default. */
  val MaxBytes: Long = 16L << 20

  /** The end of each part, as an index into the slices. */
  def ends(slices: IndexedSeq[Slice], cores: Int, maxBytes: Long): Seq[Int] = {
    val target = math.min(maxBytes, math.max(MinBytes, slices.map(_.byteSize).sum / cores + 1))
    val ends = Vector.newBuilder[Int]
    var partBytes = 0L
    slices.indices.foreach { i =>
      // Split where it leaves the part closer to the target.
      if (partBytes > 0 && partBytes + slices(i).byteSize / 2 > target) {
        ends += i
        partBytes = 0
      }
      partBytes += slices(i).byteSize
    }
    if (slices.nonEmpty) ends += slices.length
    ends.result()
  }
}
