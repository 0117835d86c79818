package headwater.testing

import java.io.ByteArrayOutputStream
import java.lang.ref.WeakReference
import java.nio.channels.Channels
import java.util.concurrent.{ConcurrentHashMap, LinkedBlockingQueue, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import scala.concurrent.duration.Deadline
import scala.util.Using

import headwater.adapters.{LoadedFeed, LoadedPartitions, LoadedStream, StreamFactory, StreamProvider}
import headwater.core._
import org.apache.arrow.memory.RootAllocator
import org.apache.arrow.vector.{BigIntVector, VectorSchemaRoot, VectorUnloader}
import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.types.{LongType, StructType}

/** A source that a test controls step by step: `script.add(1, 2, 3)`. Its rows are numbers.
  *
  * One script drives the feeds of all its runs, one after the other; each starts with an empty list of steps.
  */
final class Script(val name: String) {
  import Script._

  val nanoTime = new AtomicLong(0)
  @volatile private var feed: ScriptedFeed = _
  @volatile var feedsMade = 0

  /** What happens to rows of a batch that was stopped; Spark's tasks have ended by default. */
  @volatile var afterTasks: (() => Unit) => Unit = drop => drop()
  @volatile var onClose: () => Unit = () => ()

  /** Waits until the rows are in the buffer. */
  def add(values: Long*): Unit = offer(values: _*).awaitDone()

  /** Does not wait: the buffer may be full. */
  def offer(values: Long*): Step = feedNow.add(AddRows(values))
  def end(): Unit = feedNow.add(End).awaitDone()
  def caughtUp(): Unit = feedNow.add(CaughtUp).awaitDone()
  def fail(error: Throwable): Unit = feedNow.add(Fail(error)).awaitDone()

  /** The last rows, without holding them. */
  def watchLast(): WeakReference[ArrowRows] = feed.last

  def newFeed(): Feed = synchronized {
    feedsMade += 1
    feed = new ScriptedFeed(() => onClose())
    feed
  }

  private def feedNow: ScriptedFeed = {
    Script.await(s"$name: no feed was started")(feed != null && !feed.isClosed)
    feed
  }
}

object Script {
  private val scripts = new ConcurrentHashMap[String, Script]
  def apply(name: String): Script = scripts.computeIfAbsent(name, new Script(_))

  def await(what: => String)(condition: => Boolean): Unit = {
    val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60)
    while (!condition) {
      if (System.nanoTime() > deadline) throw new AssertionError(what)
      Thread.sleep(1)
    }
  }

  val schema: StructType = new StructType().add("value", LongType)
  val arrowSchema = new Schema(
    java.util.List.of(new Field("value", FieldType.nullable(new ArrowType.Int(64, true)), null))
  )

  def arrow(values: Seq[Long]): ArrowRows =
    Using.resource(new RootAllocator()) { allocator =>
      Using.resource(VectorSchemaRoot.create(arrowSchema, allocator)) { root =>
        val vector = root.getVector(0).asInstanceOf[BigIntVector]
        values.zipWithIndex.foreach { case (value, i) => vector.setSafe(i, value) }
        root.setRowCount(values.length)
        val out = new ByteArrayOutputStream
        Using.resource(new VectorUnloader(root).getRecordBatch) { batch =>
          MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), batch)
        }
        ArrowRows(values.length, out.toByteArray)
      }
    }

  sealed abstract class Step {
    @volatile var done = false
    def awaitDone(): Unit = Script.await(s"$this was not done")(done)
  }
  final case class AddRows(values: Seq[Long]) extends Step
  case object Close extends Step
  final case class Fail(error: Throwable) extends Step
  case object End extends Step
  case object CaughtUp extends Step

  final class ScriptedFeed(onClose: () => Unit) extends Feed {
    private val todo = new LinkedBlockingQueue[Step]
    @volatile var isClosed = false
    @volatile var last: WeakReference[ArrowRows] = _

    def add(step: Step): Step = {
      step.done = false
      todo.add(step)
      step
    }

    override def run(out: RowSink): Unit = {
      var open = true
      while (open) {
        val step = todo.take()
        try
          step match {
            case AddRows(values) =>
              val rows = arrow(values)
              last = new WeakReference(rows)
              open = out.append(rows)
            case Fail(error) => throw error
            case CaughtUp => out.caughtUp()
            case End | Close => open = false
          }
        finally step.done = true
      }
    }

    override def close(deadline: Deadline): Unit = {
      isClosed = true
      todo.add(Close)
      onClose()
    }
  }
}

/** `option("source", …)` names the script; the other options are those of every source. */
class ScriptProvider extends StreamProvider {
  override def shortName(): String = "script"

  private[headwater] override def load(
      spark: SparkSession,
      schema: Option[StructType],
      options: Map[String, String],
      cached: Boolean
  ): LoadedStream = options("source") match {
    case "broken" =>
      LoadedPartitions(
        "script",
        Script.schema,
        (_, _) => throw new IllegalStateException("this source cannot be made")
      )
    case name => LoadedFeed(ScriptProvider.definition(name, options - "source"))
  }
}

object ScriptProvider {
  private val runs = new AtomicLong(0)
  private val arrowSchema = Script.arrowSchema.serializeAsMessage()

  def definition(name: String, options: Map[String, String]): FeedDefinition = FeedDefinition(
    name,
    s"script[$name]",
    Script.schema,
    arrowSchema,
    BufferedOptions.read(new SourceOptions(name, options, OptionTable.feed), Durability.Memory),
    _ => Script(name).newFeed(),
    newRun = () => f"${runs.incrementAndGet()}%016x",
    nanoTime = () => Script(name).nanoTime.get,
    afterTasks = drop => Script(name).afterTasks(drop)
  )

  /** The stream of one query. */
  def factory(
      spark: SparkSession,
      name: String,
      options: Map[String, String] = Map.empty,
      folder: String = "file:/nowhere/checkpoint/sources/0"
  ): StreamFactory = new StreamFactory(spark, folder, definition(name, options))
}
