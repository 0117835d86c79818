package headwater.compared

import java.util.{Map => JMap, Set => JSet}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, Offset}
import org.apache.spark.sql.types.{LongType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The numbers from 0 to below `upTo`, as a V2 stream. An offset is how many there are before it. */
final class CounterStream(upTo: Long) extends MicroBatchStream {
  import CounterStream._

  override def initialOffset(): Offset = Count(0)
  override def latestOffset(): Offset = Count(upTo)
  override def deserializeOffset(json: String): Offset = Count(json.toLong)

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    Array(Numbers(countOf(start), countOf(end)))

  override def createReaderFactory(): PartitionReaderFactory =
    partition => new NumbersReader(partition.asInstanceOf[Numbers])

  override def commit(end: Offset): Unit = ()
  override def stop(): Unit = ()
}

object CounterStream {
  private final case class Count(n: Long) extends Offset {
    override val json: String = n.toString
  }

  /** Spark reads an offset back with `deserializeOffset`, so it is always ours. */
  private def countOf(offset: Offset): Long = offset.asInstanceOf[Count].n

  private final case class Numbers(from: Long, until: Long) extends InputPartition

  /** Made in a task, on an executor. */
  private final class NumbersReader(numbers: Numbers) extends PartitionReader[InternalRow] {
    private[this] var at = numbers.from - 1

    override def next(): Boolean = {
      at += 1
      at < numbers.until
    }
    override def get(): InternalRow = InternalRow(at)
    override def close(): Unit = ()
  }
}

final class CounterStreamProvider extends TableProvider {
  override def inferSchema(options: CaseInsensitiveStringMap): StructType =
    new StructType().add("n", LongType)

  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JMap[String, String]
  ): Table = new CounterTable(schema)
}

/** What `load()` finds; the options come with the scan. */
private final class CounterTable(numbers: StructType) extends Table with SupportsRead {
  override def name(): String = "counter"
  override def schema(): StructType = numbers
  override def capabilities(): JSet[TableCapability] = JSet.of(TableCapability.MICRO_BATCH_READ)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = () =>
    new Scan {
      override def readSchema(): StructType = numbers
      override def toMicroBatchStream(checkpointLocation: String): MicroBatchStream =
        new CounterStream(options.getLong("upTo", 0))
    }
}
