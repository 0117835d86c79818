package headwater.adapters

import java.nio.ByteBuffer
import java.util.{Base64, UUID}
import java.util.concurrent.CompletableFuture

import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.buffer.BufferedStream
import headwater.bridge.{Bridge, FeedOptions, LoadedSource, PythonFeed, PythonPartitions}
import headwater.core.{
  BufferedOptions,
  Cursor,
  Durability,
  Feed,
  Json,
  OptionTable,
  PartitionedOptions,
  PythonOptions,
  SourceOptions,
  StartFrom,
  Store,
  Uninterruptibly
}
import headwater.log.{LogStore, Stores}
import headwater.partition.{PartitionedStream, StartPositions}
import headwater.{BridgeException, InvalidOptionException}
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.{SparkSession, SQLContext}
import org.apache.spark.sql.execution.streaming.Source
import org.apache.spark.sql.headwater.{PartitionFrames, StreamingFrames}
import org.apache.spark.sql.types.{DataType, StructType}

/** The provider of a source written in Python. Python knows its options and its schema and is asked at `load()`,
  * so that an invalid option fails there.
  */
abstract class PythonProvider extends StreamProvider {
  import PythonProvider._

  /** The name of the source, and the options without those that name it. */
  protected def sourceIn(original: Map[String, String]): (String, Map[String, String])

  override def sourceSchema(
      sqlContext: SQLContext,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): (String, StructType) = {
    val loaded = load(schema, parameters, Bridge.current.describe)
    (loaded.name, loaded.schema)
  }

  override def createSource(
      sqlContext: SQLContext,
      metadataPath: String,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): Source = {
    val loaded = load(schema, parameters, Bridge.current.described)
    val spark = sqlContext.sparkSession
    loaded.options match {
      case Left(options) => partitionedSource(spark, metadataPath, loaded, options)
      case Right(options) => feedSource(spark, metadataPath, loaded, options)
    }
  }

  private def feedSource(
      spark: SparkSession,
      folder: String,
      loaded: LoadedSource,
      options: FeedOptions
  ): Source = {
    val buffered = options.buffered
    val frames = new StreamingFrames(
      spark,
      loaded.description,
      loaded.schema,
      loaded.arrowSchema,
      buffered.failOnDataLoss
    )
    val stream = new BufferedStream(
      loaded.name,
      loaded.description,
      buffered,
      Stores.opener(spark, folder, buffered, newRun _, logSettings(loaded, options, spark)),
      store => newFeed(loaded, options, store, spark),
      () => frames.rowsLost
    )
    new V1Source(stream, loaded.schema, buffered.limits, frames.of)
  }

  private def partitionedSource(
      spark: SparkSession,
      folder: String,
      loaded: LoadedSource,
      options: PartitionedOptions
  ): Source = {
    lazy val stream: PartitionedStream = new PartitionedStream(
      loaded.name,
      loaded.description,
      options,
      () => new StartPositions(Stores.files(spark, folder), loaded.name, loaded.identity),
      known =>
        PythonPartitions.open(
          options,
          openRequest(loaded, options.python, spark),
          known,
          newRun(),
          () => stream.offsets
        ),
      loaded.hasGaps,
      () => spark.sparkContext.defaultParallelism
    )
    val frames = new PartitionFrames(spark, loaded.description, loaded.schema, loaded.arrowSchema)
    new V1Source(stream, loaded.schema, options.limits, frames.of)
  }

  private def logSettings(
      loaded: LoadedSource,
      feedOptions: FeedOptions,
      spark: SparkSession
  ): LogStore.Settings =
    Stores.logSettings(
      spark,
      feedOptions.buffered,
      loaded.name,
      loaded.schema,
      loaded.arrowSchema,
      feedOptions.python.concurrency,
      loaded.isResumable,
      loaded.identity
    )

  /** The request to open the source in Python. */
  private def openRequest(loaded: LoadedSource, python: PythonOptions, spark: SparkSession): ObjectNode = {
    val request = python.writeTo(loaded.request.deepCopy())
    queryOfThisThread(spark).foreach { case (id, name) =>
      request.put("query", id)
      name.foreach(request.put("queryName", _))
    }
    request
  }

  private def newFeed(
      loaded: LoadedSource,
      feedOptions: FeedOptions,
      store: Store,
      spark: SparkSession
  ): Feed = {
    val arrowSchema = Schema.deserializeMessage(ByteBuffer.wrap(loaded.arrowSchema))
    // Not the id of the run: the run of a log outlives its feeds, and Python may still be closing the previous one.
    val feed = new PythonFeed(
      Bridge.current,
      newRun(),
      openRequest(loaded, feedOptions.python, spark),
      feedOptions.python.concurrency,
      arrowSchema,
      holdUntilCursor = loaded.isResumable && store.durability == Durability.Log,
      shard => store.cursors.get(shard).orElse(feedOptions.python.startCursor.map(Cursor.jsonOf))
    )
    store match {
      case log: LogStore if loaded.hasAck => log.onDurable(feed.durable)
      case _ =>
    }
    feed
  }

  private def load(
      schema: Option[StructType],
      parameters: Map[String, String],
      describe: ObjectNode => CompletableFuture[JsonNode]
  ): LoadedSource = {
    val (source, original) = sourceIn(this.original(parameters))
    val (ours, authors) = SourceOptions.split(original, Names)
    val options = new SourceOptions(source.takeWhile(_ != '@'), ours, Names)
    val request = Json.mapper.createObjectNode().put("source", source)
    val optionValues = request.putObject("options")
    authors.foreach { case (name, value) => optionValues.put(name, value) }
    schema.foreach(userSchema => request.put("schema", userSchema.json))
    val response =
      Uninterruptibly
        .get(describe(request), LoadTimeout.fromNow)
        .getOrElse(
          throw new BridgeException(
            s"Source '$source' did not report its schema within ${LoadTimeout.toSeconds} s. A source must not connect or " +
              "wait when it is made; that belongs in its read()."
          )
        )
    val isResumable = response.path("resumable").asBoolean
    val name = response.path("name").asText
    LoadedSource(
      name,
      DataType.fromJson(response.path("schema").asText).asInstanceOf[StructType],
      Base64.getDecoder.decode(response.path("arrowSchema").asText),
      response.path("description").asText,
      request,
      if (response.path("partitioned").asBoolean) Left(partitioned(name, options, response))
      else Right(feedOptions(name, options, isResumable)),
      isResumable,
      response.path("ack").asBoolean,
      response.path("hasAfter").asBoolean,
      response.path("identity").fields.asScala.map(entry => entry.getKey -> entry.getValue.asText).toMap
    )
  }

  private def partitioned(name: String, options: SourceOptions, response: JsonNode): PartitionedOptions = {
    val read = PartitionedOptions.read(options)
    read.startFrom match {
      case StartFrom.At(time) if !response.path("hasAt").asBoolean =>
        throw new InvalidOptionException(
          s"Option 'startFrom' of source '$name' is the time $time, and the source cannot find the offset of a time: it has " +
            "no method 'at'. Set it to earliest, latest, or offsets by partition."
        )
      case _ => read
    }
  }

  private def feedOptions(name: String, options: SourceOptions, isResumable: Boolean): FeedOptions = {
    PartitionedOptions.rejectForFeeds(options)
    val python = PythonOptions.read(options)
    for (cursor <- python.startCursor if !isResumable)
      throw new InvalidOptionException(
        s"Option 'startCursor' of source '$name' is '$cursor', and the source is not resumable: its " +
          "read takes no parameter 'since'."
      )
    FeedOptions(BufferedOptions.read(options, Durability.Log), python)
  }
}

/** `format("headwater").option("source", NAME)`: works wherever the jar is. */
final class HeadwaterProvider extends PythonProvider {
  override def shortName(): String = "headwater"

  override protected def sourceIn(original: Map[String, String]): (String, Map[String, String]) = {
    val (which, rest) = SourceOptions.split(original, Seq("source"))
    (new SourceOptions(shortName(), which, Seq("source")).required("source")(PythonProvider.sourceName), rest)
  }
}

/** `format(NAME)`. [[ProviderJar]] generates a subclass for each name at run time. */
abstract class NamedProvider(name: String) extends PythonProvider {
  final override def shortName(): String = name

  final override protected def sourceIn(original: Map[String, String]): (String, Map[String, String]) =
    (name, original)
}

private[headwater] object PythonProvider {
  val Names: Seq[String] = OptionTable.all.map(_.name)

  val sourceName: SourceOptions.OptionType[String] =
    SourceOptions.OptionType("the name of a source that was defined in the driver's Python")(text =>
      Some(text).filter(_.nonEmpty)
    )

  private val LoadTimeout = 60.seconds

  /** The thread of a query carries the query's id; its name, if any, is with the session that started it. */
  private def queryOfThisThread(spark: SparkSession): Option[(String, Option[String])] =
    Option(spark.sparkContext.getLocalProperty("sql.streaming.queryId")).map { id =>
      id -> Try(Option(spark.streams.get(UUID.fromString(id))).flatMap(q => Option(q.name))).toOption.flatten
    }
}
