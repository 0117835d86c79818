package headwater.bugs

import java.io.File
import java.util.UUID

import scala.collection.mutable

import headwater.testing.{NoThreadLeft, Script, ScriptProvider}
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.apache.spark.sql.streaming.{StreamTest, StreamingQuery, StreamingQueryException}

/** Mistakes that the contract of a V1 source lends itself to, in queries, beside the same query without the mistake. */
class SpotTheBugSuite extends StreamTest {
  import testImplicits._

  override protected def afterEach(): Unit =
    try assert(NoThreadLeft.ours.filter(_.getName.startsWith("headwater-feed-")).isEmpty)
    finally super.afterEach()

  private val allRows = (1L to 20L).toSeq

  test("a loss that is told when a batch is planned keeps a query from its next start, though none is lost") {
    withTempDir { checkpoint =>
      val reading = new Reading(new EagerLoss(_), checkpoint)
      reading.run(1L, 2L, 3L)
      Seq("at first", "and ever again").foreach { _ =>
        val error = intercept[StreamingQueryException](reading.start().awaitTermination(60000))
        assert(error.getMessage.contains("the rows from 0 to below 3 are lost"))
      }
      assert(reading.rows == Seq(1L, 2L, 3L), "all had arrived before the first stop")
    }
    onHeadwater() { (script, reading) =>
      Seq(Seq(1L, 2L, 3L), Seq(4L)).foreach { rows =>
        reading.whileRunning { query =>
          script.add(rows: _*)
          query.processAllAvailable()
        }
      }
      assert(reading.rows == Seq(1L, 2L, 3L, 4L))
    }
  }

  test("a cap that counts taken rows stops a stream for ever once a batch has taken all of it") {
    withTempDir { checkpoint =>
      val reading = new Reading(filled(new CapOnHeld(_, cap = 3)), checkpoint)
      reading.whileRunning { query =>
        withFeed(reading.source, allRows.drop(3)) { feed =>
          reading.awaitRows(allRows.take(3))
          Script.await("the feed goes on")(feed.getState == Thread.State.WAITING)
          awaitPolls(reading.source)
          assert(feed.getState == Thread.State.WAITING && query.isActive && reading.batches == 1)
        }
      }
    }
    withTempDir { checkpoint =>
      val reading = new Reading(filled(new CapOnWaiting(_, cap = 3)), checkpoint)
      reading.whileRunning(_ => withFeed(reading.source, allRows.drop(3))(_ => reading.awaitRows(allRows)))
    }
    onHeadwater("bufferRows" -> "3") { (script, reading) =>
      reading.whileRunning { _ =>
        script.add(allRows: _*)
        reading.awaitRows(allRows)
      }
    }
  }

  test("a cast of offsets works until the first restart") {
    withTempDir { checkpoint =>
      val reading = new Reading(new CastOffset(_), checkpoint)
      reading.run(1L, 2L)
      val error = intercept[StreamingQueryException](reading.start().awaitTermination(60000))
      assert(rootCause(error).isInstanceOf[ClassCastException])
    }
    withTempDir { checkpoint =>
      val reading = new Reading(new HandWritten(_), checkpoint)
      reading.run(1L, 2L)
      reading.run(3L)
      assert(reading.rows == Seq(1L, 2L, 3L))
    }
  }

  test("an offset of the other class makes a batch that is empty, and the next one fails") {
    withTempDir { checkpoint =>
      val reading = new Reading(new OtherOffset(_), checkpoint)
      reading.whileRunning { query =>
        reading.source.append(1L)
        Script.await(s"no batch: ${query.status}")(reading.batches > 0)
        reading.source.append(2L)
        val error = intercept[StreamingQueryException](query.awaitTermination(60000))
        assert(error.getMessage.contains("Unknown source is found at constructNextBatch"))
        assert(reading.rows.isEmpty, "row 1 counts as read")
      }
    }
    withTempDir { checkpoint =>
      val reading = new Reading(new OwnOffset(_), checkpoint)
      reading.run(1L, 2L)
      assert(reading.rows == Seq(1L, 2L))
    }
  }

  /** Queries on one checkpoint, one after the other, and all that they gave. */
  private final class Reading(stream: DataFrame, name: String, checkpoint: File) {
    private[this] val seen = mutable.Buffer.empty[Seq[Long]]

    def this(make: SparkSession => HandWritten, checkpoint: File) =
      this(handWritten(make, checkpoint.getName), checkpoint.getName, checkpoint)

    /** Of the query that was started last. */
    def source: HandWritten = {
      Script.await("no source was made")(HandWrittenProvider.newest.containsKey(name))
      HandWrittenProvider.newest.get(name)
    }

    def rows: Seq[Long] = seen.synchronized(seen.flatten.toSeq)
    def batches: Int = seen.synchronized(seen.length)

    def start(): StreamingQuery = {
      HandWrittenProvider.newest.remove(name)
      stream.writeStream
        .option("checkpointLocation", checkpoint.getCanonicalPath)
        .foreachBatch { (frame: DataFrame, _: Long) =>
          val batch = frame.as[Long].collect().toSeq
          seen.synchronized(seen += batch)
          ()
        }
        .start()
    }

    def whileRunning(body: StreamingQuery => Unit): Unit = {
      val query = start()
      try body(query)
      finally query.stop()
    }

    /** A query that is given these rows, takes them, and is stopped. */
    def run(rows: Long*): Unit = whileRunning { query =>
      rows.foreach(source.append)
      query.processAllAvailable()
    }

    def awaitRows(expected: Seq[Long]): Unit = {
      Script.await(s"only $rows came")(rows.length >= expected.length)
      assert(rows == expected)
    }
  }

  private def handWritten(make: SparkSession => HandWritten, name: String): DataFrame = {
    HandWrittenProvider.makers.put(name, make)
    spark.readStream.format(classOf[HandWrittenProvider].getName).option("source", name).load()
  }

  private def onHeadwater(options: (String, String)*)(body: (Script, Reading) => Unit): Unit =
    withTempDir { checkpoint =>
      val script = Script("s" + UUID.randomUUID().toString.replace("-", ""))
      val provider = classOf[ScriptProvider].getName
      val stream =
        spark.readStream.format(provider).option("source", script.name).options(options.toMap).load()
      body(script, new Reading(stream, script.name, checkpoint))
    }

  /** With three rows before Spark asks, so that the first batch takes them all. */
  private def filled(make: SparkSession => HandWritten)(session: SparkSession): HandWritten = {
    val source = make(session)
    allRows.take(3).foreach(source.append)
    source
  }

  /** A feed that appends rows, in a thread of its own, while `body` runs. */
  private def withFeed(source: HandWritten, rows: Seq[Long])(body: Thread => Unit): Unit = {
    val append: Runnable = () =>
      try rows.foreach(source.append)
      catch { case _: InterruptedException => () }
    val feed = new Thread(append, "headwater-feed-by-hand")
    feed.start()
    try body(feed)
    finally {
      feed.interrupt()
      feed.join()
    }
  }

  private def awaitPolls(source: HandWritten): Unit = {
    val before = source.polls.get
    Script.await("Spark does not ask")(source.polls.get > before + 50)
  }

  private def rootCause(error: Throwable): Throwable =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).toSeq.last
}
