package headwater.testing

import java.io.IOException
import java.net.{InetAddress, InetSocketAddress, UnixDomainSocketAddress}
import java.nio.ByteBuffer
import java.nio.channels.SocketChannel
import java.nio.charset.StandardCharsets.US_ASCII

import scala.concurrent.duration._

import headwater.bridge.BridgeServer

/** Python's end of a connection. Every wait has a timeout. */
final class TestConnection(channel: SocketChannel) extends AutoCloseable {
  channel.configureBlocking(false)

  def send(bytes: Array[Byte]): Unit = {
    val left = ByteBuffer.wrap(bytes)
    Script.await(s"${left.remaining} bytes are not taken") { channel.write(left); !left.hasRemaining }
  }

  def sendLine(line: String): Unit = send(line.getBytes(US_ASCII))

  def read(length: Int): Array[Byte] = {
    val bytes = ByteBuffer.allocate(length)
    Script.await(s"${bytes.remaining} bytes did not come") {
      if (channel.read(bytes) < 0) throw new IOException("closed by the other side")
      !bytes.hasRemaining
    }
    bytes.array
  }

  def isAccepted: Boolean = new String(read(3), US_ASCII) == "ok\n"

  /** The same, without sleeping. */
  def isAcceptedNow: Boolean = {
    val response = ByteBuffer.allocate(3)
    val deadline = 20000.millis.fromNow
    while (response.hasRemaining && deadline.hasTimeLeft()) channel.read(response)
    new String(response.array, US_ASCII) == "ok\n"
  }

  /** Whether the other side has closed it. Pending input is discarded. */
  def isDisconnected: Boolean =
    try {
      val some = ByteBuffer.allocate(1024)
      var count = channel.read(some)
      while (count > 0) count = channel.read(some.clear())
      count < 0
    } catch { case _: IOException => true }

  def awaitDisconnect(): Unit = Script.await("it was not cut off")(isDisconnected)

  override def close(): Unit = channel.close()
}

object TestConnection {
  def to(server: BridgeServer): TestConnection = new TestConnection(
    server.address.split(":", 2) match {
      case Array("unix", path) => SocketChannel.open(UnixDomainSocketAddress.of(path))
      case Array("tcp", port) =>
        SocketChannel.open(new InetSocketAddress(InetAddress.getLoopbackAddress, port.toInt))
      case other => throw new AssertionError(s"an address like ${other.mkString(":")}")
    }
  )

  /** Connects and authenticates. */
  def authenticated(server: BridgeServer, role: String): TestConnection = {
    val connection = to(server)
    try {
      connection.sendLine(s"headwater ${BridgeServer.ProtocolVersion} ${server.secret} $role\n")
      if (!connection.isAccepted) throw new AssertionError(s"$role was not answered ok")
    } catch { case e: Throwable => connection.close(); throw e }
    connection
  }
}
