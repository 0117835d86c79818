package headwater.bridge

import java.io.IOException
import java.net.{InetAddress, InetSocketAddress, StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.ByteBuffer
import java.nio.channels.{ServerSocketChannel, SocketChannel}
import java.nio.charset.StandardCharsets.US_ASCII
import java.nio.file.Files
import java.security.{MessageDigest, SecureRandom}
import java.util.concurrent.{
  CompletableFuture,
  ConcurrentHashMap,
  ScheduledThreadPoolExecutor,
  Semaphore,
  TimeUnit
}

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/** The local socket to which Python connects: a Unix domain socket in a folder that only this user can enter, or
  * a port of the loopback interface.
  *
  * A client first sends one line, `headwater VERSION SECRET control` or `headwater VERSION SECRET feed ID`, and
  * receives `ok`. If it speaks another version of the protocol it receives `version N`, the one of this side. A client
  * that does not send the secret in time is disconnected; other connections are not affected.
  *
  * @param onControl
  *   receives the control connection, over which Python gets requests, and a function that sends `ok`, which it
  *   must call
  * @param handshakeMillis
  *   how long a client may take to authenticate
  */
private[headwater] final class BridgeServer(
    unix: Boolean,
    onControl: (SocketChannel, () => Unit) => Unit,
    handshakeMillis: Long = 10000L
) extends AutoCloseable
    with Logging {
  import BridgeServer._

  /** Python receives it through py4j. */
  val secret: String = {
    val bytes = new Array[Byte](32)
    new SecureRandom().nextBytes(bytes)
    bytes.map(b => f"$b%02x").mkString
  }

  private[this] val server = if (unix) unixServer().getOrElse(loopbackServer()) else loopbackServer()
  private[this] val expected = new ConcurrentHashMap[String, CompletableFuture[SocketChannel]]
  private[this] val unauthenticated = new Semaphore(MaxUnauthenticated)
  private[this] val timer = new ScheduledThreadPoolExecutor(1, daemon("headwater-bridge-timer"))
  timer.setRemoveOnCancelPolicy(true)

  daemon("headwater-bridge").newThread(() => accept()).start()

  /** `unix:PATH` or `tcp:PORT`. */
  def address: String = server.getLocalAddress match {
    case file: UnixDomainSocketAddress => s"unix:${file.getPath}"
    case port: InetSocketAddress => s"tcp:${port.getPort}"
    case other => throw new IllegalStateException(s"an address of an unknown kind: $other")
  }

  /** The connection that the feed with this id will open. */
  def expect(feed: String): CompletableFuture[SocketChannel] =
    expected.computeIfAbsent(feed, _ => new CompletableFuture)

  /** A connection of this feed that comes later is closed. */
  def cancelExpected(feed: String): Unit = expected.remove(feed)

  /** Clients that are authenticating keep their time for it. */
  override def close(): Unit = {
    server.close()
    timer.shutdown()
  }

  private def accept(): Unit =
    while (server.isOpen) {
      try {
        val channel = server.accept()
        if (unauthenticated.tryAcquire())
          daemon("headwater-bridge-greeting").newThread(() => handshake(channel)).start()
        else channel.close()
      } catch {
        case e: IOException if server.isOpen => // out of file descriptors, for instance: may be temporary
          logWarning("A connection to headwater's bridge could not be taken", e)
          Thread.sleep(RetryMillis)
        case _: IOException => // closed
      }
    }

  private def handshake(channel: SocketChannel): Unit = {
    try {
      val timeout = timer.schedule((() => channel.close()): Runnable, handshakeMillis, TimeUnit.MILLISECONDS)
      try authenticate(channel, readLine(channel))
      finally timeout.cancel(false)
    } catch {
      case NonFatal(e) =>
        logWarning(s"A connection to headwater's bridge was refused: ${e.getMessage}")
        channel.close()
    } finally unauthenticated.release()
  }

  private def authenticate(channel: SocketChannel, line: String): Unit = {
    def send(response: String): Unit = channel.write(ByteBuffer.wrap(s"$response\n".getBytes(US_ASCII)))
    def confirm(): Unit = send("ok")
    line.split(' ') match {
      case Array("headwater", version, sent, _*) if isSecret(sent) && version != ProtocolVersion.toString =>
        send(s"version $ProtocolVersion")
        throw new IOException(
          s"it speaks version $version of the protocol, and this jar version $ProtocolVersion. Use the package and the " +
            "jar of one release"
        )
      case Array("headwater", _, sent, "control") if isSecret(sent) => onControl(channel, () => confirm())
      case Array("headwater", _, sent, "feed", id) if isSecret(sent) =>
        val waiting =
          Option(expected.remove(id)).getOrElse(throw new IOException("no feed of that name is expected"))
        confirm()
        if (!waiting.complete(channel)) channel.close()
      case _ => throw new IOException("the secret is wrong or missing")
    }
  }

  /** Byte by byte: what follows the line belongs to the receiver of the connection. */
  private def readLine(channel: SocketChannel): String = {
    val line = new StringBuilder
    val one = ByteBuffer.allocate(1)
    while (line.isEmpty || line.last != '\n') {
      if (channel.read(one.clear()) < 0 || line.length >= MaxHandshakeBytes)
        throw new IOException("it did not say who it is")
      line += one.get(0).toChar
    }
    line.toString.trim
  }

  /** In constant time, so that the time to refuse a guess reveals nothing. */
  private def isSecret(sent: String): Boolean =
    MessageDigest.isEqual(sent.getBytes(US_ASCII), secret.getBytes(US_ASCII))

  private def unixServer(): Option[ServerSocketChannel] =
    try {
      val folder = Files.createTempDirectory("headwater-") // accessible to its owner only, by Java's default
      folder.toFile.deleteOnExit()
      val file = folder.resolve("bridge")
      file.toFile.deleteOnExit()
      val server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)
      try Some(server.bind(UnixDomainSocketAddress.of(file)))
      catch { case e: IOException => server.close(); throw e } // the path may be too long for a socket
    } catch {
      case e @ (_: IOException | _: UnsupportedOperationException) =>
        logInfo(s"no Unix domain socket for headwater's bridge, so it is a port: $e")
        None
    }

  private def loopbackServer(): ServerSocketChannel =
    ServerSocketChannel.open().bind(new InetSocketAddress(InetAddress.getLoopbackAddress, 0))
}

private[headwater] object BridgeServer {

  /** Of the handshake, the requests and the feeds' streams; the same number is in Python's protocol.py. */
  val ProtocolVersion = 1

  private val MaxHandshakeBytes = 256
  private val RetryMillis = 100L
  private val MaxUnauthenticated = 64

  def daemon(name: String): java.util.concurrent.ThreadFactory = { work =>
    val thread = new Thread(work, name)
    thread.setDaemon(true)
    thread
  }
}
