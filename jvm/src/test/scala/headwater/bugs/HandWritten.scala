package headwater.bugs

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong
import javax.annotation.concurrent.GuardedBy

import org.apache.spark.sql.{DataFrame, SQLContext, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.headwater.compared.StreamingRows
import org.apache.spark.sql.sources.StreamSourceProvider
import org.apache.spark.sql.types.{LongType, StructType}

/** A V1 source as one writes it by hand: what a feed appends waits in memory until it is committed. An offset is how many
  * rows there were up to it. The broken sources change one thing each.
  */
private[bugs] class HandWritten(spark: SparkSession) extends Source {
  override val schema: StructType = HandWritten.schema

  /** Held are the rows behind the first `dropped`; batches were made of those up to `taken`. */
  @GuardedBy("this") protected var held = Vector.empty[Long]
  @GuardedBy("this") protected var dropped = 0L
  @GuardedBy("this") protected var taken = 0L
  @GuardedBy("this") private[this] var begun = false

  /** How often Spark has asked for news. */
  val polls = new AtomicLong

  /** Called by a feed. Waits for room. */
  final def append(row: Long): Unit = synchronized {
    while (!hasRoom) wait()
    held :+= row
  }

  @GuardedBy("this") protected def hasRoom: Boolean = true

  override def getOffset: Option[Offset] = synchronized {
    begun = true
    polls.incrementAndGet()
    Option(dropped + held.length).filter(_ > 0).map(Count(_))
  }

  override def getBatch(start: Option[Offset], end: Offset): DataFrame = synchronized {
    val (from, to) = (start.fold(0L)(Count.of), Count.of(end))
    if (!begun) dropped = to // a restart: numbers go on from there
    begun = true
    taken = to
    notifyAll()
    val rows = held.slice((from - dropped).toInt, (to - dropped).toInt)
    StreamingRows.of(spark, schema, spark.sparkContext.parallelize(rows).map(InternalRow(_)))
  }

  override def commit(end: Offset): Unit = synchronized {
    held = held.drop((Count.of(end) - dropped).toInt)
    dropped = Count.of(end)
    notifyAll()
  }

  override def stop(): Unit = ()
}

private[bugs] object HandWritten {
  val schema: StructType = new StructType().add("value", LongType)
}

private[bugs] final case class Count(n: Long) extends Offset {
  override val json: String = n.toString
}

private[bugs] object Count {

  /** By its JSON: offsets that Spark has read from a file are not of our class. */
  def of(offset: Offset): Long = offset.json.toLong
}

/** `option("source", …)` names how a source is made; the newest of that name can be had from here. */
class HandWrittenProvider extends StreamSourceProvider {
  override def sourceSchema(
      sqlContext: SQLContext,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): (String, StructType) = ("hand_written", HandWritten.schema)

  override def createSource(
      sqlContext: SQLContext,
      metadataPath: String,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): Source = {
    val name = parameters("source")
    val source = HandWrittenProvider.makers.get(name)(sqlContext.sparkSession)
    HandWrittenProvider.newest.put(name, source)
    source
  }
}

private[bugs] object HandWrittenProvider {
  val makers = new ConcurrentHashMap[String, SparkSession => HandWritten]
  val newest = new ConcurrentHashMap[String, HandWritten]
}
