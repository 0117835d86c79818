package headwater.bridge

import java.io.{EOFException, IOException}
import java.nio.ByteBuffer
import java.nio.channels.SocketChannel
import java.util.concurrent.{CompletableFuture, ConcurrentHashMap, Executors, RejectedExecutionException}
import java.util.concurrent.atomic.AtomicLong

import scala.util.control.NonFatal

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.core.Json
import headwater.{BridgeException, InvalidOptionException}
import org.apache.spark.internal.Logging

/** The control connection to Python: sends requests and receives responses, in any order. A message is JSON with
  * its length before it.
  *
  * The connection has reader and writer threads of its own. An interrupt closes the channel that a thread is
  * blocked in, and `query.stop()` interrupts the threads that send requests.
  */
private[headwater] final class PythonConnection(channel: SocketChannel) extends Logging {
  import PythonConnection._

  private[this] val ids = new AtomicLong
  private[this] val pending = new ConcurrentHashMap[Long, CompletableFuture[JsonNode]]
  private[this] val writer = Executors.newSingleThreadExecutor(BridgeServer.daemon("headwater-bridge-writer"))

  BridgeServer.daemon("headwater-bridge-reader").newThread(() => readLoop()).start()

  def isAlive: Boolean = channel.isOpen

  /** The response fails with an [[InvalidOptionException]] if Python rejected an option, otherwise with a
    * [[BridgeException]].
    */
  def request(kind: String, body: ObjectNode): CompletableFuture[JsonNode] = {
    val id = ids.incrementAndGet()
    val response = new CompletableFuture[JsonNode]
    pending.put(id, response)
    val message = Json.mapper.writeValueAsBytes(body.deepCopy().put("id", id).put("ask", kind))
    try writer.execute(() => send(message))
    catch { case _: RejectedExecutionException => close() }
    if (!isAlive) close() // the connection may have ended before the request was pending
    response
  }

  def close(): Unit = {
    writer.shutdown()
    channel.close()
    pending.values.removeIf { response =>
      response.completeExceptionally(connectionLost)
      true
    }
  }

  private def send(message: Array[Byte]): Unit =
    try {
      val framed = ByteBuffer.allocate(4 + message.length).putInt(message.length).put(message).flip()
      while (framed.hasRemaining) channel.write(framed)
    } catch { case _: IOException => close() }

  private def readLoop(): Unit =
    try while (true) complete(Json.mapper.readTree(nextMessage()))
    catch {
      case e: JsonProcessingException => logError("the driver's Python is not understood", e)
      case _: IOException => logDebug("the driver's Python has closed its connection")
      case NonFatal(e) => logError("the driver's Python is not understood", e)
    } finally close()

  private def nextMessage(): Array[Byte] = {
    val length = read(4).getInt()
    if (length < 0 || length > MaxMessage) throw new IllegalStateException(s"a message of $length bytes")
    read(length).array
  }

  /** From the channel, not its stream: the stream would block writers while it waits for input. */
  private def read(length: Int): ByteBuffer = {
    val buffer = ByteBuffer.allocate(length)
    while (buffer.hasRemaining) if (channel.read(buffer) < 0) throw new EOFException
    buffer.flip()
  }

  private def complete(message: JsonNode): Unit =
    Option(pending.remove(message.path("id").asLong)).foreach { response =>
      val error = message.path("error")
      if (error.isMissingNode) response.complete(message.path("answer"))
      else if (error.path("kind").asText == "option")
        response.completeExceptionally(new InvalidOptionException(error.path("message").asText))
      else response.completeExceptionally(new BridgeException(error.path("message").asText))
    }
}

private[headwater] object PythonConnection {
  private val MaxMessage = 64 << 20

  private def connectionLost = new BridgeException("The Python process that this source runs in is gone.")
}
