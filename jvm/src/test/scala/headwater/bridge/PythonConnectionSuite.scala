package headwater.bridge

import java.net.StandardProtocolFamily
import java.nio.ByteBuffer
import java.nio.channels.{ServerSocketChannel, SocketChannel}
import java.nio.file.Files
import java.util.concurrent.{CompletableFuture, ExecutionException, TimeUnit}

import scala.util.{Random, Using}

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.core.{Json, Uninterruptibly}
import headwater.testing.{CapturedLog, NoThreadLeft, Script, TestConnection}
import headwater.{BridgeException, InvalidOptionException}
import org.scalatest.funsuite.AnyFunSuite

class PythonConnectionSuite extends AnyFunSuite with NoThreadLeft {

  /** The peer's other end. */
  private final class Python(channel: SocketChannel) extends AutoCloseable {
    val caller = new TestConnection(channel)

    def question(): ObjectNode = {
      val length = ByteBuffer.wrap(caller.read(4)).getInt
      Json.mapper.readTree(caller.read(length)).asInstanceOf[ObjectNode]
    }

    def say(json: String): Unit = frame(json.getBytes("UTF-8"))

    def frame(message: Array[Byte]): Unit =
      caller.send(ByteBuffer.allocate(4 + message.length).putInt(message.length).put(message).array)

    def answer(question: JsonNode, json: String): Unit = say(
      s"""{"id":${question.path("id")},"answer":$json}"""
    )

    override def close(): Unit = caller.close()
  }

  private def withPeer(body: (PythonConnection, Python) => Unit): Unit = {
    val (here, there) = connectedPair()
    val peer = new PythonConnection(here)
    try Using.resource(new Python(there))(body(peer, _))
    finally peer.close()
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

  private def ask(peer: PythonConnection, what: String = "load", n: Int = 0): CompletableFuture[JsonNode] =
    peer.ask(what, Json.mapper.createObjectNode().put("n", n))

  private def resultOf(answer: CompletableFuture[JsonNode]): JsonNode = answer.get(20, TimeUnit.SECONDS)

  private def errorOf(answer: CompletableFuture[JsonNode]): Throwable =
    intercept[ExecutionException](resultOf(answer)).getCause

  private val Gone = "The Python process that this source runs in is gone."

  test("a question arrives with what was asked, and its answer comes back") {
    withPeer { (peer, python) =>
      val body = Json.mapper.createObjectNode().put("text", "ä \u0000 \n €")
      val answer = peer.ask("load", body)
      val question = python.question()
      assert(question.path("ask").asText == "load" && question.path("text").asText == "ä \u0000 \n €")
      python.answer(question, """{"name":"ü"}""")
      assert(resultOf(answer).path("name").asText == "ü")
      assert(body.size == 1, "the question of the asker is left as it was")
    }
  }

  test("answers come in any order, each to its question") {
    withPeer { (peer, python) =>
      val answers = (1 to 200).map(n => n -> ask(peer, n = n))
      val questions = answers.map(_ => python.question())
      assert(
        questions.map(_.path("n").asInt) == (1 to 200),
        "questions come in the order in which they were asked"
      )
      new Random(1).shuffle(questions).foreach(q => python.answer(q, q.path("n").toString))
      answers.foreach { case (n, answer) => assert(resultOf(answer).asInt == n) }
    }
  }

  test("many threads ask at once, and each gets its own answer") {
    withPeer { (peer, python) =>
      val failures = new java.util.concurrent.ConcurrentLinkedQueue[Throwable]
      val askers = (1 to 8).map { t =>
        new Thread(() =>
          try (1 to 50).foreach(i => assert(resultOf(ask(peer, n = t * 1000 + i)).asInt == t * 1000 + i))
          catch { case e: Throwable => failures.add(e) }
        )
      }
      askers.foreach(_.start())
      (1 to 400).foreach { _ =>
        val question = python.question()
        python.answer(question, question.path("n").toString)
      }
      askers.foreach(_.join(20000))
      assert(failures.isEmpty && askers.forall(!_.isAlive))
    }
  }

  test("an error of kind option is an InvalidOptionException, any other a BridgeException, word for word") {
    withPeer { (peer, python) =>
      def refused(error: String): Throwable = {
        val answer = ask(peer)
        python.say(s"""{"id":${python.question().path("id")},"error":$error}""")
        errorOf(answer)
      }
      val option = refused("""{"kind":"option","message":"Option 'len' is 'x'"}""")
      assert(option.isInstanceOf[InvalidOptionException] && option.getMessage == "Option 'len' is 'x'")
      Seq("""{"message":"KeyError: 'x'"}""", """{"kind":"other","message":"KeyError: 'x'"}""").foreach {
        error =>
          val other = refused(error)
          assert(other.isInstanceOf[BridgeException] && other.getMessage == "KeyError: 'x'")
      }
      assert(peer.isAlive)
    }
  }

  test("answers that nobody waits for are passed over") {
    withPeer { (peer, python) =>
      python.say("""{"id":77,"answer":{}}""")
      python.say("""{"answer":{}}""")
      python.say("[]")
      python.frame(Array.empty)
      val answer = ask(peer)
      val question = python.question()
      python.answer(question, "1")
      python.answer(question, "2")
      assert(resultOf(answer).asInt == 1)
      val next = ask(peer)
      python.answer(python.question(), "3")
      assert(resultOf(next).asInt == 3)
    }
  }

  test("when Python dies, open questions and later ones fail, and its threads end") {
    withPeer { (peer, python) =>
      val open = (1 to 3).map(n => ask(peer, n = n))
      (1 to 3).foreach(_ => python.question())
      python.close()
      open.foreach { answer =>
        val error = errorOf(answer)
        assert(error.isInstanceOf[BridgeException] && error.getMessage == Gone)
      }
      assert(!peer.isAlive)
      assert(errorOf(ask(peer)).getMessage == Gone)
      Script.await("its threads are still there")(!ours.exists(_.getName.matches(".*-(reader|writer)")))
    }
  }

  test("when Python dies in the middle of an answer, its question fails") {
    withPeer { (peer, python) =>
      val answer = ask(peer)
      python.question()
      python.caller.send(Array[Byte](0, 0, 1, 0, '{'))
      python.close()
      assert(errorOf(answer).getMessage == Gone)
    }
  }

  test("questions that are asked while Python dies all fail: none waits for ever") {
    (1 to 100).foreach { _ =>
      withPeer { (peer, python) =>
        val closer = new Thread(() => python.close())
        closer.start()
        val answers = (1 to 50).map(n => ask(peer, n = n))
        closer.join(20000)
        answers.foreach(answer => assert(errorOf(answer).getMessage == Gone))
      }
    }
  }

  test("who asks does not wait for a Python that does not read, and close fails what is open") {
    withPeer { (peer, _) =>
      val large = Json.mapper.createObjectNode().put("text", "x" * (8 << 20)) // more than a socket holds
      @volatile var answers = Seq.empty[CompletableFuture[JsonNode]]
      val asker = new Thread(() => answers = (1 to 3).map(_ => peer.ask("load", large)))
      asker.setDaemon(true)
      asker.start()
      asker.join(20000)
      assert(!asker.isAlive && answers.length == 3)
      assert(answers.forall(!_.isDone))
      peer.close()
      answers.foreach(answer => assert(errorOf(answer).getMessage == Gone))
    }
  }

  test("an asker who is interrupted, before, while or after it asks, does not close the connection") {
    withPeer { (peer, python) =>
      (1 to 20).foreach { round =>
        @volatile var got: Option[JsonNode] = None
        @volatile var kept = false
        val asker = new Thread(() => {
          if (round % 2 == 0) Thread.currentThread().interrupt() // before it asks
          got = Uninterruptibly.get(ask(peer, n = round), Uninterruptibly.deadlineIn(20000))
          kept = Thread.interrupted()
        })
        asker.start()
        val question = python.question()
        (1 to 3).foreach { _ =>
          Script.await("it does not wait")(asker.getState == Thread.State.TIMED_WAITING)
          asker.interrupt() // while it waits
        }
        val other = ask(peer, n = -round)
        val othersQuestion = python.question()
        assert(othersQuestion.path("n").asInt == -round, "the connection goes on")
        python.answer(othersQuestion, "-1")
        assert(resultOf(other).asInt == -1)
        assert(asker.isAlive && peer.isAlive)
        python.answer(question, round.toString)
        asker.join(20000)
        assert(got.map(_.asInt) == Some(round), "the answer still came")
        assert(kept, "the interrupt is left for its owner")
      }
    }
  }

  test(
    "an asker who is interrupted where it does not wait in a way of ours leaves the connection alone too"
  ) {
    withPeer { (peer, python) =>
      @volatile var interrupted = false
      val asker = new Thread(() =>
        try ask(peer).get()
        catch { case _: InterruptedException => interrupted = true }
      )
      asker.start()
      python.question()
      asker.interrupt()
      asker.join(20000)
      assert(interrupted && peer.isAlive)
      val next = ask(peer)
      python.answer(python.question(), "5")
      assert(resultOf(next).asInt == 5)
    }
  }

  test("garbage from the other side ends the peer, says so in the log, and fails what is open") {
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
          withPeer { (peer, python) =>
            val open = ask(peer)
            python.question()
            python.caller.send(bytes)
            assert(errorOf(open).getMessage == Gone)
            python.caller.awaitCut()
            assert(!peer.isAlive && errorOf(ask(peer)).getMessage == Gone)
            assert(log.has("ERROR", "the driver's Python is not understood"), log.lines)
          }
        }
      }
    }
  }

  test("a connection that is closed in order is no error") {
    CapturedLog(classOf[PythonConnection]) { log =>
      withPeer { (peer, python) =>
        python.close()
        Script.await("it was not seen")(!peer.isAlive)
      }
      assert(!log.lines.exists(line => line.startsWith("ERROR") || line.startsWith("WARN")))
    }
  }
}
