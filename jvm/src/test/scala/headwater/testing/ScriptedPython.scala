package headwater.testing

import java.nio.ByteBuffer
import java.util.concurrent.{ConcurrentHashMap, ConcurrentLinkedQueue}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import headwater.bridge.BridgeServer
import headwater.core.Json

/** The Python process, as the JVM sees it. By default it connects each feed that it is asked to open, and responds that it
  * has stopped each feed that it is asked to stop.
  */
final class ScriptedPython(server: BridgeServer) extends AutoCloseable {
  private val control = TestConnection.authenticated(server, "control")
  private val requests = new ConcurrentLinkedQueue[JsonNode]
  private val feeds = new ConcurrentHashMap[String, TestConnection]

  @volatile var onLoad: JsonNode => Unit = refuse(_, """{"message":"no source"}""")
  @volatile var onOpen: JsonNode => Unit = { request =>
    connect(request.path("feed").asText)
    respond(request, "{}")
  }
  @volatile var onStop: JsonNode => Unit = respond(_, """{"state":"stopped"}""")

  /** By default the status does not change. These requests are not among [[all]]. */
  @volatile var onStatus: JsonNode => Unit = _ => ()

  private val listener = new Thread(() => listen(), "scripted-python")
  listener.setDaemon(true)
  listener.start()

  /** The requests so far, as `open f.0`. */
  def requestLines: Seq[String] = all.map(q => s"${q.path("ask").asText} ${q.path("feed").asText}")

  def all: Seq[JsonNode] = requests.asScala.toSeq

  def awaitRequest(what: String): JsonNode = {
    def matching = all.find(q => s"${q.path("ask").asText} ${q.path("feed").asText}" == what)
    Script.await(s"'$what' was not asked, but $requestLines")(matching.nonEmpty)
    matching.get
  }

  def connect(feed: String): TestConnection = {
    val connection = TestConnection.authenticated(server, s"feed $feed")
    feeds.put(feed, connection)
    connection
  }

  /** The connection of a feed, with its schema sent. */
  def started(feed: String): TestConnection = {
    val connection = this.feed(feed)
    connection.send(ArrowBytes.schema)
    connection
  }

  def feed(name: String): TestConnection = {
    Script.await(s"$name was not opened; asked was $requestLines")(feeds.containsKey(name))
    feeds.get(name)
  }

  def respond(request: JsonNode, json: String): Unit = send(request, s""""answer":$json""")
  def refuse(request: JsonNode, error: String): Unit = send(request, s""""error":$error""")

  override def close(): Unit = {
    control.close()
    listener.join(20000)
    feeds.values.forEach(_.close())
  }

  private def send(request: JsonNode, body: String): Unit = {
    val message = s"""{"id":${request.path("id")},$body}""".getBytes("UTF-8")
    control.send(ByteBuffer.allocate(4 + message.length).putInt(message.length).put(message).array)
  }

  private def listen(): Unit =
    try
      while (true) {
        val length = ByteBuffer.wrap(control.read(4)).getInt
        val request = Json.mapper.readTree(control.read(length))
        if (request.path("ask").asText != "status") requests.add(request)
        request.path("ask").asText match {
          case "status" => onStatus(request)
          case "load" => onLoad(request)
          case "open" => onOpen(request)
          case "stop" => onStop(request)
        }
      }
    catch { case _: java.io.IOException => }
}
