package headwater.adapters

import java.util.Base64

import scala.util.Using

import com.fasterxml.jackson.databind.JsonNode
import headwater.bridge.Bridge
import headwater.core.Json
import headwater.testing.{ArrowBytes, NoThreadLeft, Script, ScriptedPython, TestConnection}
import headwater.{BridgeException, InvalidOptionException}
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.streaming.{StreamTest, StreamingQuery, StreamingQueryException, Trigger}
import org.apache.spark.sql.types.{IntegerType, StructType}

/** A source in Python as a user of Spark meets it. Python does what the test says. */
class PythonProviderSuite extends StreamTest {

  private def load(options: (String, String)*): DataFrame =
    spark.readStream.format("headwater").options(options.toMap).load()

  private def withPython(body: ScriptedPython => Unit): Unit = {
    Bridge.open(unix = true)
    TestConnection
      .to(Bridge.current.server)
      .close() // from here on the threads of the application's one bridge are there
    Script.await("no timer")(NoThreadLeft.ours.exists(_.getName == "headwater-bridge-timer"))
    val before = NoThreadLeft.ours
    Using.resource(new ScriptedPython(Bridge.current.server)) { python =>
      python.onLoad = describe(python, _)
      body(python)
    }
    Script.await("its end was not seen")(!Bridge.isConnected)
    assert(NoThreadLeft.leftAfter(before).isEmpty)
  }

  private def refused(): String = intercept[BridgeException](load("source" -> "letters")).getMessage

  private def describe(python: ScriptedPython, question: JsonNode): Unit = {
    val answer = Json.mapper.createObjectNode()
    answer
      .put("name", "numbers")
      .put("schema", Script.schema.json)
      .put("arrowSchema", Base64.getEncoder.encodeToString(Script.arrowSchema.serializeAsMessage()))
      .put("description", "numbers(of='me')")
    python.answer(question, answer.toString)
  }

  /** What a feed does once it is open. */
  private def onFeed(python: ScriptedPython)(send: TestConnection => Unit): Unit =
    python.onOpen = { question =>
      val feed = python.connect(question.path("feed").asText)
      python.answer(question, "{}")
      feed.send(ArrowBytes.schema)
      send(feed)
    }

  private def start(frame: DataFrame, trigger: Trigger, name: String): StreamingQuery =
    frame.writeStream.format("memory").queryName(name).trigger(trigger).start()

  private def runNow(frame: DataFrame): Seq[Long] = {
    val table = s"t${System.nanoTime()}"
    val query = start(frame, Trigger.AvailableNow(), table)
    assert(query.awaitTermination(60000), query.status)
    spark.table(table).collect().map(_.getLong(0)).toSeq
  }

  test("without a Python, load says what to do, whether the bridge is open or not") {
    assert(refused().contains("No Python process is attached"))
    assert(refused().contains("call hw.attach(spark) there"))
    Bridge.open(unix = true)
    assert(!Bridge.isConnected)
    assert(refused().contains("call hw.attach(spark) there"))
  }

  test("when Python has gone, load says so; when it has come back, load works") {
    withPython(_ => load("source" -> "numbers"))
    assert(refused() == "The Python process that this source runs in is gone.")
    withPython(_ => load("source" -> "numbers"))
  }

  test("the bridge is opened once, and says where it is and what to say there") {
    val said = Bridge.open(unix = true)
    assert(Bridge.open(unix = false) == said)
    val json = Json.mapper.readTree(said)
    assert(json.path("address").asText == Bridge.current.server.address)
    assert(json.path("secret").asText == Bridge.current.server.secret && json.size == 2)
    assert(Bridge.status() == "{}")
  }

  test("without the option source, load says that it is needed") {
    val error = intercept[InvalidOptionException](load("len" -> "5"))
    assert(error.getMessage.startsWith("Source 'headwater' needs the option 'source': the name of a source"))
  }

  test("load asks Python for the schema, with the author's options as they were written, and no others") {
    withPython { python =>
      val frame =
        load("source" -> "numbers", "baseUrl" -> "a B", "maxRowsPerTrigger" -> "7", "on_error" -> "end")
      assert(frame.schema == Script.schema && frame.isStreaming)
      val question = python.all.head
      assert(question.path("ask").asText == "load" && question.path("source").asText == "numbers")
      assert(question.path("options") == Json.mapper.readTree("""{"baseUrl":"a B"}"""))
      assert(!question.has("schema"))
    }
  }

  test("a schema of the user's goes to Python, which knows what to say of it") {
    withPython { python =>
      python.onLoad = python.refuse(_, """{"kind":"option","message":"has a schema of its own"}""")
      val error = intercept[InvalidOptionException] {
        spark.readStream.format("headwater").option("source", "numbers").schema("a INT").load()
      }
      assert(error.getMessage == "has a schema of its own")
      assert(python.all.head.path("schema").asText == new StructType().add("a", IntegerType).json)
    }
  }

  test("an option of ours that cannot be used is refused, by the source's own name") {
    withPython { _ =>
      Seq("numbers", "numbers@17").foreach { source =>
        val error = intercept[InvalidOptionException](load("source" -> source, "concurrency" -> "0"))
        assert(error.getMessage.startsWith("Option 'concurrency' of source 'numbers' is '0', it must be"))
      }
    }
  }

  test("what Python says of an option is what load throws") {
    withPython { python =>
      python.onLoad =
        python.refuse(_, """{"kind":"option","message":"Source 'numbers' has no option 'x'."}""")
      val error = intercept[InvalidOptionException](load("source" -> "numbers", "x" -> "1"))
      assert(error.getMessage == "Source 'numbers' has no option 'x'.")
    }
  }

  test("rows that Python sends are the query's, and AvailableNow ends when the feed has ended") {
    withPython { python =>
      onFeed(python)(_.send(ArrowBytes.batch(1L to 5L) ++ ArrowBytes.batch(6L to 9L) ++ ArrowBytes.end))
      assert(runNow(load("source" -> "numbers", "availableNowWait" -> "1h")) == (1L to 9L))
      val (opens, stops) =
        (python.asked.filter(_.startsWith("open")), python.asked.filter(_.startsWith("stop")))
      assert(opens.length == 1 && stops == opens.map(_.replace("open", "stop")))
      assert(Bridge.status() == "{}")
    }
  }

  test("AvailableNow ends when all feeds have said that they caught up, and they are stopped") {
    withPython { python =>
      onFeed(python)(_.send(ArrowBytes.batch(Seq(1), "headwater.caught_up" -> "")))
      val rows = runNow(load("source" -> "numbers", "availableNowWait" -> "1h", "concurrency" -> "3"))
      assert(rows == Seq(1, 1, 1))
      assert(python.asked.count(_.startsWith("stop")) == 3)
    }
  }

  test("Python is told what to open: the source, its options and policies, the shard, and whose it is") {
    withPython { python =>
      onFeed(python)(_.send(ArrowBytes.end))
      val table = s"t${System.nanoTime()}"
      val frame =
        load(
          "source" -> "numbers",
          "len" -> "3",
          "concurrency" -> "2",
          "linger" -> "1s",
          "availableNowWait" -> "1h"
        )
      val query = start(frame, Trigger.AvailableNow(), table)
      assert(query.awaitTermination(60000))
      val opened = python.all.filter(_.path("ask").asText == "open").sortBy(_.path("shard").asInt)
      assert(opened.map(_.path("shard").asInt) == Seq(0, 1) && opened.forall(_.path("shards").asInt == 2))
      assert(opened.map(_.path("feed").asText.takeRight(2)) == Seq(".0", ".1"))
      opened.foreach { order =>
        assert(order.path("source").asText == "numbers" && order.path("options").path("len").asText == "3")
        assert(order.path("lingerMs").asInt == 1000 && order.path("batchRows").asInt == 8192)
        assert(order.path("onError").asText == "fail" && order.path("onBadRow").asText == "fail")
        assert(order.path("query").asText == query.id.toString && order.path("queryName").asText == table)
      }
    }
  }

  test("what a feed failed with fails the query, with Python's words, after the rows before it") {
    withPython { python =>
      val words = "ValueError: no\nTraceback (most recent call last)"
      onFeed(python)(_.send(ArrowBytes.batch(Seq(1, 2)) ++ ArrowBytes.note("headwater.failure" -> words)))
      val table = s"t${System.nanoTime()}"
      val query = start(load("source" -> "numbers"), Trigger.ProcessingTime(0), table)
      val error = intercept[StreamingQueryException](query.awaitTermination(60000))
      assert(error.getCause.getMessage == s"The feed of source 'numbers' failed: $words")
      assert(spark.table(table).collect().map(_.getLong(0)).toSeq == Seq(1, 2))
    }
  }

  test("a query that is stopped stops its feeds, shows what it reads, and the connection goes on") {
    withPython { python =>
      onFeed(python)(_.send(ArrowBytes.batch(Seq(1, 2))))
      (1 to 3).foreach { _ =>
        val table = s"t${System.nanoTime()}"
        val query = start(load("source" -> "numbers"), Trigger.ProcessingTime(0), table)
        Script.await(s"no rows: ${query.status}")(spark.table(table).count() == 2)
        query.processAllAvailable()
        assert(query.lastProgress.sources.head.description == "numbers(of='me')")
        query.stop()
        assert(Bridge.isConnected && Bridge.status() == "{}")
      }
      assert(python.asked.count(_.startsWith("open")) == 3 && python.asked.count(_.startsWith("stop")) == 3)
    }
  }

  test("spark.read says to use spark.readStream") {
    val error = intercept[UnsupportedOperationException] {
      spark.read.format("headwater").option("source", "numbers").load()
    }
    assert(error.getMessage.contains("""use spark.readStream.format("headwater")"""))
  }
}
