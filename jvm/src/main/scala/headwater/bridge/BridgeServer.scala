package headwater.bridge

import java.io.IOException
import java.net.{InetAddress, InetSocketAddress, StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.ByteBuffer
import java.nio.channels.{SelectionKey, Selector, ServerSocketChannel, SocketChannel}
import java.nio.charset.StandardCharsets.US_ASCII
import java.security.{MessageDigest, SecureRandom}
import java.util.concurrent.{CompletableFuture, ConcurrentHashMap}
import java.util.concurrent.atomic.AtomicInteger

import scala.collection.mutable
import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import headwater.core.{ProcessFolder, Uninterruptibly}
import org.apache.spark.internal.Logging

/** The local socket to which Python connects: a Unix domain socket in a folder that only this user can enter, or
  * a port of the loopback interface.
  *
  * A client first sends one line, `headwater VERSION SECRET control` or `headwater VERSION SECRET feed ID`, and
  * receives `ok`. If it speaks another version of the protocol it receives `version N`, the one of this side. A client
  * that does not send the secret in time is disconnected, and so is the oldest one if there are too many. Those that
  * have sent it are not affected.
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

  // Used by the server's thread only.
  private[this] val selector = Selector.open()
  private[this] val clients = mutable.LinkedHashSet.empty[Client] // not authenticated yet, the oldest first
  private[this] var closedForOthers = 0
  private[this] var lastReport = Option.empty[Deadline]

  server.configureBlocking(false)
  server.register(selector, SelectionKey.OP_ACCEPT)
  private[this] val thread = daemon("headwater-bridge").newThread(() => run())
  thread.start()

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

  override def close(): Unit = {
    server.close()
    selector.wakeup()
    Uninterruptibly.join(thread, 5.seconds.fromNow)
  }

  /** One thread for all clients, since anybody on this machine may connect. Lines are read before more clients are
    * accepted, so that nobody who has sent the secret is disconnected in favour of somebody else.
    */
  private def run(): Unit =
    try
      while (server.isOpen) {
        selector.select(
          clients.headOption.fold(0L)(client => math.max(1L, client.deadline.timeLeft.toMillis))
        )
        val ready =
          selector.selectedKeys.asScala.flatMap(key => Option(key.attachment.asInstanceOf[Client])).toVector
        selector.selectedKeys.clear()
        ready.filter(clients).foreach(read)
        acceptSome()
        clients.takeWhile(_.deadline.isOverdue()).foreach(refuse(_, "it did not send the secret in time"))
      }
    catch {
      case NonFatal(e) if server.isOpen => logError("headwater's bridge accepts no more connections", e)
    } finally {
      clients.foreach(_.channel.close())
      selector.close()
    }

  private def acceptSome(): Unit =
    try {
      var accepted = 0
      var channel = server.accept()
      while (channel != null) {
        accept(channel)
        accepted += 1
        channel = if (accepted < AcceptsAtOnce) server.accept() else null
      }
    } catch {
      case e: IOException if server.isOpen => // out of file descriptors, for instance: may be temporary
        logWarning("A connection to headwater's bridge could not be accepted", e)
        closeOldest()
        Thread.sleep(RetryMillis)
      case _: IOException => // closed
    }

  private def accept(channel: SocketChannel): Unit = {
    if (clients.size >= MaxUnauthenticated) closeOldest()
    channel.configureBlocking(false)
    val client = new Client(channel, handshakeMillis.millis.fromNow)
    channel.register(selector, SelectionKey.OP_READ, client)
    clients += client
    read(client) // its line may be here already
  }

  /** A client of ours sends its line at once, so the oldest is not one of them. */
  private def closeOldest(): Unit = clients.headOption.foreach { client =>
    disconnect(client)
    closedForOthers += 1
    if (lastReport.forall(_.isOverdue())) {
      logWarning(
        s"$closedForOthers connections to headwater's bridge did not send the secret, and were closed in favour of others"
      )
      lastReport = Some(ReportEvery.fromNow)
      closedForOthers = 0
    }
  }

  private def read(client: Client): Unit =
    try
      client.readLine().foreach { line =>
        clients -= client
        // A channel that is registered cannot block, and it is registered until the next selection.
        client.channel.keyFor(selector).cancel()
        selector.selectNow()
        client.channel.configureBlocking(true)
        authenticate(client.channel, line)
      }
    catch { case NonFatal(e) => refuse(client, e.getMessage) }

  private def refuse(client: Client, reason: String): Unit = {
    logWarning(s"A connection to headwater's bridge was refused: $reason")
    disconnect(client)
  }

  private def disconnect(client: Client): Unit = {
    clients -= client
    client.channel.close()
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

  /** In constant time, so that the time to refuse a guess reveals nothing. */
  private def isSecret(sent: String): Boolean =
    MessageDigest.isEqual(sent.getBytes(US_ASCII), secret.getBytes(US_ASCII))

  private def unixServer(): Option[ServerSocketChannel] =
    try {
      val file = ProcessFolder.path.resolve(s"bridge${socketNumbers.incrementAndGet()}")
      val server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)
      file.toFile.deleteOnExit()
      try Some(server.bind(UnixDomainSocketAddress.of(file), Backlog))
      catch { case e: IOException => server.close(); throw e } // the path may be too long for a socket
    } catch {
      case e @ (_: IOException | _: UnsupportedOperationException) =>
        logInfo(s"no Unix domain socket for headwater's bridge, so it is a port: $e")
        None
    }

  private def loopbackServer(): ServerSocketChannel =
    ServerSocketChannel.open().bind(new InetSocketAddress(InetAddress.getLoopbackAddress, 0), Backlog)
}

private[headwater] object BridgeServer {

  /** Of the handshake, the requests and the feeds' streams; the same number is in Python's protocol.py. */
  val ProtocolVersion = 1

  private val MaxHandshakeBytes = 256
  private val RetryMillis = 100L
  private val MaxUnauthenticated = 256
  private val AcceptsAtOnce = 32
  private val Backlog = 1024
  private val ReportEvery = 10.seconds
  private val socketNumbers = new AtomicInteger

  /** A connection that has not sent the secret yet. */
  private final class Client(val channel: SocketChannel, val deadline: Deadline) {
    private[this] val line = new StringBuilder
    private[this] val one = ByteBuffer.allocate(1)

    /** None while the line is incomplete. Byte by byte: what follows it belongs to the receiver of the connection. */
    def readLine(): Option[String] = {
      var read = 1
      while (read == 1 && !line.endsWith("\n")) {
        read = channel.read(one.clear())
        if (read < 0 || line.length >= MaxHandshakeBytes) throw new IOException("it did not say who it is")
        if (read == 1) line += one.get(0).toChar
      }
      Option.when(line.endsWith("\n"))(line.toString.trim)
    }
  }

  def daemon(name: String): java.util.concurrent.ThreadFactory = { work =>
    val thread = new Thread(work, name)
    thread.setDaemon(true)
    thread
  }
}
