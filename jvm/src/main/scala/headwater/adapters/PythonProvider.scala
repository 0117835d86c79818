package headwater.adapters

import java.util.{Base64, UUID}
import java.util.concurrent.CompletableFuture

import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.buffer.MemoryStore
import headwater.bridge.{Bridge, FeedOptions, LoadedSource, PythonFeed, PythonPartitions}
import headwater.core.{
  ArrowSchema,
  BufferedOptions,
  Cursor,
  Durability,
  Feed,
  FeedDefinition,
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
import headwater.task.PlannedRows
import headwater.{BridgeException, InvalidOptionException}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.streaming.Source
import org.apache.spark.sql.headwater.PartitionFrames
import org.apache.spark.sql.types.{DataType, StructType}

/** The provider of a source written in Python. Python knows its options and its schema and is asked at `load()`,
  * so that an invalid option fails there.
  */
abstract class PythonProvider extends StreamProvider {
  import PythonProvider._

  /** The name of the source, and the options without those that name it. */
  protected def sourceIn(original: Map[String, String]): (String, Map[String, String])

  private[headwater] override def load(
      spark: SparkSession,
      schema: Option[StructType],
      options: Map[String, String],
      cached: Boolean
  ): LoadedStream = {
    val bridge = Bridge.current
    val loaded = describe(schema, options, if (cached) bridge.described else bridge.describe)
    loaded.options match {
      case Left(partitioned) =>
        LoadedPartitions(loaded.name, loaded.schema, partitionedSource(_, _, loaded, partitioned))
      case Right(feedOptions) => LoadedFeed(feed(loaded, feedOptions, spark), loaded.literalSecrets)
    }
  }

  private def feed(loaded: LoadedSource, options: FeedOptions, spark: SparkSession) = FeedDefinition(
    loaded.name,
    loaded.description,
    loaded.schema,
    loaded.arrowSchema,
    options.buffered,
    store => newFeed(loaded, options, store, spark),
    options.python.concurrency,
    loaded.isResumable,
    loaded.identity
  )

  private def partitionedSource(
      spark: SparkSession,
      folder: String,
      loaded: LoadedSource,
      options: PartitionedOptions
  ): Source = {
    Stores.warnIfTemporary(loaded.name, folder)
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
          FeedDefinition.newRun(),
          () => stream.offsets,
          () => stream.badRows
        ),
      loaded.hasGaps,
      () => spark.sparkContext.defaultParallelism
    )
    val frames = new PartitionFrames(spark, loaded.description, loaded.schema, loaded.arrowSchema)
    new V1Source(
      stream,
      loaded.schema,
      options.limits,
      frames.of,
      () => UnfinishedOffsets.delete(spark, folder)
    )
  }

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
    val arrowSchema = ArrowSchema.parse(loaded.arrowSchema)
    val acknowledgedWhen = store match {
      case log: LogStore => Option.when(loaded.hasAck && log.isDurable)("durable")
      case _ => Option.when(feedOptions.python.ackOn == "commit")("commit")
    }
    val request = openRequest(loaded, feedOptions.python, spark)
    acknowledgedWhen.foreach(request.put("ackOn", _))
    // Not the id of the run: the run of a log outlives its feeds, and Python may still be closing the previous one.
    val feed = new PythonFeed(
      Bridge.current,
      FeedDefinition.newRun(),
      request,
      feedOptions.python.concurrency,
      arrowSchema,
      holdUntilCursor = loaded.isResumable && store.durability == Durability.Log,
      shard => store.cursors.get(shard).orElse(feedOptions.python.startCursor.map(Cursor.jsonOf))
    )
    store match {
      case log: LogStore if acknowledgedWhen.nonEmpty => log.onDurable(feed.acknowledge)
      case memory: MemoryStore if acknowledgedWhen.nonEmpty => memory.onCommitted(feed.acknowledge)
      case _ =>
    }
    feed
  }

  private def describe(
      schema: Option[StructType],
      allOptions: Map[String, String],
      ask: ObjectNode => CompletableFuture[JsonNode]
  ): LoadedSource = {
    val (source, original) = sourceIn(allOptions)
    val (ours, authors) = SourceOptions.split(original, Names)
    val options = new SourceOptions(PythonProvider.shown(source), ours, Names)
    val request = Json.mapper
      .createObjectNode()
      .put("source", source)
      .put("onBadRow", options.get[String]("onBadRow")) // may add a column
    val optionValues = request.putObject("options")
    authors.foreach { case (name, value) => optionValues.put(name, value) }
    schema.foreach(userSchema => request.put("schema", userSchema.json))
    val response =
      Uninterruptibly
        .get(ask(request), LoadTimeout.fromNow)
        .getOrElse(
          throw new BridgeException(
            s"Source '${PythonProvider.shown(source)}' did not report its schema within ${LoadTimeout.toSeconds} s. A source must not connect or " +
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
      else Right(feedOptions(name, options, isResumable, response.path("ack").asBoolean)),
      isResumable,
      response.path("ack").asBoolean,
      response.path("hasAfter").asBoolean,
      response.path("literalSecrets").elements.asScala.map(_.asText).toSeq,
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

  private def feedOptions(
      name: String,
      options: SourceOptions,
      isResumable: Boolean,
      hasAck: Boolean
  ): FeedOptions = {
    PartitionedOptions.rejectForFeeds(options)
    val python = PythonOptions.read(options)
    for (cursor <- python.startCursor if !isResumable)
      throw new InvalidOptionException(
        s"Option 'startCursor' of source '$name' is '$cursor', and the source is not resumable: its " +
          "read takes no parameter 'since'."
      )
    val buffered = BufferedOptions.read(options, Durability.Log)
    if (python.ackOn == "commit") {
      if (buffered.durability == Durability.Log)
        throw new InvalidOptionException(
          s"Option 'ackOn' of source '$name' is 'commit', and 'durability' is 'log': rows that are in the log and not " +
            "acknowledged would come again after a restart. Set durability to memory, or leave ackOn out."
        )
      if (!hasAck)
        throw new InvalidOptionException(
          s"Option 'ackOn' of source '$name' is 'commit', and the source has no method 'ack'. Define it, or leave " +
            "ackOn out."
        )
    }
    FeedOptions(buffered, python)
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
    SourceOptions.OptionType(
      "the name of a source that was defined in the driver's Python, or a reference to one"
    )(text => Some(text).filter(_.nonEmpty))

  /** How messages call a source before Python has named it: without what may be secret in a reference. */
  def shown(source: String): String = {
    val address = source.takeWhile(_ != '?')
    val scheme = address.indexOf("://")
    if (scheme >= 0) address.take(scheme) else address.takeWhile(_ != '@')
  }

  private val LoadTimeout = 60.seconds

  /** The thread of a query carries the query's id; its name, if any, is with the session that started it. */
  private def queryOfThisThread(spark: SparkSession): Option[(String, Option[String])] =
    Option(spark.sparkContext.getLocalProperty(PlannedRows.QueryIdProperty)).map { id =>
      id -> Try(Option(spark.streams.get(UUID.fromString(id))).flatMap(q => Option(q.name))).toOption.flatten
    }
}
