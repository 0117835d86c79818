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

/** A source in Python as used from Spark, with a scripted Python. */
class PythonProviderSuite extends StreamTest {

  private def load(options: (String, String)*): DataFrame =
    spark.readStream.format("headwater").options(options.toMap).load()

  private def withPython(body: ScriptedPython => Unit): Unit = {
    Bridge.open(unix = true)
    val before = NoThreadLeft.ours
    Using.resource(new ScriptedPython(Bridge.current.server)) { python =>
      python.onLoad = describe(python, _)
      body(python)
    }
    Script.await("its end was not seen")(!Bridge.isConnected)
    assert(NoThreadLeft.leftAfter(before).isEmpty)
  }

  private def refused(): String = intercept[BridgeException](load("source" -> "letters")).getMessage

  private def describe(python: ScriptedPython, request: JsonNode): Unit = {
    val response = Json.mapper.createObjectNode()
    response
      .put("name", "numbers")
      .put("schema", Script.schema.json)
      .put("arrowSchema", Base64.getEncoder.encodeToString(Script.arrowSchema.serializeAsMessage()))
      .put("description", "numbers(of='me')")
    python.respond(request, response.toString)
  }

  /** Runs when a feed is open. */
  private def onFeed(python: ScriptedPython)(send: TestConnection => Unit): Unit =
    python.onOpen = { request =>
      val feed = python.connect(request.path("feed").asText)
      python.respond(request, "{}")
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

  test("without a Python process load fails with a remedy, whether the bridge is open or not") {
    assert(refused().contains("No Python process is attached"))
    assert(refused().contains("call hw.attach(spark) there"))
    Bridge.open(unix = true)
    assert(!Bridge.isConnected)
    assert(refused().contains("call hw.attach(spark) there"))
  }

  test("load fails while Python is disconnected, and works when it is back") {
    withPython(_ => load("source" -> "numbers"))
    assert(refused() == "The Python process that this source runs in is gone.")
    withPython(_ => load("source" -> "numbers"))
  }

  test("the bridge is opened once, and returns its address and secret") {
    val address = Bridge.open(unix = true)
    assert(Bridge.open(unix = false) == address)
    val json = Json.mapper.readTree(address)
    assert(json.path("address").asText == Bridge.current.server.address)
    assert(json.path("secret").asText == Bridge.current.server.secret && json.size == 2)
    assert(Bridge.status() == "{}")
  }

  test("load without the option source names it") {
    val error = intercept[InvalidOptionException](load("len" -> "5"))
    assert(error.getMessage.startsWith("Source 'headwater' needs the option 'source': the name of a source"))
  }

  test("load requests the schema from Python, with exactly the author's options as written") {
    withPython { python =>
      val frame =
        load("source" -> "numbers", "baseUrl" -> "a B", "maxRowsPerTrigger" -> "7", "on_error" -> "end")
      assert(frame.schema == Script.schema && frame.isStreaming)
      val request = python.all.head
      assert(request.path("ask").asText == "load" && request.path("source").asText == "numbers")
      assert(request.path("options") == Json.mapper.readTree("""{"baseUrl":"a B"}"""))
      assert(!request.has("schema"))
    }
  }

  test("a user-defined schema is sent to Python") {
    withPython { python =>
      python.onLoad = python.refuse(_, """{"kind":"option","message":"has a fixed schema"}""")
      val error = intercept[InvalidOptionException] {
        spark.readStream.format("headwater").option("source", "numbers").schema("a INT").load()
      }
      assert(error.getMessage == "has a fixed schema")
      assert(python.all.head.path("schema").asText == new StructType().add("a", IntegerType).json)
    }
  }

  test("an invalid headwater option is refused with the name of the source") {
    withPython { _ =>
      Seq("numbers", "numbers@17").foreach { source =>
        val error = intercept[InvalidOptionException](load("source" -> source, "concurrency" -> "0"))
        assert(error.getMessage.startsWith("Option 'concurrency' of source 'numbers' is '0', it must be"))
      }
    }
  }

  test("load throws Python's message about an option") {
    withPython { python =>
      python.onLoad =
        python.refuse(_, """{"kind":"option","message":"Source 'numbers' has no option 'x'."}""")
      val error = intercept[InvalidOptionException](load("source" -> "numbers", "x" -> "1"))
      assert(error.getMessage == "Source 'numbers' has no option 'x'.")
    }
  }

  test("the query reads Python's rows, and AvailableNow ends when the feed has ended") {
    withPython { python =>
      onFeed(python)(_.send(ArrowBytes.batch(1L to 5L) ++ ArrowBytes.batch(6L to 9L) ++ ArrowBytes.end))
      assert(runNow(load("source" -> "numbers", "availableNowWait" -> "1h")) == (1L to 9L))
      val (opens, stops) =
        (python.requestLines.filter(_.startsWith("open")), python.requestLines.filter(_.startsWith("stop")))
      assert(opens.length == 1 && stops == opens.map(_.replace("open", "stop")))
      assert(python.requestLines.count(_.startsWith("load")) == 1, "the start uses the description of load()")
      assert(Bridge.status() == "{}")
    }
  }

  test("AvailableNow ends when all shards have caught up, and stops them") {
    withPython { python =>
      onFeed(python)(_.send(ArrowBytes.batch(Seq(1), "headwater.caught_up" -> "")))
      val rows = runNow(load("source" -> "numbers", "availableNowWait" -> "1h", "concurrency" -> "3"))
      assert(rows == Seq(1, 1, 1))
      assert(python.requestLines.count(_.startsWith("stop")) == 3)
    }
  }

  test("the request to open contains the source, its options, the shard and the query") {
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

  test("a failure in Python fails the query with its message, after the rows before it") {
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

  test("stopping a query stops its feeds, and keeps the connection") {
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
      assert(
        python.requestLines.count(_.startsWith("open")) == 3 && python.requestLines.count(
          _.startsWith("stop")
        ) == 3
      )
    }
  }

  test("spark.read says to use spark.readStream") {
    withPython { _ =>
      val error = intercept[UnsupportedOperationException] {
        spark.read.format("headwater").option("source", "numbers").load()
      }
      assert(error.getMessage.contains("""use spark.readStream.format("headwater")"""))
    }
  }
}
