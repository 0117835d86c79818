package headwater.testing

import java.nio.ByteBuffer
import java.util.concurrent.{ConcurrentHashMap, ConcurrentLinkedQueue}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import headwater.bridge.BridgeServer
import headwater.core.Json

/** The driver's Python, as far as the JVM sees it. Unless the test says otherwise it connects a feed that it is asked to
  * open, and says of a feed that it is asked to stop that it has.
  */
final class ScriptedPython(server: BridgeServer) extends AutoCloseable {
  private val control = TestConnection.admitted(server, "control")
  private val questions = new ConcurrentLinkedQueue[JsonNode]
  private val feeds = new ConcurrentHashMap[String, TestConnection]

  @volatile var onLoad: JsonNode => Unit = refuse(_, """{"message":"no source"}""")
  @volatile var onOpen: JsonNode => Unit = { question =>
    connect(question.path("feed").asText)
    answer(question, "{}")
  }
  @volatile var onStop: JsonNode => Unit = answer(_, """{"state":"stopped"}""")

  private val listener = new Thread(() => listen(), "scripted-python")
  listener.setDaemon(true)
  listener.start()

  /** What was asked so far, as `open f.0`. */
  def asked: Seq[String] = all.map(q => s"${q.path("ask").asText} ${q.path("feed").asText}")

  def all: Seq[JsonNode] = questions.asScala.toSeq

  def awaitAsked(what: String): JsonNode = {
    def found = all.find(q => s"${q.path("ask").asText} ${q.path("feed").asText}" == what)
    Script.await(s"'$what' was not asked, but $asked")(found.nonEmpty)
    found.get
  }

  def connect(feed: String): TestConnection = {
    val caller = TestConnection.admitted(server, s"feed $feed")
    feeds.put(feed, caller)
    caller
  }

  /** The connection of a feed, with its schema sent. */
  def started(feed: String): TestConnection = {
    val caller = this.feed(feed)
    caller.send(ArrowBytes.schema)
    caller
  }

  def feed(name: String): TestConnection = {
    Script.await(s"$name was not opened; asked was $asked")(feeds.containsKey(name))
    feeds.get(name)
  }

  def answer(question: JsonNode, json: String): Unit = say(question, s""""answer":$json""")
  def refuse(question: JsonNode, error: String): Unit = say(question, s""""error":$error""")

  override def close(): Unit = {
    control.close()
    listener.join(20000)
    feeds.values.forEach(_.close())
  }

  private def say(question: JsonNode, body: String): Unit = {
    val message = s"""{"id":${question.path("id")},$body}""".getBytes("UTF-8")
    control.send(ByteBuffer.allocate(4 + message.length).putInt(message.length).put(message).array)
  }

  private def listen(): Unit =
    try
      while (true) {
        val length = ByteBuffer.wrap(control.read(4)).getInt
        val question = Json.mapper.readTree(control.read(length))
        questions.add(question)
        question.path("ask").asText match {
          case "load" => onLoad(question)
          case "open" => onOpen(question)
          case "stop" => onStop(question)
        }
      }
    catch { case _: java.io.IOException => }
}
