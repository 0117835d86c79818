package headwater.testing

import java.io.ByteArrayOutputStream
import java.lang.ref.WeakReference
import java.nio.channels.Channels
import java.util.concurrent.{ConcurrentHashMap, LinkedBlockingQueue, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import scala.concurrent.duration.Deadline
import scala.util.Using

import headwater.adapters.V1Source
import headwater.buffer.{BufferedStream, StoredBatch}
import headwater.core.{ArrowRows, BufferedOptions, Durability, Feed, OptionTable, RowSink, SourceOptions}
import headwater.log.Stores
import org.apache.arrow.memory.RootAllocator
import org.apache.arrow.vector.{BigIntVector, VectorSchemaRoot, VectorUnloader}
import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}
import org.apache.spark.sql.SQLContext
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.execution.streaming.Source
import org.apache.spark.sql.headwater.StreamingFrames
import org.apache.spark.sql.sources.StreamSourceProvider
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
    feed = new ScriptedFeed
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

  final class ScriptedFeed extends Feed {
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
    }
  }
}

/** `option("source", …)` names the script; the other options are those of every source. */
class ScriptProvider extends StreamSourceProvider {
  override def sourceSchema(
      sqlContext: SQLContext,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): (String, StructType) = ("script", Script.schema)

  override def createSource(
      sqlContext: SQLContext,
      metadataPath: String,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): Source = {
    val name = parameters("source")
    if (name == "broken") throw new IllegalStateException("this source cannot be made")
    val written = parameters.asInstanceOf[CaseInsensitiveMap[String]].originalMap - "source"
    ScriptProvider.newSource(sqlContext, name, written, metadataPath)
  }
}

object ScriptProvider {
  private val runs = new AtomicLong(0)

  def newSource(
      sqlContext: SQLContext,
      name: String,
      written: Map[String, String] = Map.empty,
      folder: String = "file:/nowhere"
  ): V1Source[StoredBatch] = {
    val spark = sqlContext.sparkSession
    val options =
      BufferedOptions.read(new SourceOptions(name, written, OptionTable.feed), Durability.Memory)
    val arrowSchema = Script.arrowSchema.serializeAsMessage()
    val nanoTime = () => Script(name).nanoTime.get
    def log = Stores.logSettings(spark, options, name, Script.schema, arrowSchema)
    val description = s"script[$name]"
    val frames = new StreamingFrames(spark, description, Script.schema, arrowSchema, options.failOnDataLoss)
    val stream = new BufferedStream(
      name,
      description,
      options,
      Stores.opener(spark, folder, options, () => f"${runs.incrementAndGet()}%016x", log, nanoTime),
      _ => Script(name).newFeed(),
      () => frames.rowsLost,
      nanoTime
    )
    new V1Source(stream, Script.schema, options.limits, frames.of)
  }
}
