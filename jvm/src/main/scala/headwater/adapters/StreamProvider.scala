package headwater.adapters

import java.security.SecureRandom

import org.apache.spark.sql.SQLContext
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.sources.{BaseRelation, DataSourceRegister, RelationProvider, StreamSourceProvider}

/** A format that can only be read as a stream. It implements `RelationProvider` so that `spark.read` fails with a
  * helpful message.
  */
trait StreamProvider extends StreamSourceProvider with RelationProvider with DataSourceRegister {

  /** Called by `spark.read`. */
  override def createRelation(sqlContext: SQLContext, parameters: Map[String, String]): BaseRelation =
    throw new UnsupportedOperationException(
      s"Source '${shortName()}' is a stream: use spark.readStream.format(\"${shortName()}\") in place of " +
        s"spark.read.format(\"${shortName()}\")."
    )

  /** The options with names as the user wrote them: Spark passes lower-case names beside the original ones. */
  protected def original(parameters: Map[String, String]): Map[String, String] = parameters match {
    case insensitive: CaseInsensitiveMap[String @unchecked] => insensitive.originalMap
    case other => other
  }

  /** Identifies a run. */
  protected def newRun(): String = f"${new SecureRandom().nextLong()}%016x"
}
