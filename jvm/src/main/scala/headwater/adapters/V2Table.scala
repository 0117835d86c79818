package headwater.adapters

import java.util.{Collections, EnumSet, Map => JMap, Set => JSet}

import scala.jdk.CollectionConverters._
import scala.util.Try

import headwater.InvalidOptionException
import headwater.task.{MetadataColumn => Metadata}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.TableCapability.{BATCH_READ, MICRO_BATCH_READ}
import org.apache.spark.sql.connector.read.{Batch, Scan, ScanBuilder}
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A source as a table of Spark's V2 interface: of a `format(…)`, or one that is in Spark's session catalog. Without the
  * capability to be read in micro-batches Spark falls back to V1, as it does for partitioned sources.
  *
  * Plans keep tables. So a table holds no connection to Python: the source is loaded again when a query starts. And a table
  * in the catalog whose source cannot be loaded can still be dropped.
  *
  * @param inCatalog
  *   its properties in the catalog; None for a `format(…)`
  * @param spark
  *   the session that the plan belongs to; a query runs in a copy of it, which does not know the query's name
  * @param load
  *   loads the source, with options that are set for one query only
  */
private[adapters] final class V2Table(
    override val name: String,
    inCatalog: Option[Map[String, String]],
    spark: SparkSession,
    load: Map[String, String] => LoadedStream
) extends Table
    with SupportsRead
    with SupportsMetadataColumns {
  private[this] lazy val loaded = {
    val stream = load(Map.empty)
    if (inCatalog.isEmpty) stream else CatalogOptions.check(stream)
  }

  private[this] lazy val isV2 = V2Table.isChosen(spark) && (loaded match {
    case _: LoadedFeed => true
    case _: LoadedPartitions => false
  })

  override def schema(): StructType = loaded.schema

  override def properties(): JMap[String, String] =
    inCatalog.fold(Collections.emptyMap[String, String])(_.asJava)

  /** Spark has no V1 to fall back to for a table of the catalog, and does not say what to do in place of a batch query. So
    * it may ask for both, and [[V2Scan]] says it.
    */
  override def capabilities(): JSet[TableCapability] =
    if (inCatalog.nonEmpty) EnumSet.of(MICRO_BATCH_READ, BATCH_READ)
    else if (V2Table.isChosen(spark) && Try(isV2).getOrElse(false)) EnumSet.of(MICRO_BATCH_READ)
    else EnumSet.noneOf(classOf[TableCapability])

  /** None on V1, which would run with a column too few. */
  override def metadataColumns(): Array[MetadataColumn] =
    if (isV2) Array(V2Table.RowMetadata) else Array.empty

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    if (!isV2)
      throw new InvalidOptionException(
        s"A table is read through V2 only, and the configuration '${V2Table.Api}' is 'v1'. Set it to v2, or read the source " +
          s"with spark.readStream.format(\"$name\")."
      )
    () => new V2Scan(name, spark, loaded.schema, () => load(options.asCaseSensitiveMap.asScala.toMap))
  }
}

private[adapters] object V2Table {

  /** The interface of Spark through which feeds are read. */
  val Api = "spark.headwater.api"

  private def isChosen(spark: SparkSession): Boolean = spark.conf.get(Api, "v2") match {
    case "v2" => true
    case "v1" => false
    case other =>
      throw new InvalidOptionException(s"The configuration '$Api' is '$other', it must be v2 or v1.")
  }

  private object RowMetadata extends MetadataColumn {
    override def name(): String = Metadata.Name
    override def dataType(): DataType = Metadata.dataType
    override def isNullable(): Boolean = false
    override def comment(): String = "Where the row comes from, and its place in the stream"
  }
}

private final class V2Scan(name: String, spark: SparkSession, schema: StructType, load: () => LoadedStream)
    extends Scan {
  @volatile private[this] var stream: Option[V2Stream] = None

  override def readSchema(): StructType = schema

  /** What the plan shows. */
  override def description(): String = stream.fold(name)(_.toString)

  /** Said here, or Spark would plan the partitions of a batch to find out. Real-time mode reads rows. */
  override def columnarSupportMode(): Scan.ColumnarSupportMode =
    if (stream.exists(_.readsRows)) Scan.ColumnarSupportMode.UNSUPPORTED
    else Scan.ColumnarSupportMode.SUPPORTED

  override def toMicroBatchStream(folder: String): MicroBatchStream = load() match {
    case feed: LoadedFeed =>
      val created = feed.v2(spark, folder)
      stream = Some(created)
      created
    case other => throw new IllegalStateException(s"source '${other.name}' became partitioned")
  }

  override def toBatch(): Batch =
    throw new UnsupportedOperationException(
      s"This table is a stream of the source '$name', and cannot be read in a batch query: use " +
        "spark.readStream.table(…), or SELECT … FROM STREAM … in Spark 4.1 and newer."
    )
}
