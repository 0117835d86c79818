package headwater.task

import headwater.core.ArrowRows
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.types.UTF8String

/** The hidden column `_metadata` of a feed: where each row came from, and its place in the stream.
  *
  * `run` and `seq` together identify a row: a batch that runs again, also after a restart, gives every row the same
  * ones. A value is made when it is asked for.
  */
final class MetadataColumn(source: String, run: String) {
  private[this] val sourceText = UTF8String.fromString(source)
  private[this] val runText = UTF8String.fromString(run)

  /** @param seq
    *   of the first row
    * @param rows
    *   the batch that has the rows
    */
  def of(seq: Long, rows: ArrowRows): ColumnVector = new InPlaceColumn(MetadataColumn.dataType) {
    override def isNullAt(row: Int): Boolean = false
    override def hasNull: Boolean = false
    override def getChild(ordinal: Int): ColumnVector = fields(ordinal)
    private[this] lazy val fields =
      Array.tabulate(MetadataColumn.dataType.length)(new MetadataField(_, seq, rows))
  }

  private final class MetadataField(ordinal: Int, seq: Long, rows: ArrowRows)
      extends InPlaceColumn(MetadataColumn.dataType(ordinal).dataType) {
    override def isNullAt(row: Int): Boolean = hasNull
    override def hasNull: Boolean = ordinal == MetadataColumn.Arrived && rows.arrived == 0
    override def getUTF8String(row: Int): UTF8String =
      if (ordinal == MetadataColumn.Source) sourceText else runText
    override def getLong(row: Int): Long = if (ordinal == MetadataColumn.Seq) seq + row else rows.arrived
    override def getInt(row: Int): Int = rows.shard
  }
}

private[headwater] object MetadataColumn {
  val Name = "_metadata"

  val dataType: StructType = new StructType()
    .add("source", StringType, nullable = false)
    .add("run", StringType, nullable = false)
    .add("seq", LongType, nullable = false)
    .add("shard", IntegerType, nullable = false)
    .add("arrived", TimestampType)

  // The positions of the fields.
  private val Source = 0
  private val Seq = 2
  private val Arrived = 4
}
