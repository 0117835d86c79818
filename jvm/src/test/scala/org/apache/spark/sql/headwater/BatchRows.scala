package org.apache.spark.sql.headwater

import scala.jdk.CollectionConverters._

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.classic.{DataFrame => ClassicFrame}
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.execution.datasources.v2.DataSourceRDD
import org.apache.spark.sql.vectorized.ColumnarBatch

/** Runs the batches that a source has planned, as a micro-batch would. */
object BatchRows {

  /** Of the frame that `getBatch` returned: a streaming frame cannot be collected. */
  def longs(frame: DataFrame): Seq[Long] =
    frame.asInstanceOf[ClassicFrame].queryExecution.toRdd.map(_.getLong(0)).collect().toSeq

  /** Of the partitions of a V2 stream. */
  def longs(
      spark: SparkSession,
      partitions: Seq[InputPartition],
      readers: PartitionReaderFactory
  ): Seq[Long] = {
    val columns = new DataSourceRDD(spark.sparkContext, partitions.map(Seq(_)), readers, true, Map.empty)
    columns
      .asInstanceOf[RDD[ColumnarBatch]]
      .mapPartitions(_.flatMap(_.rowIterator().asScala.map(_.getLong(0))))
      .collect()
      .toSeq
  }
}
