package headwater.alpha

import java.io.ByteArrayOutputStream
import java.nio.channels.Channels
import java.util.concurrent.{CountDownLatch, TimeUnit}

import scala.concurrent.duration.Deadline
import scala.jdk.CollectionConverters._
import scala.util.Using

import headwater.core.{ArrowRows, Feed, RowSink, WallClock}
import org.apache.arrow.memory.{BufferAllocator, RootAllocator}
import org.apache.arrow.vector.{TimeStampMicroTZVector, VarCharVector, VectorSchemaRoot, VectorUnloader}
import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.TimeUnit.MICROSECOND
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}

/** Random strings, each with a timestamp.
  *
  * The value of a row depends only on `seed` and its seq. A seeded stream therefore continues after a restart
  * where it was, and two streams with the same seed have equal values.
  *
  * @param rowsPerSecond
  *   0: as fast as possible
  * @param nowMicros
  *   the wall clock
  */
private[headwater] final class RandomAlpha(
    length: Int,
    rowsPerSecond: Long,
    seed: Long,
    first: Long,
    nowMicros: () => Long = WallClock.micros
) extends Feed {
  import RandomAlpha._

  private[this] val closed = new CountDownLatch(1)
  private[this] val rowsPerBatch = math.max(1, math.min(MaxBatchRows, MaxBatchBytes / (length + RowOverhead)))

  override def close(deadline: Deadline): Unit = closed.countDown()

  override def run(out: RowSink): Unit =
    Using.resource(new RootAllocator()) { allocator =>
      Using.resource(new Writer(allocator, length, rowsPerBatch, nowMicros)) { writer =>
        if (rowsPerSecond == 0) runFreely(writer, out) else runPaced(writer, out)
      }
    }

  private def runFreely(writer: Writer, out: RowSink): Unit = {
    var seq = first
    while (!isClosed && out.append(writer.write(seed, seq, rowsPerBatch))) seq += rowsPerBatch
  }

  /** Every tick produces the rows that are due. */
  private def runPaced(writer: Writer, out: RowSink): Unit = {
    var wokeAt = System.nanoTime()
    val pacer = new Pacer(rowsPerSecond, wokeAt)
    var seq = first
    var open = true
    while (open && !sleepUntil(math.max(pacer.nextAt, wokeAt + TickNanos))) {
      wokeAt = System.nanoTime()
      var due = pacer.due(wokeAt)
      while (open && due > 0) {
        val rows = math.min(due, rowsPerBatch.toLong).toInt
        val batch = writer.write(seed, seq, rows)
        val appendedAt = System.nanoTime()
        open = out.append(batch)
        pacer.added(rows, System.nanoTime() - appendedAt)
        seq += rows
        due -= rows
      }
    }
  }

  private def isClosed: Boolean = closed.getCount == 0

  private def sleepUntil(nanos: Long): Boolean = closed.await(nanos - System.nanoTime(), TimeUnit.NANOSECONDS)
}

private[headwater] object RandomAlpha {
  private val MaxBatchRows = 8192

  /** Arrays of half a megabyte and more may take up to twice their size on a JVM's heap. */
  private val MaxBatchBytes = 400 << 10

  /** The bytes of a row beside its letters: a timestamp, an offset and two bits. */
  private val RowOverhead = 13
  private val TickNanos = 10000000L

  private val alphabet = (('A' to 'Z') ++ ('a' to 'z') ++ ('0' to '9')).map(_.toByte).toArray

  val arrowSchema: Schema = new Schema(
    Seq(
      new Field("timestamp", FieldType.notNullable(new ArrowType.Timestamp(MICROSECOND, "UTC")), null),
      new Field("value", FieldType.notNullable(new ArrowType.Utf8), null)
    ).asJava
  )

  /** Fills `into` with the value of row `seq`: SplitMix64, seeded for each row. Six bits make a character; the
    * two values of 64 that the alphabet lacks are drawn again.
    */
  def fill(seed: Long, seq: Long, into: Array[Byte], from: Int, length: Int): Unit = {
    var state = mix(seed + Golden * seq)
    var bits = 0L
    var left = 0
    var i = from
    while (i < from + length) {
      if (left == 0) {
        state += Golden
        bits = mix(state)
        left = 10
      }
      val index = (bits & 63).toInt
      bits >>>= 6
      left -= 1
      if (index < alphabet.length) {
        into(i) = alphabet(index)
        i += 1
      }
    }
  }

  private val Golden = 0x9e3779b97f4a7c15L

  private def mix(state: Long): Long = {
    var z = state
    z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L
    z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL
    z ^ (z >>> 31)
  }

  /** Writes rows as Arrow batches. The vectors are reused. */
  private final class Writer(allocator: BufferAllocator, length: Int, maxRows: Int, nowMicros: () => Long)
      extends AutoCloseable {
    private[this] val root = VectorSchemaRoot.create(arrowSchema, allocator)
    private[this] val timestamps = root.getVector("timestamp").asInstanceOf[TimeStampMicroTZVector]
    private[this] val values = root.getVector("value").asInstanceOf[VarCharVector]
    private[this] val letters = new Array[Byte](maxRows * length)

    timestamps.allocateNew(maxRows)
    values.allocateNew(letters.length.toLong, maxRows)

    def write(seed: Long, first: Long, rows: Int): ArrowRows = {
      var row = 0
      var now = 0L
      while (row < rows) {
        now = nowMicros()
        fill(seed, first + row, letters, row * length, length)
        timestamps.set(row, now)
        values.setIndexDefined(row)
        values.getOffsetBuffer.setInt(4L * (row + 1), (row + 1) * length)
        row += 1
      }
      values.getDataBuffer.setBytes(0, letters, 0, rows.toLong * length)
      values.setLastSet(rows - 1)
      root.setRowCount(rows)
      val out = new ByteArrayOutputStream(rows * (length + RowOverhead) + 512)
      Using.resource(new VectorUnloader(root).getRecordBatch) { batch =>
        MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), batch)
      }
      ArrowRows(rows, out.toByteArray, arrived = now)
    }

    override def close(): Unit = root.close()
  }
}
