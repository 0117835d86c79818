package headwater.testing

import java.nio.ByteBuffer

import headwater.core.{ArrowRows, Slice}

/** Arrow batches whose rows have ids that need no decoding: the bytes begin with the id of the first row. */
object NumberedRows {
  def rows(firstId: Long, count: Int, bytes: Int = 64): ArrowRows =
    ArrowRows(count, ByteBuffer.allocate(math.max(8, bytes)).putLong(firstId).array)

  def ids(slices: Seq[Slice]): Seq[Long] = slices.flatMap { slice =>
    val first = ByteBuffer.wrap(slice.rows.asInstanceOf[ArrowRows].bytes).getLong
    (first + slice.from) until (first + slice.until)
  }
}
