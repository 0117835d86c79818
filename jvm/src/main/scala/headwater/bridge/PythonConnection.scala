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

/** The driver's Python, at the other end of the control connection: it is asked, and answers. Messages are JSON, each
  * with its length before it. Answers come in any order.
  *
  * The connection is read and written by threads of its own. A channel is closed when a thread is interrupted in it, and
  * those who ask are interrupted as a matter of course: `query.stop()` does it.
  */
private[headwater] final class PythonConnection(channel: SocketChannel) extends Logging {
  import PythonConnection._

  private[this] val numbers = new AtomicLong
  private[this] val asked = new ConcurrentHashMap[Long, CompletableFuture[JsonNode]]
  private[this] val writer = Executors.newSingleThreadExecutor(BridgeServer.daemon("headwater-bridge-writer"))

  BridgeServer.daemon("headwater-bridge-reader").newThread(() => listen()).start()

  def isAlive: Boolean = channel.isOpen

  /** The answer fails with an [[InvalidOptionException]] if Python said that an option is wrong, else with a
    * [[BridgeException]].
    */
  def ask(what: String, body: ObjectNode): CompletableFuture[JsonNode] = {
    val number = numbers.incrementAndGet()
    val answer = new CompletableFuture[JsonNode]
    asked.put(number, answer)
    val message = Json.mapper.writeValueAsBytes(body.deepCopy().put("id", number).put("ask", what))
    try writer.execute(() => send(message))
    catch { case _: RejectedExecutionException => close() }
    if (!isAlive) close() // it may have ended before this question was among the open ones
    answer
  }

  def close(): Unit = {
    writer.shutdown()
    channel.close()
    asked.values.removeIf { answer =>
      answer.completeExceptionally(gone)
      true
    }
  }

  private def send(message: Array[Byte]): Unit =
    try {
      val framed = ByteBuffer.allocate(4 + message.length).putInt(message.length).put(message).flip()
      while (framed.hasRemaining) channel.write(framed)
    } catch { case _: IOException => close() }

  private def listen(): Unit =
    try while (true) answered(Json.mapper.readTree(nextMessage()))
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

  /** From the channel itself: its stream would let nobody write while it waits to read. */
  private def read(length: Int): ByteBuffer = {
    val buffer = ByteBuffer.allocate(length)
    while (buffer.hasRemaining) if (channel.read(buffer) < 0) throw new EOFException
    buffer.flip()
  }

  private def answered(message: JsonNode): Unit =
    Option(asked.remove(message.path("id").asLong)).foreach { answer =>
      val error = message.path("error")
      if (error.isMissingNode) answer.complete(message.path("answer"))
      else if (error.path("kind").asText == "option")
        answer.completeExceptionally(new InvalidOptionException(error.path("message").asText))
      else answer.completeExceptionally(new BridgeException(error.path("message").asText))
    }
}

private[headwater] object PythonConnection {
  private val MaxMessage = 64 << 20

  private def gone = new BridgeException("The Python process that this source runs in is gone.")
}
