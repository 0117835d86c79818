package headwater.compared

import java.io.File
import java.nio.file.Files

import scala.collection.mutable

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.streaming.{StreamTest, Trigger}

/** One counter against both of Spark's interfaces: what a user sees is the same. */
class CounterSuite extends StreamTest {
  import testImplicits._

  Seq(classOf[CounterSourceProvider], classOf[CounterStreamProvider]).foreach { provider =>
    test(s"${provider.getSimpleName}: a batch has all numbers there are, and a restart goes on behind them") {
      withTempDir { checkpoint =>
        assert(run(provider, checkpoint, upTo = 5) == Seq(0 -> Seq(0, 1, 2, 3, 4)))
        assert(run(provider, checkpoint, upTo = 8) == Seq(1 -> Seq(5, 6, 7)))
        assert(run(provider, checkpoint, upTo = 8).isEmpty)
        assert(Seq(0, 1).map(offset(checkpoint, _)) == Seq("5", "8"))
      }
    }
  }

  private def run(provider: Class[_], checkpoint: File, upTo: Long): Seq[(Long, Seq[Long])] = {
    val seen = mutable.Buffer.empty[(Long, Seq[Long])]
    val query = spark.readStream
      .format(provider.getName)
      .option("upTo", upTo)
      .load()
      .writeStream
      .option("checkpointLocation", checkpoint.getCanonicalPath)
      .trigger(Trigger.AvailableNow())
      .foreachBatch { (frame: DataFrame, id: Long) => seen += id -> frame.as[Long].collect().toSeq; () }
      .start()
    assert(query.awaitTermination(60000), query.status)
    seen.toSeq
  }

  private def offset(checkpoint: File, batch: Int): String =
    Files.readAllLines(checkpoint.toPath.resolve(s"offsets/$batch")).get(2)
}
