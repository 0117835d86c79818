package org.apache.spark.sql.headwater.compared

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{classic, DataFrame, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types.StructType

/** What every V1 source needs and Spark keeps to its own package: a DataFrame of rows that counts as streaming. */
object StreamingRows {
  def of(spark: SparkSession, schema: StructType, rows: RDD[InternalRow]): DataFrame =
    spark.asInstanceOf[classic.SparkSession].internalCreateDataFrame(rows, schema, isStreaming = true)
}
