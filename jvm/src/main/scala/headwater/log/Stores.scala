package headwater.log

import java.net.URI
import java.nio.file.{Path, Paths}

import headwater.buffer.{Buffer, MemoryStore}
import headwater.core.{ArrowSchema, BufferedOptions, Durability, SeqOffset, Store}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{Path => HadoopPath}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.{classic, SparkSession}
import org.apache.spark.sql.types.StructType

/** Chooses the store of a source by its options and its folder in the checkpoint. */
private[headwater] object Stores extends Logging {

  /** @param folder
    *   of this source in the checkpoint
    * @param settings
    *   for a log
    */
  def opener(
      spark: SparkSession,
      folder: String,
      options: BufferedOptions,
      newRun: () => String,
      settings: => LogStore.Settings,
      nanoTime: () => Long = () => System.nanoTime()
  )(known: Option[SeqOffset]): Store = {
    if (options.durability == Durability.Memory || isTemporary(folder) && !spark.sparkContext.isLocal) {
      if (options.durability == Durability.Log)
        logWarning(
          "there is no checkpointLocation, so rows wait in memory: executors do not see the driver's temporary folder"
        )
      if (exists(spark, folder))
        Recovery.checkBeforeMemory(files(spark, folder), known, options.failOnDataLoss)
      val first = known.fold(0L)(_.seq + 1)
      new MemoryStore(newRun(), new Buffer(options.bufferRows, options.bufferBytes, first, nanoTime))
    } else {
      if (isTemporary(folder))
        logInfo(
          "there is no checkpointLocation: rows are logged to a temporary folder, and a restart begins anew"
        )
      LogStore.open(files(spark, folder), settings, known, newRun(), nanoTime)
    }
  }

  /** For sources that can resume. */
  def warnIfTemporary(name: String, folder: String): Unit =
    if (isTemporary(folder))
      logWarning(
        s"source '$name' can resume, but this query will not: it has no checkpointLocation, so the next start begins " +
          "anew. Set .option(\"checkpointLocation\", …) on writeStream."
      )

  /** The folder of a source, local or on Hadoop. */
  def files(spark: SparkSession, folder: String): LogFiles = {
    val path = new HadoopPath(folder)
    if (isLocal(path)) new LocalFiles(localPath(path.toUri), durable = !isTemporary(folder))
    else new HadoopFiles(path, hadoopConf(spark))
  }

  /** The settings of a log. The defaults fit most sources: one feed, not resumable. */
  def logSettings(
      spark: SparkSession,
      options: BufferedOptions,
      source: String,
      schema: StructType,
      arrowSchema: Array[Byte],
      shards: Int = 1,
      isResumable: Boolean = false,
      identity: Map[String, String] = Map.empty
  ): LogStore.Settings = LogStore.Settings(
    source,
    schema.json,
    new ArrowSchema(arrowSchema),
    shards,
    isResumable,
    identity,
    options.logBytes,
    SegmentLog.Settings(
      Codec.named(options.logCompression),
      options.logRetainBatches.getOrElse(
        spark.conf.get("spark.sql.streaming.minBatchesToRetain", "100").toInt
      ),
      options.logRetainBytes
    ),
    options.failOnDataLoss
  )

  private def exists(spark: SparkSession, folder: String): Boolean = {
    val path = new HadoopPath(folder)
    path.getFileSystem(hadoopConf(spark)).exists(path)
  }

  private def hadoopConf(spark: SparkSession): Configuration =
    spark.asInstanceOf[classic.SparkSession].sessionState.newHadoopConf()

  private def isLocal(path: HadoopPath): Boolean = Option(path.toUri.getScheme).forall(_ == "file")

  /** Spark has made the checkpoint itself, for one run of the query. */
  def isTemporary(folder: String): Boolean =
    isLocal(new HadoopPath(folder)) && Temporary.findFirstIn(folder).nonEmpty

  private def localPath(uri: URI): Path =
    if (uri.getScheme == null) Paths.get(uri.getPath) else Paths.get(uri)

  /** The checkpoint that Spark creates for a query without checkpointLocation. */
  private val Temporary = """/temporary-[0-9a-f]{8}-[0-9a-f-]+/sources/""".r
}
