package headwater.adapters

import java.security.SecureRandom

import headwater.InvalidOptionException
import headwater.alpha.RandomAlpha
import headwater.buffer.BufferedStream
import headwater.core.{BufferedOptions, Durability, OptionTable, SourceOptions}
import headwater.log.Stores
import org.apache.spark.sql.SQLContext
import org.apache.spark.sql.execution.streaming.Source
import org.apache.spark.sql.headwater.StreamingFrames
import org.apache.spark.sql.types.{StringType, StructType, TimestampType}

/** The provider of `spark.readStream.format("random_alpha")`. Spark finds it through the services file, by
  * [[shortName]], and creates a new instance whenever it needs one, so it has no state.
  *
  * Options are parsed in [[sourceSchema]], which `load()` calls. An error in [[createSource]] would surface only
  * after `start()` has returned.
  */
final class RandomAlphaProvider extends StreamProvider {
  import RandomAlphaProvider._

  override def shortName(): String = Name

  override def sourceSchema(
      sqlContext: SQLContext,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): (String, StructType) = {
    schema.foreach { userSchema =>
      throw new InvalidOptionException(
        s"Source '$Name' has a fixed schema, ${Schema.toDDL}, and accepts no other. Remove .schema(\"${userSchema.toDDL}\")."
      )
    }
    Options.read(original(parameters))
    (Name, Schema)
  }

  override def createSource(
      sqlContext: SQLContext,
      metadataPath: String,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): Source = {
    val options = Options.read(original(parameters))
    val seed = options.seed.getOrElse(new SecureRandom().nextLong())
    val spark = sqlContext.sparkSession
    val arrowSchema = RandomAlpha.arrowSchema.serializeAsMessage()
    def log = Stores.logSettings(spark, options.buffered, Name, Schema, arrowSchema)
    val description = s"$Name[len=${options.length}, rowsPerSecond=${options.rowsPerSecond}]"
    val frames = new StreamingFrames(spark, description, Schema, arrowSchema, options.buffered.failOnDataLoss)
    val stream = new BufferedStream(
      Name,
      description,
      options.buffered,
      Stores.opener(spark, metadataPath, options.buffered, newRun _, log),
      store => new RandomAlpha(options.length, options.rowsPerSecond, seed, store.next),
      () => frames.rowsLost
    )
    new V1Source(stream, Schema, options.buffered.limits, frames.of)
  }
}

private object RandomAlphaProvider {
  val Name = "random_alpha"

  /** Nullable, as in the original source: schemas and checkpoints of users were made from that. */
  val Schema: StructType = new StructType().add("timestamp", TimestampType).add("value", StringType)

  final case class Options(length: Int, rowsPerSecond: Long, seed: Option[Long], buffered: BufferedOptions)

  object Options {
    private val names = Seq("len", "rowsPerSecond", "seed") ++ OptionTable.feed

    def read(original: Map[String, String]): Options = {
      import SourceOptions._
      val options = new SourceOptions(Name, original, names)
      Options(
        options.required("len")(integer(1, 65536)).toInt,
        options.optional("rowsPerSecond")(integer(0, 1000000000)).getOrElse(500L),
        options.optional("seed")(anyLong),
        BufferedOptions.read(options, Durability.Memory)
      )
    }
  }
}
