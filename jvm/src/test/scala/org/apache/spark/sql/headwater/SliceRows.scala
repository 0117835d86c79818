package org.apache.spark.sql.headwater

import headwater.Slice
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.catalyst.InternalRow

/** Lets tests see the rows of a slice without a task. */
object SliceRows {
  def decode(schema: Schema, slice: Slice): Seq[InternalRow] = {
    val decoder = new SliceDecoder(schema.serializeAsMessage())
    try decoder.decode(slice).map(_.copy()).toVector
    finally decoder.close()
  }
}
