package headwater.bridge

import java.net.StandardProtocolFamily
import java.nio.ByteBuffer
import java.nio.channels.{ServerSocketChannel, SocketChannel}
import java.nio.file.Files
import java.util.concurrent.{CompletableFuture, ExecutionException, TimeUnit}

import scala.concurrent.duration._
import scala.util.{Random, Using}

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.core.{Json, Uninterruptibly}
import headwater.testing.{CapturedLog, NoThreadLeft, Script, TestConnection}
import headwater.{BridgeException, InvalidOptionException}
import org.scalatest.funsuite.AnyFunSuite

class PythonConnectionSuite extends AnyFunSuite with NoThreadLeft {

  /** Python's end of the connection. */
  private final class Python(channel: SocketChannel) extends AutoCloseable {
    val connection = new TestConnection(channel)

    def request(): ObjectNode = {
      val length = ByteBuffer.wrap(connection.read(4)).getInt
      Json.mapper.readTree(connection.read(length)).asInstanceOf[ObjectNode]
    }

    def sendJson(json: String): Unit = frame(json.getBytes("UTF-8"))

    def frame(message: Array[Byte]): Unit =
      connection.send(ByteBuffer.allocate(4 + message.length).putInt(message.length).put(message).array)

    def respond(request: JsonNode, json: String): Unit = sendJson(
      s"""{"id":${request.path("id")},"answer":$json}"""
    )

    override def close(): Unit = connection.close()
  }

  private def withConnection(body: (PythonConnection, Python) => Unit): Unit = {
    val (here, there) = connectedPair()
    val connection = new PythonConnection(here)
    try Using.resource(new Python(there))(body(connection, _))
    finally connection.close()
  }

  private def connectedPair(): (SocketChannel, SocketChannel) = {
    val folder = Files.createTempDirectory("headwater-peer-")
    val file = folder.resolve("s")
    try
      Using.resource(ServerSocketChannel.open(StandardProtocolFamily.UNIX)) { server =>
        server.bind(java.net.UnixDomainSocketAddress.of(file))
        val there = SocketChannel.open(server.getLocalAddress)
        (server.accept(), there)
      }
    finally {
      Files.deleteIfExists(file)
      Files.delete(folder)
    }
  }

  private def sendRequest(
      connection: PythonConnection,
      what: String = "load",
      n: Int = 0
  ): CompletableFuture[JsonNode] =
    connection.request(what, Json.mapper.createObjectNode().put("n", n))

  private def resultOf(response: CompletableFuture[JsonNode]): JsonNode = response.get(20, TimeUnit.SECONDS)

  private def errorOf(response: CompletableFuture[JsonNode]): Throwable =
    intercept[ExecutionException](resultOf(response)).getCause

  private val Gone = "The Python process that this source runs in is gone."

  test("a request arrives with its body, and its response is returned") {
    withConnection { (connection, python) =>
      val body = Json.mapper.createObjectNode().put("text", "ä \u0000 \n €")
      val response = connection.request("load", body)
      val request = python.request()
      assert(request.path("ask").asText == "load" && request.path("text").asText == "ä \u0000 \n €")
      python.respond(request, """{"name":"ü"}""")
      assert(resultOf(response).path("name").asText == "ü")
      assert(body.size == 1, "the question of the asker is left as it was")
    }
  }

  test("responses may come in any order") {
    withConnection { (connection, python) =>
      val responses = (1 to 200).map(n => n -> sendRequest(connection, n = n))
      val requests = responses.map(_ => python.request())
      assert(
        requests.map(_.path("n").asInt) == (1 to 200),
        "questions come in the order in which they were asked"
      )
      new Random(1).shuffle(requests).foreach(q => python.respond(q, q.path("n").toString))
      responses.foreach { case (n, response) => assert(resultOf(response).asInt == n) }
    }
  }

  test("concurrent requests of many threads get their own responses") {
    withConnection { (connection, python) =>
      val failures = new java.util.concurrent.ConcurrentLinkedQueue[Throwable]
      val askers = (1 to 8).map { t =>
        new Thread(() =>
          try
            (1 to 50).foreach(i =>
              assert(resultOf(sendRequest(connection, n = t * 1000 + i)).asInt == t * 1000 + i)
            )
          catch { case e: Throwable => failures.add(e) }
        )
      }
      askers.foreach(_.start())
      (1 to 400).foreach { _ =>
        val request = python.request()
        python.respond(request, request.path("n").toString)
      }
      askers.foreach(_.join(20000))
      assert(failures.isEmpty && askers.forall(!_.isAlive))
    }
  }

  test(
    "an error of kind option is an InvalidOptionException, any other a BridgeException, with the same message"
  ) {
    withConnection { (connection, python) =>
      def refused(error: String): Throwable = {
        val response = sendRequest(connection)
        python.sendJson(s"""{"id":${python.request().path("id")},"error":$error}""")
        errorOf(response)
      }
      val option = refused("""{"kind":"option","message":"Option 'len' is 'x'"}""")
      assert(option.isInstanceOf[InvalidOptionException] && option.getMessage == "Option 'len' is 'x'")
      Seq("""{"message":"KeyError: 'x'"}""", """{"kind":"other","message":"KeyError: 'x'"}""").foreach {
        error =>
          val other = refused(error)
          assert(other.isInstanceOf[BridgeException] && other.getMessage == "KeyError: 'x'")
      }
      assert(connection.isAlive)
    }
  }

  test("responses without a request are ignored") {
    withConnection { (connection, python) =>
      python.sendJson("""{"id":77,"answer":{}}""")
      python.sendJson("""{"answer":{}}""")
      python.sendJson("[]")
      python.frame(Array.empty)
      val response = sendRequest(connection)
      val request = python.request()
      python.respond(request, "1")
      python.respond(request, "2")
      assert(resultOf(response).asInt == 1)
      val next = sendRequest(connection)
      python.respond(python.request(), "3")
      assert(resultOf(next).asInt == 3)
    }
  }

  test("when Python dies, pending and later requests fail, and the threads end") {
    withConnection { (connection, python) =>
      val open = (1 to 3).map(n => sendRequest(connection, n = n))
      (1 to 3).foreach(_ => python.request())
      python.close()
      open.foreach { response =>
        val error = errorOf(response)
        assert(error.isInstanceOf[BridgeException] && error.getMessage == Gone)
      }
      assert(!connection.isAlive)
      assert(errorOf(sendRequest(connection)).getMessage == Gone)
      Script.await("its threads are still there")(!ours.exists(_.getName.matches(".*-(reader|writer)")))
    }
  }

  test("when Python dies in the middle of a response, the request fails") {
    withConnection { (connection, python) =>
      val response = sendRequest(connection)
      python.request()
      python.connection.send(Array[Byte](0, 0, 1, 0, '{'))
      python.close()
      assert(errorOf(response).getMessage == Gone)
    }
  }

  test("requests sent while Python dies all fail: none waits for ever") {
    (1 to 100).foreach { _ =>
      withConnection { (connection, python) =>
        val closer = new Thread(() => python.close())
        closer.start()
        val responses = (1 to 50).map(n => sendRequest(connection, n = n))
        closer.join(20000)
        responses.foreach(response => assert(errorOf(response).getMessage == Gone))
      }
    }
  }

  test("a request does not block while Python does not read, and close fails pending requests") {
    withConnection { (connection, _) =>
      val large = Json.mapper.createObjectNode().put("text", "x" * (8 << 20)) // more than a socket holds
      @volatile var responses = Seq.empty[CompletableFuture[JsonNode]]
      val requester = new Thread(() => responses = (1 to 3).map(_ => connection.request("load", large)))
      requester.setDaemon(true)
      requester.start()
      requester.join(20000)
      assert(!requester.isAlive && responses.length == 3)
      assert(responses.forall(!_.isDone))
      connection.close()
      responses.foreach(response => assert(errorOf(response).getMessage == Gone))
    }
  }

  test("an interrupt of the requesting thread does not close the connection") {
    withConnection { (connection, python) =>
      (1 to 20).foreach { round =>
        @volatile var got: Option[JsonNode] = None
        @volatile var kept = false
        val requester = new Thread(() => {
          if (round % 2 == 0) Thread.currentThread().interrupt() // before the request
          got = Uninterruptibly.get(sendRequest(connection, n = round), 20000.millis.fromNow)
          kept = Thread.interrupted()
        })
        requester.start()
        val request = python.request()
        (1 to 3).foreach { _ =>
          Script.await("it does not wait")(requester.getState == Thread.State.TIMED_WAITING)
          requester.interrupt() // while it waits
        }
        val other = sendRequest(connection, n = -round)
        val othersQuestion = python.request()
        assert(othersQuestion.path("n").asInt == -round, "the connection goes on")
        python.respond(othersQuestion, "-1")
        assert(resultOf(other).asInt == -1)
        assert(requester.isAlive && connection.isAlive)
        python.respond(request, round.toString)
        requester.join(20000)
        assert(got.map(_.asInt) == Some(round), "the answer still came")
        assert(kept, "the interrupt is left for its owner")
      }
    }
  }

  test(
    "an interrupt of a thread that waits for the future itself does not close the connection"
  ) {
    withConnection { (connection, python) =>
      @volatile var interrupted = false
      val requester = new Thread(() =>
        try sendRequest(connection).get()
        catch { case _: InterruptedException => interrupted = true }
      )
      requester.start()
      python.request()
      requester.interrupt()
      requester.join(20000)
      assert(interrupted && connection.isAlive)
      val next = sendRequest(connection)
      python.respond(python.request(), "5")
      assert(resultOf(next).asInt == 5)
    }
  }

  test("garbage from Python closes the connection, is logged, and fails pending requests") {
    def length(n: Int) = ByteBuffer.allocate(4).putInt(n).array
    val garbage = Seq(
      "no JSON" -> (length(5) ++ "hello".getBytes),
      "half of a JSON" -> (length(5) ++ """{"id"""".getBytes),
      "JSON too deep" -> (length(100000) ++ ("[" * 100000).getBytes),
      "not UTF-8" -> (length(4) ++ Array[Byte]('"', -1, -2, '"')),
      "a negative length" -> length(-1),
      "a length of 2 GB" -> length(Int.MaxValue),
      "a length just too large" -> length((64 << 20) + 1),
      "text" -> "GET / HTTP/1.1\r\n\r\n".getBytes
    )
    garbage.foreach { case (what, bytes) =>
      withClue(what) {
        CapturedLog(classOf[PythonConnection]) { log =>
          withConnection { (connection, python) =>
            val open = sendRequest(connection)
            python.request()
            python.connection.send(bytes)
            assert(errorOf(open).getMessage == Gone)
            python.connection.awaitDisconnect()
            assert(!connection.isAlive && errorOf(sendRequest(connection)).getMessage == Gone)
            assert(log.has("ERROR", "the driver's Python is not understood"), log.lines)
          }
        }
      }
    }
  }

  test("an orderly close is not logged as an error") {
    CapturedLog(classOf[PythonConnection]) { log =>
      withConnection { (connection, python) =>
        python.close()
        Script.await("it was not seen")(!connection.isAlive)
      }
      assert(!log.lines.exists(line => line.startsWith("ERROR") || line.startsWith("WARN")))
    }
  }
}
