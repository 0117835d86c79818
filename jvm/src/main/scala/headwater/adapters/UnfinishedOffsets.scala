package headwater.adapters

import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path
import org.apache.spark.internal.Logging
import org.apache.spark.sql.{classic, SparkSession}

/** What Spark leaves of `offsets/0` when a query is stopped while Spark creates that file: a temporary file, for which it
  * refuses to start from this checkpoint again.
  */
private[adapters] object UnfinishedOffsets extends Logging {

  /** Deletes it, unless there is an offset.
    *
    * @param sourceFolder
    *   the folder of a source in the checkpoint, `sources/0` for example
    */
  def delete(spark: SparkSession, sourceFolder: String): Unit =
    try {
      val offsets = new Path(new Path(sourceFolder).getParent.getParent, "offsets")
      val hadoopConf = spark.asInstanceOf[classic.SparkSession].sessionState.newHadoopConf()
      val fileSystem = offsets.getFileSystem(hadoopConf)
      val files = if (fileSystem.exists(offsets)) fileSystem.listStatus(offsets).toSeq.map(_.getPath) else Nil
      if (files.forall(file => Temporary.matches(file.getName))) files.foreach(fileSystem.delete(_, false))
    } catch {
      case NonFatal(e) =>
        logWarning(s"temporary files of the checkpoint of $sourceFolder could not be deleted", e)
    }

  private val Temporary = """\.0\.[0-9a-f-]{36}\.tmp""".r
}
