package org.apache.spark.sql.headwater

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.classic.{DataFrame => ClassicFrame}

/** Runs the frame that `getBatch` gave, as a micro-batch would: a streaming frame cannot be collected. */
object BatchRows {
  def longs(frame: DataFrame): Seq[Long] =
    frame.asInstanceOf[ClassicFrame].queryExecution.toRdd.map(_.getLong(0)).collect().toSeq
}
