import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.streaming.StreamingQueryListener
import org.apache.spark.sql.streaming.StreamingQueryListener._

/** Reads random words and shows them in the console, or writes them as JSON to a folder.
  *
  * {{{
  * spark-submit --jars $(headwater jar) --class RandomAlphaApp headwater-examples-0.1.0.jar 5 1000 60 [folder]
  * }}}
  *
  * reads words of 5 letters, until there are 1000 rows or 60 seconds are over. Headwater is not imported: with the jar
  * there, Spark knows the format `random_alpha`. When the query fails, so does the application.
  */
object RandomAlphaApp {

  def main(args: Array[String]): Unit = args match {
    case Array(len, rows, seconds) => run(len, rows.toLong, seconds.toLong, None)
    case Array(len, rows, seconds, folder) => run(len, rows.toLong, seconds.toLong, Some(folder))
    case _ => sys.error("usage: RandomAlphaApp <len> <rows> <seconds> [<folder>]")
  }

  private def run(len: String, rows: Long, seconds: Long, folder: Option[String]): Unit = {
    val spark = SparkSession.builder().appName("random_alpha").getOrCreate()
    val counter = new RowCounter
    spark.streams.addListener(counter)

    val words = spark.readStream.format("random_alpha").option("len", len).load()

    val writer = folder match {
      case None => words.writeStream.format("console").option("truncate", false)
      case Some(path) =>
        words.writeStream
          .format("json")
          .option("path", s"$path/rows")
          .option("checkpointLocation", s"$path/checkpoint")
    }
    val query = writer.start()

    val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds)
    // awaitTermination is true once the query has ended, and throws if it failed.
    while (counter.rows < rows && System.nanoTime() < deadline && !query.awaitTermination(100)) {}
    query.stop()
    query.exception.foreach(throw _)
    println(s"${counter.rows} rows in ${counter.batches} batches")
    spark.stop()
  }
}

/** Adds up what the progress reports say: Spark sends one after each batch, and now and then one while idle, of 0 rows. */
private final class RowCounter extends StreamingQueryListener {
  private[this] val rowsSeen = new AtomicLong
  private[this] val batchesSeen = new AtomicLong

  def rows: Long = rowsSeen.get
  def batches: Long = batchesSeen.get

  override def onQueryProgress(event: QueryProgressEvent): Unit =
    if (event.progress.numInputRows > 0) {
      batchesSeen.incrementAndGet()
      rowsSeen.addAndGet(event.progress.numInputRows)
    }

  override def onQueryStarted(event: QueryStartedEvent): Unit = ()
  override def onQueryTerminated(event: QueryTerminatedEvent): Unit = ()
}
