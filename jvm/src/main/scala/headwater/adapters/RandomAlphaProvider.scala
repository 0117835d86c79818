package headwater.adapters

import java.security.SecureRandom

import headwater.InvalidOptionException
import headwater.alpha.RandomAlpha
import headwater.core.{BufferedOptions, Durability, FeedDefinition, OptionTable, SourceOptions}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.types.{StringType, StructType, TimestampType}

/** The provider of `spark.readStream.format("random_alpha")`. Spark finds it through the services file, by
  * [[shortName]].
  */
final class RandomAlphaProvider extends StreamProvider {
  import RandomAlphaProvider._

  override def shortName(): String = Name

  private[headwater] override def load(
      spark: SparkSession,
      schema: Option[StructType],
      options: Map[String, String],
      cached: Boolean
  ): LoadedStream = {
    schema.foreach { userSchema =>
      throw new InvalidOptionException(
        s"Source '$Name' has a fixed schema, ${Schema.toDDL}, and accepts no other. Remove .schema(\"${userSchema.toDDL}\")."
      )
    }
    val Options(length, rowsPerSecond, seed, buffered) = Options.read(options)
    LoadedFeed(
      FeedDefinition(
        Name,
        s"$Name[len=$length, rowsPerSecond=$rowsPerSecond]",
        Schema,
        ArrowSchema,
        buffered,
        store =>
          new RandomAlpha(length, rowsPerSecond, seed.getOrElse(new SecureRandom().nextLong()), store.next)
      )
    )
  }
}

private object RandomAlphaProvider {
  val Name = "random_alpha"

  /** Nullable, as in the original source: schemas and checkpoints of users were made from that. */
  val Schema: StructType = new StructType().add("timestamp", TimestampType).add("value", StringType)

  /** Made when the class is loaded, at `load()`: an interrupt of the query's thread makes Arrow fail. */
  private val ArrowSchema = RandomAlpha.arrowSchema.serializeAsMessage()

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
