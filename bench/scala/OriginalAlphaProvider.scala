package org.apache.spark.sql.headwater.bench

import org.apache.spark.sql.SQLContext
import org.apache.spark.sql.execution.streaming.Source
import org.apache.spark.sql.sources.{DataSourceRegister, StreamSourceProvider}
import org.apache.spark.sql.types.{StringType, StructType, TimestampType}

/** The format `original_alpha`. Options: `len` (required), `sleepMs` (2) and `maxWaiting` (200,000). */
final class OriginalAlphaProvider extends StreamSourceProvider with DataSourceRegister {
  private[this] val schema = new StructType().add("timestamp", TimestampType).add("value", StringType)

  override def shortName(): String = "original_alpha"

  override def sourceSchema(
      sqlContext: SQLContext,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): (String, StructType) = (shortName(), this.schema)

  override def createSource(
      sqlContext: SQLContext,
      metadataPath: String,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): Source = new OriginalAlpha(
    sqlContext,
    this.schema,
    length = parameters("len").toInt,
    sleepMillis = parameters.getOrElse("sleepMs", "2").toLong,
    maxWaiting = parameters.getOrElse("maxWaiting", "200000").toInt
  )
}
