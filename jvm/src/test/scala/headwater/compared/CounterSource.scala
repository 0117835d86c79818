package headwater.compared

import org.apache.spark.sql.{DataFrame, SQLContext, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.headwater.compared.StreamingRows
import org.apache.spark.sql.sources.StreamSourceProvider
import org.apache.spark.sql.types.{LongType, StructType}

/** The numbers from 0 to below `upTo`, as a V1 source. An offset is how many there are before it. */
final class CounterSource(spark: SparkSession, override val schema: StructType, upTo: Long) extends Source {
  import CounterSource._

  override def getOffset: Option[Offset] = Some(Count(upTo))

  override def getBatch(start: Option[Offset], end: Offset): DataFrame = {
    val numbers = spark.sparkContext.range(start.fold(0L)(countOf), countOf(end))
    StreamingRows.of(spark, schema, numbers.map(InternalRow(_)))
  }

  override def stop(): Unit = ()
}

object CounterSource {
  private final case class Count(n: Long) extends Offset {
    override val json: String = n.toString
  }

  /** By its JSON: after a restart Spark hands in offsets of a class of its own. */
  private def countOf(offset: Offset): Long = offset.json.toLong
}

final class CounterSourceProvider extends StreamSourceProvider {
  override def sourceSchema(
      sqlContext: SQLContext,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): (String, StructType) = ("counter", new StructType().add("n", LongType))

  override def createSource(
      sqlContext: SQLContext,
      metadataPath: String,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): Source = new CounterSource(
    sqlContext.sparkSession,
    sourceSchema(sqlContext, schema, providerName, parameters)._2,
    parameters("upTo").toLong
  )
}
