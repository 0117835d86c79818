package headwater

/** Rows on their way to Spark: one Arrow record batch in its IPC form, and how many rows are in it. The rows are never
  * looked into on the way; a task decodes them.
  *
  * @param cursor
  *   where the upstream stands after the last row, if the source said so. It is in the bytes as well, as the batch's own
  *   metadata.
  */
final case class ArrowRows(count: Int, bytes: Array[Byte], cursor: Option[Cursor] = None) {
  require(count > 0, s"an Arrow batch must have rows, got $count")

  /** What the first `n` rows weigh. A batch does not tell the weight of each row, so it is spread evenly; neighbouring
    * slices add up to the whole, to the byte.
    */
  def weightOfFirst(n: Int): Long = bytes.length.toLong * n / count
}

/** The upstream's own position, any JSON, of one of the feeds that run side by side. */
final case class Cursor(shard: Int, json: String)

/** The rows `from until until` of one Arrow batch. Slices of a batch share its bytes. */
final case class Slice(rows: ArrowRows, from: Int, until: Int) {
  require(0 <= from && from < until && until <= rows.count, s"rows $from until $until of ${rows.count}")

  def count: Int = until - from
  def weight: Long = rows.weightOfFirst(until) - rows.weightOfFirst(from)
}

object Slice {
  def whole(rows: ArrowRows): Slice = Slice(rows, 0, rows.count)
}
