package headwater.adapters

import java.util.{Collections, Set => JSet, WeakHashMap}
import javax.annotation.concurrent.GuardedBy

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.SparkSession

/** The sources of each run of a query, so that they can be stopped side by side. */
private[adapters] object QuerySources {
  type AnySource = StreamAdapter[_]

  @GuardedBy("this") private[this] val sources = mutable.Map.empty[String, JSet[AnySource]]

  /** Called in the query's thread, which carries the id of the run. */
  def add(source: AnySource): Unit = run.foreach { run =>
    synchronized {
      // Weakly: Spark does not stop a source if another one of the query could not be created.
      sources.getOrElseUpdate(run, Collections.newSetFromMap(new WeakHashMap)).add(source)
    }
  }

  /** The other sources of a run; none when it is called again. */
  def takeOthers(source: AnySource): Seq[AnySource] = synchronized {
    sources.filterInPlace((_, ofRun) => !ofRun.isEmpty)
    val run = sources.collectFirst { case (run, ofRun) if ofRun.contains(source) => run }
    run.toSeq.flatMap(sources.remove(_).toSeq.flatMap(_.asScala.filter(_ ne source)))
  }

  private def run: Option[String] =
    SparkSession.getActiveSession.flatMap(spark =>
      Option(spark.sparkContext.getLocalProperty("spark.jobGroup.id"))
    )
}
