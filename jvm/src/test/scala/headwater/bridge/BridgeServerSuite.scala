package headwater.bridge

import java.nio.ByteBuffer
import java.nio.channels.SocketChannel
import java.nio.charset.StandardCharsets.US_ASCII
import java.nio.file.{Files, Path}
import java.nio.file.attribute.PosixFilePermissions
import java.util.concurrent.{LinkedBlockingQueue, TimeUnit}

import scala.util.Using

import headwater.testing.{CapturedLog, NoThreadLeft, Script, TestConnection}
import org.scalatest.funsuite.AnyFunSuite

class BridgeServerSuite extends AnyFunSuite with NoThreadLeft {

  private final class Fixture(val server: BridgeServer, controls: LinkedBlockingQueue[SocketChannel]) {
    def control(): SocketChannel = Option(controls.poll(20, TimeUnit.SECONDS)).get
    def noControl: Boolean = controls.isEmpty

    /** Connects as an authenticated client. */
    def assertWorks(): Unit =
      Using.resource(TestConnection.authenticated(server, "control")) { python =>
        Using.resource(control()) { ours =>
          python.send(Array(42))
          val one = ByteBuffer.allocate(1)
          assert(ours.read(one) == 1 && one.get(0) == 42)
          ours.write(ByteBuffer.wrap(Array[Byte](43)))
          assert(python.read(1).toSeq == Seq[Byte](43))
        }
      }
  }

  private def withServer(unix: Boolean, handshakeMillis: Long = 30000)(body: Fixture => Unit): Unit = {
    val controls = new LinkedBlockingQueue[SocketChannel]
    val server =
      new BridgeServer(unix, (channel, confirm) => { confirm(); controls.add(channel) }, handshakeMillis)
    try body(new Fixture(server, controls))
    finally server.close()
  }

  for (unix <- Seq(true, false)) {
    val kind = if (unix) "a Unix socket" else "a port"

    test(s"on $kind, a client with the secret is accepted, and its connection is passed on") {
      withServer(unix) { fixture =>
        assert(fixture.server.address.startsWith(if (unix) "unix:" else "tcp:"))
        fixture.assertWorks()
      }
    }

    test(s"on $kind, an expected feed is accepted once") {
      withServer(unix) { fixture =>
        val expected = fixture.server.expect("f.0")
        Using.resource(TestConnection.authenticated(fixture.server, "feed f.0")) { feed =>
          val ours = expected.get(20, TimeUnit.SECONDS)
          feed.send(Array(1, 2, 3))
          val three = ByteBuffer.allocate(3)
          while (three.hasRemaining) assert(ours.read(three) > 0)
          assert(three.array.toSeq == Seq[Byte](1, 2, 3), "nothing of it went with the greeting")
          Using.resource(TestConnection.to(fixture.server)) { again =>
            again.sendLine(s"headwater 1 ${fixture.server.secret} feed f.0\n")
            again.awaitDisconnect()
          }
          ours.close()
          feed.awaitDisconnect()
        }
      }
    }

    test(s"on $kind, a client without the secret is disconnected and logged, and others are not affected") {
      withServer(unix) { fixture =>
        val secret = fixture.server.secret
        val lines = Seq(
          "another secret" -> s"headwater 1 ${"0" * 64} control\n",
          "the secret but for one digit" -> s"headwater 1 ${secret.init}${if (secret.last == '0') '1' else '0'} control\n",
          "half of the secret" -> s"headwater 1 ${secret.take(32)} control\n",
          "the secret and more" -> s"headwater 1 ${secret}0 control\n",
          "no secret" -> "headwater 1 control\n",
          "an empty secret" -> "headwater 1  control\n",
          "an empty line" -> "\n",
          "nothing we know" -> "GET / HTTP/1.1\r\n\r\n",
          "no role" -> s"headwater 1 $secret\n",
          "another role" -> s"headwater 1 $secret root\n",
          "a feed without a name" -> s"headwater 1 $secret feed\n",
          "other words" -> s"hello $secret control\n"
        )
        lines.foreach { case (what, line) =>
          withClue(what) {
            CapturedLog(classOf[BridgeServer]) { log =>
              Using.resource(TestConnection.to(fixture.server)) { client =>
                client.sendLine(line)
                client.awaitDisconnect()
              }
              assert(log.has("WARN", "was refused: the secret is wrong or missing"))
              assert(!log.lines.exists(_.contains(secret.take(32))), "the secret is not logged")
            }
            fixture.assertWorks()
          }
        }
        assert(fixture.noControl)
      }
    }

    test(
      s"on $kind, a client of another protocol version is told the version of this side and disconnected"
    ) {
      withServer(unix) { fixture =>
        CapturedLog(classOf[BridgeServer]) { log =>
          Using.resource(TestConnection.to(fixture.server)) { client =>
            client.sendLine(s"headwater 7 ${fixture.server.secret} control\n")
            assert(new String(client.read(10), US_ASCII) == "version 1\n")
            client.awaitDisconnect()
          }
          assert(log.has("WARN", "it speaks version 7 of the protocol, and this jar version 1"))
        }
        fixture.assertWorks()
        assert(fixture.noControl)
      }
    }

    test(s"on $kind, a client whose line is too long is disconnected before it ends") {
      withServer(unix) { fixture =>
        CapturedLog(classOf[BridgeServer]) { log =>
          Using.resource(TestConnection.to(fixture.server)) { client =>
            client.sendLine("x" * 257)
            client.awaitDisconnect()
          }
          assert(log.has("WARN", "it did not say who it is"))
        }
        fixture.assertWorks()
      }
    }

    test(
      s"on $kind, a client that sends half a line is disconnected in time, and others are accepted meanwhile"
    ) {
      withServer(unix, handshakeMillis = 1500) { fixture =>
        CapturedLog(classOf[BridgeServer]) { log =>
          val from = System.nanoTime()
          Using.resource(TestConnection.to(fixture.server)) { half =>
            Using.resource(TestConnection.to(fixture.server)) { silent =>
              half.sendLine(s"headwater 1 ${fixture.server.secret.take(10)}")
              fixture.assertWorks()
              if (System.nanoTime() - from < TimeUnit.MILLISECONDS.toNanos(1000))
                assert(!half.isDisconnected && !silent.isDisconnected, "they have their time")
              half.awaitDisconnect()
              silent.awaitDisconnect()
            }
          }
          val took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - from)
          assert(took >= 1500 && took < 15000)
          Script.await(s"not logged: ${log.lines}")(log.lines.count(_.contains("was refused")) == 2)
        }
      }
    }

    test(s"on $kind, an accepted client is not disconnected after the time for handshakes") {
      withServer(unix, handshakeMillis = 300) { fixture =>
        Using.resource(TestConnection.to(fixture.server)) { silent => // its time starts later than python's
          Using.resource(TestConnection.authenticated(fixture.server, "control")) { python =>
            Using.resource(TestConnection.to(fixture.server)) { later =>
              later.awaitDisconnect()
              silent.awaitDisconnect()
              assert(!python.isDisconnected)
              fixture.control().close()
            }
          }
        }
      }
    }

    test(
      s"on $kind, a hundred unauthenticated clients delay a good one by no more than the time for handshakes"
    ) {
      withServer(unix, handshakeMillis = 500) { fixture =>
        val unauthenticated = Seq.fill(100)(TestConnection.to(fixture.server))
        try {
          Script.await("nobody got in")(
            scala.util.Try(TestConnection.authenticated(fixture.server, "control").close()).isSuccess
          )
          unauthenticated.foreach(_.awaitDisconnect())
        } finally unauthenticated.foreach(_.close())
        fixture.control().close()
        fixture.assertWorks()
      }
    }
  }

  for (unix <- Seq(true, false))
    test(s"1,000 clients that hold their connections open without the secret keep nobody out, unix: $unix") {
      withServer(unix) { fixture =>
        val strangers = Vector.newBuilder[TestConnection]
        try
          (1 to 10).foreach { _ =>
            strangers ++= Seq.fill(100)(TestConnection.to(fixture.server))
            fixture.assertWorks()
            val expected = fixture.server.expect("f.0")
            Using.resource(TestConnection.authenticated(fixture.server, "feed f.0")) { _ =>
              expected.get(20, TimeUnit.SECONDS).close()
            }
          }
        finally strangers.result().foreach(_.close())
        assert(ours.count(_.getName.startsWith("headwater-bridge")) <= 2, "a thread for each of them")
        fixture.assertWorks()
      }
    }

  test(
    "a client that has sent half of its line is not disconnected by those that come later and send nothing"
  ) {
    withServer(unix = false) { fixture =>
      val half = TestConnection.to(fixture.server)
      val line = s"headwater 1 ${fixture.server.secret} control\n"
      half.sendLine(line.take(20))
      val strangers = Seq.fill(200)(TestConnection.to(fixture.server))
      try {
        half.sendLine(line.drop(20))
        assert(half.isAccepted)
        fixture.control().close()
      } finally (half +: strangers).foreach(_.close())
    }
  }

  test("an unexpected feed is refused and logged, and others work") {
    withServer(unix = true) { fixture =>
      CapturedLog(classOf[BridgeServer]) { log =>
        Using.resource(TestConnection.to(fixture.server)) { feed =>
          feed.sendLine(s"headwater 1 ${fixture.server.secret} feed nobody.0\n")
          feed.awaitDisconnect()
        }
        assert(log.has("WARN", "no feed of that name is expected"))
      }
      fixture.assertWorks()
    }
  }

  test("a feed that is no longer expected is refused") {
    withServer(unix = true) { fixture =>
      val expected = fixture.server.expect("f.0")
      fixture.server.cancelExpected("f.0")
      Using.resource(TestConnection.to(fixture.server)) { feed =>
        feed.sendLine(s"headwater 1 ${fixture.server.secret} feed f.0\n")
        feed.awaitDisconnect()
      }
      assert(!expected.isDone)
    }
  }

  test("a feed that was cancelled while it was on its way has its connection closed") {
    withServer(unix = true) { fixture =>
      fixture.server.expect("f.0").cancel(false)
      Using.resource(TestConnection.to(fixture.server)) { feed =>
        feed.sendLine(s"headwater 1 ${fixture.server.secret} feed f.0\n")
        feed.awaitDisconnect()
      }
    }
  }

  test("the folder of the Unix socket is accessible to its owner only") {
    withServer(unix = true) { fixture =>
      val folder = Path.of(fixture.server.address.stripPrefix("unix:")).getParent
      assert(PosixFilePermissions.toString(Files.getPosixFilePermissions(folder)) == "rwx------")
    }
  }

  test("a port is open on the loopback interface only") {
    withServer(unix = false) { fixture =>
      val port = fixture.server.address.stripPrefix("tcp:").toInt
      val others = java.net.NetworkInterface.networkInterfaces
        .flatMap(_.inetAddresses)
        .filter(a => !a.isLoopbackAddress && a.isInstanceOf[java.net.Inet4Address])
        .toArray
        .map(_.asInstanceOf[java.net.InetAddress])
      others.foreach { address =>
        val reached = scala.util.Try(new java.net.Socket(address, port))
        reached.foreach(_.close())
        assert(reached.isFailure, address)
      }
    }
  }

  test("two servers have two secrets, of 256 bits") {
    withServer(unix = true) { one =>
      withServer(unix = true) { two =>
        assert(one.server.secret.matches("[0-9a-f]{64}") && one.server.secret != two.server.secret)
        Using.resource(TestConnection.to(one.server)) { connection =>
          connection.sendLine(s"headwater 1 ${two.server.secret} control\n")
          connection.awaitDisconnect()
        }
      }
    }
  }

  test("close accepts no more connections, and disconnects unauthenticated clients") {
    val server = new BridgeServer(unix = true, (_, _) => (), handshakeMillis = 500)
    Using.resource(TestConnection.to(server)) { silent =>
      server.close()
      assert(scala.util.Try(TestConnection.to(server)).isFailure)
      silent.awaitDisconnect()
    }
  }

  test("a client is connected once it has received ok") {
    val bridge = new Bridge(unix = true)
    try
      (1 to 2000).foreach { round =>
        Using.resource(TestConnection.to(bridge.server)) { python =>
          python.sendLine(s"headwater 1 ${bridge.server.secret} control\n")
          assert(python.isAcceptedNow)
          assert(bridge.isConnected, s"round $round")
        }
        Script.await("its end was not seen")(!bridge.isConnected)
      }
    finally bridge.server.close()
  }
}
