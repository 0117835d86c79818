package headwater.adapters

import java.security.SecureRandom

import org.apache.spark.sql.SQLContext
import org.apache.spark.sql.sources.{BaseRelation, DataSourceRegister, RelationProvider, StreamSourceProvider}

/** A format that can be read as a stream only. Without the relation, `spark.read` would fail with a message about a class
  * that lacks a trait.
  */
trait StreamProvider extends StreamSourceProvider with RelationProvider with DataSourceRegister {

  /** `spark.read` ends up here. */
  override def createRelation(sqlContext: SQLContext, parameters: Map[String, String]): BaseRelation =
    throw new UnsupportedOperationException(
      s"Source '${shortName()}' is a stream: use spark.readStream.format(\"${shortName()}\") in place of " +
        s"spark.read.format(\"${shortName()}\")."
    )

  /** Names the life of a feed. */
  protected def newRun(): String = f"${new SecureRandom().nextLong()}%016x"
}
