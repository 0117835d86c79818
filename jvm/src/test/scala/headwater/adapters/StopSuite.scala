package headwater.adapters

import java.io.File
import java.nio.file.Files
import java.util.UUID
import java.util.concurrent.{CountDownLatch, Executors, TimeUnit}

import scala.concurrent.{Await, ExecutionContext, Future}
import scala.concurrent.duration._

import headwater.DataLossException
import headwater.buffer.StoredBatch
import headwater.core._
import headwater.task.{BatchTasks, PlannedRows}
import headwater.testing.{Script, ScriptProvider}
import org.apache.spark.SparkException
import org.apache.spark.sql.headwater.{BatchRows, StreamingFrames}
import org.apache.spark.sql.streaming.StreamTest

/** What a stop leaves: no file that Spark refuses, no loss that is none, and no source that waits for another. */
class StopSuite extends StreamTest {

  // Runs the frame of a batch.
  override protected def sparkConf =
    super.sparkConf.set("spark.sql.streaming.unsupportedOperationCheck", "false")

  private def withOffsets(names: String*)(body: File => Unit): Unit = withTempDir { checkpoint =>
    val offsets = new File(checkpoint, "offsets")
    offsets.mkdir()
    names.foreach(name => Files.createFile(new File(offsets, name).toPath))
    UnfinishedOffsets.delete(spark, new File(checkpoint, "sources/0").toURI.toString)
    body(offsets)
  }

  test("a temporary file of the first offset is deleted, and everything else is left alone") {
    val temporary = s".0.${UUID.randomUUID()}.tmp"
    withOffsets(temporary, s".$temporary.crc")(offsets => assert(offsets.list().isEmpty))
    withOffsets(temporary, "0")(offsets => assert(offsets.list().toSet == Set(temporary, "0")))
    withOffsets("notes.txt")(offsets => assert(offsets.list().toSeq == Seq("notes.txt")))
    withTempDir(folder => UnfinishedOffsets.delete(spark, new File(folder, "sources/0").toURI.toString))
  }

  /** Runs a batch whose segment was deleted, and returns its error. */
  private def runWithoutFile(whileItRuns: => Unit): Throwable = {
    val rows = StoredRows("file:/nowhere/00000001-000000000000.segment", 0, 100, 3, 100)
    val tasks = new BatchTasks(spark, failOnDataLoss = true)
    val frames =
      new StreamingFrames(spark, "gone", Script.schema, Script.arrowSchema.serializeAsMessage(), tasks)
    val id = PlannedRows.put(Vector(Slice.whole(rows)))
    val executor = Executors.newSingleThreadExecutor()
    try {
      val run = Future {
        spark.sparkContext.setJobGroup("stopped", "a stopped batch", interruptOnCancel = true)
        BatchRows.longs(frames.of(StoredBatch(id, "0123456789abcdef", needsHadoop = false, () => ())))
      }(ExecutionContext.fromExecutor(executor))
      whileItRuns
      intercept[SparkException](Await.result(run, 60.seconds))
    } finally {
      PlannedRows.drop(id)
      executor.shutdown()
      assert(executor.awaitTermination(60, TimeUnit.SECONDS))
    }
  }

  test("a task whose file is gone has lost data, unless its batch was cancelled") {
    val loss = runWithoutFile(())
    assert(loss.getCause.isInstanceOf[DataLossException], loss)
    assert(loss.getCause.getMessage.contains("00000001-000000000000.segment is not there"))
    val cancelled = runWithoutFile {
      val tracker = spark.sparkContext.statusTracker
      Script.await("no task runs")(tracker.getActiveStageIds().nonEmpty)
      spark.sparkContext.cancelJobGroup("stopped")
    }
    assert(cancelled.getMessage.contains("cancelled") && cancelled.getCause == null, cancelled)
  }

  test("the sources of a query are stopped side by side") {
    val names = (1 to 3).map(_ => "s" + UUID.randomUUID().toString.replace("-", ""))
    val closing = new CountDownLatch(names.size)
    names.foreach(name =>
      Script(name).onClose = () => {
        closing.countDown()
        assert(closing.await(60, TimeUnit.SECONDS), "the others are not stopped")
      }
    )
    val frames = names.map(name =>
      spark.readStream.format(classOf[ScriptProvider].getName).option("source", name).load()
    )
    val query = frames.reduce(_ union _).writeStream.format("noop").start()
    names.foreach(name => Script(name).add(1))
    query.stop()
    assert(closing.getCount == 0 && query.exception.isEmpty)
  }
}
