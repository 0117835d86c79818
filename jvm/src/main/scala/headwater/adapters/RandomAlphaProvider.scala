package headwater.adapters

import java.security.SecureRandom

import headwater.InvalidOptionException
import headwater.alpha.RandomAlpha
import headwater.core.{BufferedOptions, Durability, SourceOptions}
import headwater.log.Stores
import org.apache.spark.sql.SQLContext
import org.apache.spark.sql.execution.streaming.Source
import org.apache.spark.sql.types.{StringType, StructType, TimestampType}

/** What Spark loads for `spark.readStream.format("random_alpha")`. It finds this class through the services file beside
  * it, by [[shortName]]. Spark makes a new provider whenever it likes, so nothing is kept here.
  *
  * Options are read in [[sourceSchema]], which `load()` calls: an error in [[createSource]] would show only after
  * `start()` has returned.
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
    schema.foreach { written =>
      throw new InvalidOptionException(
        s"Source '$Name' has a schema of its own, ${Schema.toDDL}, and takes no other. Remove .schema(\"${written.toDDL}\")."
      )
    }
    Options.read(parameters)
    (Name, Schema)
  }

  override def createSource(
      sqlContext: SQLContext,
      metadataPath: String,
      schema: Option[StructType],
      providerName: String,
      parameters: Map[String, String]
  ): Source = {
    val options = Options.read(parameters)
    val seed = options.seed.getOrElse(new SecureRandom().nextLong())
    val spark = sqlContext.sparkSession
    val arrowSchema = RandomAlpha.arrowSchema.serializeAsMessage()
    def log = Stores.logSettings(spark, options.buffered, Name, Schema, arrowSchema)
    new BufferedSource(
      spark,
      Name,
      Schema,
      arrowSchema,
      options.buffered,
      Stores.opener(spark, metadataPath, options.buffered, newRun _, log),
      store => new RandomAlpha(options.length, options.rowsPerSecond, seed, store.next),
      description = s"$Name[len=${options.length}, rowsPerSecond=${options.rowsPerSecond}]"
    )
  }
}

private object RandomAlphaProvider {
  val Name = "random_alpha"

  /** Nullable, as the original's: users' own schemas and checkpoints were made from that. */
  val Schema: StructType = new StructType().add("timestamp", TimestampType).add("value", StringType)

  final case class Options(length: Int, rowsPerSecond: Long, seed: Option[Long], buffered: BufferedOptions)

  object Options {
    private val names = Seq("len", "rowsPerSecond", "seed") ++ BufferedOptions.names

    def read(parameters: Map[String, String]): Options = {
      import SourceOptions._
      val options = new SourceOptions(Name, written(parameters), names)
      Options(
        options.required("len")(wholeNumber(1, 65536)).toInt,
        options.optional("rowsPerSecond")(wholeNumber(0, 1000000000)).getOrElse(500L),
        options.optional("seed")(anyLong),
        BufferedOptions.read(options, Durability.Memory)
      )
    }
  }
}
