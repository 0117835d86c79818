package headwater.task

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong

import headwater.DataLossException
import headwater.core.Slice

/** The rows of planned batches, in the driver. A frame and its tasks refer to them by a number, and whoever planned the
  * batch says when they go. A frame must not hold them itself: a program may keep the frames of long finished batches,
  * and Python does so without knowing, until its garbage collector finds them.
  */
object PlannedRows {
  private val numbers = new AtomicLong
  private val held = new ConcurrentHashMap[Long, IndexedSeq[Slice]]

  def put(slices: IndexedSeq[Slice]): Long = {
    val number = numbers.incrementAndGet()
    held.put(number, slices)
    number
  }

  /** @throws DataLossException after [[drop]] */
  def get(number: Long): IndexedSeq[Slice] = Option(held.get(number)).getOrElse {
    throw new DataLossException(
      "The rows of this frame are gone: its batch was committed, or its query stopped. A frame of a micro-batch can be " +
        "used until its batch is done; to keep its rows, write them somewhere."
    )
  }

  def drop(number: Long): Unit = held.remove(number)
}

/** What a task carries. */
sealed trait TaskSlices extends Serializable {
  def slices: Seq[Slice]
}

object TaskSlices {

  /** Some neighbouring slices of a held batch.
    *
    * @param byNumber
    *   for tasks that run in the driver's own JVM, as all do under `local[*]`. Spark serializes a task even there; this way
    *   the slices stay where they are, and the task finds them by their number. Else they are packed when the task is sent.
    */
  def apply(number: Long, from: Int, until: Int, byNumber: Boolean): TaskSlices =
    new Held(number, from, until, byNumber)

  private final class Held(number: Long, from: Int, until: Int, byNumber: Boolean) extends TaskSlices {
    override def slices: Seq[Slice] = PlannedRows.get(number).slice(from, until)

    private def writeReplace(): AnyRef = if (byNumber) this else Packed(slices.toVector)
  }

  private final case class Packed(slices: Vector[Slice]) extends TaskSlices
}

/** BatchPlanner the rows of a batch into what one task each gets: neighbours stay together, in order. */
object TaskSplitter {

  /** A task that has less to do than this costs more to start than it saves. */
  val MinBytes: Long = 256L << 10

  /** A task travels in one message of at most `spark.rpc.message.maxSize`, 128 MiB by default. */
  val MaxBytes: Long = 16L << 20

  /** Where each part ends, as an index into the slices. */
  def ends(slices: IndexedSeq[Slice], cores: Int, maxBytes: Long): Seq[Int] = {
    val target = math.min(maxBytes, math.max(MinBytes, slices.map(_.weight).sum / cores + 1))
    val ends = Vector.newBuilder[Int]
    var weight = 0L
    slices.indices.foreach { i =>
      // Cut where it leaves the part nearer to the target.
      if (weight > 0 && weight + slices(i).weight / 2 > target) {
        ends += i
        weight = 0
      }
      weight += slices(i).weight
    }
    if (slices.nonEmpty) ends += slices.length
    ends.result()
  }
}
