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

/** The local socket to which the driver's Python connects. It is a Unix domain socket in a folder that only this user can
  * enter, or else a port of the loopback interface.
  *
  * Who connects says one line first, `headwater SECRET control` or `headwater SECRET feed ID`, and is answered `ok`. Who
  * does not know the secret, or takes too long to say it, is cut off, and nobody else notices.
  *
  * @param onControl
  *   gets the connection over which Python takes its orders, and has to call what comes with it: that answers `ok`
  * @param greetingMillis
  *   how long who connects may take to say who it is
  */
private[headwater] final class BridgeServer(
    unix: Boolean,
    onControl: (SocketChannel, () => Unit) => Unit,
    greetingMillis: Long = 10000L
) extends AutoCloseable
    with Logging {
  import BridgeServer._

  /** What Python has to say; it gets it through py4j. */
  val secret: String = {
    val bytes = new Array[Byte](32)
    new SecureRandom().nextBytes(bytes)
    bytes.map(b => f"$b%02x").mkString
  }

  private[this] val server = if (unix) unixServer().getOrElse(loopbackServer()) else loopbackServer()
  private[this] val expected = new ConcurrentHashMap[String, CompletableFuture[SocketChannel]]
  private[this] val strangers = new Semaphore(MaxStrangers)
  private[this] val timer = new ScheduledThreadPoolExecutor(1, daemon("headwater-bridge-timer"))
  timer.setRemoveOnCancelPolicy(true)

  daemon("headwater-bridge").newThread(() => accept()).start()

  /** `unix:PATH` or `tcp:PORT`. */
  def address: String = server.getLocalAddress match {
    case file: UnixDomainSocketAddress => s"unix:${file.getPath}"
    case port: InetSocketAddress => s"tcp:${port.getPort}"
    case other => throw new IllegalStateException(s"an address of an unknown kind: $other")
  }

  /** The connection that the feed of that name will open. */
  def expect(feed: String): CompletableFuture[SocketChannel] =
    expected.computeIfAbsent(feed, _ => new CompletableFuture)

  /** A connection that comes after this is closed. */
  def expectNoMore(feed: String): Unit = expected.remove(feed)

  /** Who is still to say who it is has its time for that. */
  override def close(): Unit = {
    server.close()
    timer.shutdown()
  }

  private def accept(): Unit =
    while (server.isOpen) {
      try {
        val channel = server.accept()
        if (strangers.tryAcquire())
          daemon("headwater-bridge-greeting").newThread(() => greet(channel)).start()
        else channel.close()
      } catch {
        case e: IOException if server.isOpen => // out of descriptors, for instance: that may pass
          logWarning("A connection to headwater's bridge could not be taken", e)
          Thread.sleep(RetryMillis)
        case _: IOException => // closed
      }
    }

  private def greet(channel: SocketChannel): Unit = {
    try {
      val cutOff = timer.schedule((() => channel.close()): Runnable, greetingMillis, TimeUnit.MILLISECONDS)
      try admit(channel, firstLine(channel))
      finally cutOff.cancel(false)
    } catch {
      case NonFatal(e) =>
        logWarning(s"A connection to headwater's bridge was refused: ${e.getMessage}")
        channel.close()
    } finally strangers.release()
  }

  private def admit(channel: SocketChannel, greeting: String): Unit = {
    def welcome(): Unit = channel.write(ByteBuffer.wrap("ok\n".getBytes(US_ASCII)))
    greeting.split(' ') match {
      case Array("headwater", said, "control") if isSecret(said) => onControl(channel, () => welcome())
      case Array("headwater", said, "feed", id) if isSecret(said) =>
        val waiting =
          Option(expected.remove(id)).getOrElse(throw new IOException("no feed of that name is expected"))
        welcome()
        if (!waiting.complete(channel)) channel.close()
      case _ => throw new IOException("the secret is wrong or missing")
    }
  }

  /** Byte by byte: what follows the line belongs to whoever gets the connection. */
  private def firstLine(channel: SocketChannel): String = {
    val line = new StringBuilder
    val one = ByteBuffer.allocate(1)
    while (line.isEmpty || line.last != '\n') {
      if (channel.read(one.clear()) < 0 || line.length >= MaxGreeting)
        throw new IOException("it did not say who it is")
      line += one.get(0).toChar
    }
    line.toString.trim
  }

  /** In constant time, so that a guess learns nothing from how long it took to be refused. */
  private def isSecret(said: String): Boolean =
    MessageDigest.isEqual(said.getBytes(US_ASCII), secret.getBytes(US_ASCII))

  private def unixServer(): Option[ServerSocketChannel] =
    try {
      val folder = Files.createTempDirectory("headwater-") // for its owner only, by Java's own default
      folder.toFile.deleteOnExit()
      val file = folder.resolve("bridge")
      file.toFile.deleteOnExit()
      val server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)
      try Some(server.bind(UnixDomainSocketAddress.of(file)))
      catch { case e: IOException => server.close(); throw e } // a path may be too long for a socket
    } catch {
      case e @ (_: IOException | _: UnsupportedOperationException) =>
        logInfo(s"no Unix domain socket for headwater's bridge, so it is a port: $e")
        None
    }

  private def loopbackServer(): ServerSocketChannel =
    ServerSocketChannel.open().bind(new InetSocketAddress(InetAddress.getLoopbackAddress, 0))
}

private[headwater] object BridgeServer {
  private val MaxGreeting = 256
  private val RetryMillis = 100L
  private val MaxStrangers = 64

  def daemon(name: String): java.util.concurrent.ThreadFactory = { work =>
    val thread = new Thread(work, name)
    thread.setDaemon(true)
    thread
  }
}
