package headwater

import java.util.{Collections, WeakHashMap}
import java.util.concurrent.atomic.AtomicLong

/** Cuts the rows of a batch into what one task each gets: neighbours stay together, in order. */
object Parts {

  /** A task that has less to do than this costs more to start than it saves. */
  val MinBytes: Long = 256L << 10

  /** A task travels in one message of at most `spark.rpc.message.maxSize`, 128 MiB by default. */
  val MaxBytes: Long = 16L << 20

  def split(slices: Seq[Slice], cores: Int, maxBytes: Long): Seq[Seq[Slice]] = {
    val target = math.min(maxBytes, math.max(MinBytes, slices.map(_.weight).sum / cores + 1))
    val parts = Vector.newBuilder[Seq[Slice]]
    var part = Vector.empty[Slice]
    var weight = 0L
    slices.foreach { slice =>
      // Cut where it leaves the part nearer to the target.
      if (part.nonEmpty && weight + slice.weight / 2 > target) {
        parts += part
        part = Vector.empty
        weight = 0
      }
      part :+= slice
      weight += slice.weight
    }
    if (part.nonEmpty) parts += part
    parts.result()
  }
}

/** What a task carries: its slices. */
sealed trait Cargo extends Serializable {
  def slices: Seq[Slice]
}

object Cargo {
  def apply(slices: Seq[Slice]): Cargo = Packed(slices.toVector)

  private final case class Packed(slices: Vector[Slice]) extends Cargo
}

/** The cargo of a task that runs in the driver's own JVM, as all do under `local[*]`. Spark serializes a task even there.
  * What is serialized here is a number; the slices stay where they are, and are found by it for as long as the driver
  * holds its own copy of the cargo, and with it the frame.
  */
final class LocalCargo private (number: LocalCargo.Number) extends Cargo {
  override def slices: Seq[Slice] =
    Option(LocalCargo.held.get(number))
      .getOrElse(
        throw new IllegalStateException("a local task was sent to another JVM, or outlived its frame")
      )
}

object LocalCargo {

  /** A key of [[held]]: equal to its copies, which come out of tasks, but it is the first one that keeps the entry. */
  private[headwater] final case class Number(value: Long)

  private val numbers = new AtomicLong

  /** Weak, so that an entry goes when the driver lets go of the cargo that was made for it. */
  private val held = Collections.synchronizedMap(new WeakHashMap[Number, Seq[Slice]])

  def apply(slices: Seq[Slice]): Cargo = {
    val number = Number(numbers.incrementAndGet())
    held.put(number, slices)
    new LocalCargo(number)
  }
}
