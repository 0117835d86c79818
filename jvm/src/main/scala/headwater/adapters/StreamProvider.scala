package headwater.adapters

import java.util.{Map => JMap}

import scala.jdk.CollectionConverters._
import scala.util.Try

import headwater.core.{FeedDefinition, SourceOptions}
import org.apache.spark.sql.{SparkSession, SQLContext}
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.connector.catalog.{Table, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.execution.streaming.Source
import org.apache.spark.sql.sources.{BaseRelation, DataSourceRegister, RelationProvider, StreamSourceProvider}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A format that can only be read as a stream, through Spark's V1 or V2 interface: [[V2Table]] decides.
  *
  * Spark creates a new instance whenever it needs one, so it has no state. It asks for the schema, the table and the V1
  * schema at each `load()`, and for the source when a query starts.
  */
trait StreamProvider
    extends StreamSourceProvider
    with TableProvider
    with RelationProvider
    with DataSourceRegister {

  /** Loads the source, to describe it. It does not run yet. An invalid option fails here.
    *
    * @param schema
    *   the one that the user has set
    * @param options
    *   with names as the user wrote them
    * @param cached
    *   whether a description from the last `load()` will do
    */
  private[headwater] def load(
      spark: SparkSession,
      schema: Option[StructType],
      options: Map[String, String],
      cached: Boolean
  ): LoadedStream

  override def sourceSchema(
      sqlContext: SQLContext,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): (String, StructType) = {
    val loaded = load(sqlContext.sparkSession, schema, original(parameters), cached = false)
    (loaded.name, loaded.schema)
  }

  /** An error here would surface only after `start()` has returned. */
  override def createSource(
      sqlContext: SQLContext,
      metadataPath: String,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): Source = {
    val spark = sqlContext.sparkSession
    load(spark, schema, original(parameters), cached = true).v1(spark, metadataPath)
  }

  /** Of a `format(…)` Spark has just asked for [[sourceSchema]], or it is `spark.read`, for which [[createRelation]] has the
    * answer. So no error is thrown here: a table that cannot be loaded has no capability, and Spark turns to V1.
    */
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = {
    val properties = options.asCaseSensitiveMap.asScala.toMap
    val spark = SparkSession.active
    CatalogOptions.of(properties) match {
      case Some(inCatalog) => CatalogOptions.check(load(spark, None, inCatalog, cached = false)).schema
      case None => Try(load(spark, None, properties, cached = true)).fold(_ => new StructType, _.schema)
    }
  }

  override def supportsExternalMetadata(): Boolean = true

  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JMap[String, String]
  ): Table = {
    val spark = SparkSession.active
    val all = properties.asScala.toMap
    val inCatalog = CatalogOptions.of(all)
    val options = inCatalog.getOrElse(all)
    new V2Table(
      shortName(),
      if (inCatalog.isEmpty) None else Some(all - "path"),
      spark,
      forQuery =>
        loadTable(spark, schema, SourceOptions.overlay(options, forQuery), cached = inCatalog.isEmpty)
    )
  }

  /** Called by `spark.read`. */
  override def createRelation(sqlContext: SQLContext, parameters: Map[String, String]): BaseRelation =
    throw new UnsupportedOperationException(
      s"Source '${shortName()}' is a stream: use spark.readStream.format(\"${shortName()}\") in place of " +
        s"spark.read.format(\"${shortName()}\")."
    )

  /** Spark does not say whether the schema of a table is the user's or the one that it got from [[inferSchema]]. */
  private def loadTable(
      spark: SparkSession,
      schema: StructType,
      options: Map[String, String],
      cached: Boolean
  ): LoadedStream =
    Try(load(spark, None, options, cached))
      .filter(loaded => isSame(loaded.schema, schema))
      .getOrElse(load(spark, Some(schema), options, cached))

  /** The same columns; a catalog may make them nullable. */
  private def isSame(a: StructType, b: StructType): Boolean =
    a.map(field => field.name -> field.dataType.catalogString) == b.map(field =>
      field.name -> field.dataType.catalogString
    )

  /** The options with names as the user wrote them: Spark passes lower-case names beside the original ones. */
  private def original(parameters: Map[String, String]): Map[String, String] = parameters match {
    case insensitive: CaseInsensitiveMap[String @unchecked] => insensitive.originalMap
    case other => other
  }
}

/** A source whose options are valid. */
private[headwater] sealed trait LoadedStream {
  def name: String
  def schema: StructType

  /** @param folder of this source in the query's checkpoint */
  def v1(spark: SparkSession, folder: String): Source
}

/** @param literalSecrets
  *   options that hold a secret itself, not a reference to it
  */
private[headwater] final case class LoadedFeed(definition: FeedDefinition, literalSecrets: Seq[String] = Nil)
    extends LoadedStream {
  override def name: String = definition.name
  override def schema: StructType = definition.schema

  override def v1(spark: SparkSession, folder: String): Source =
    new StreamFactory(spark, folder, definition).v1

  def v2(spark: SparkSession, folder: String): V2Stream = new StreamFactory(spark, folder, definition).v2
}

/** Only on V1: its rows are read by Spark's Python workers. */
private[headwater] final case class LoadedPartitions(
    override val name: String,
    override val schema: StructType,
    newSource: (SparkSession, String) => Source
) extends LoadedStream {
  override def v1(spark: SparkSession, folder: String): Source = newSource(spark, folder)
}
