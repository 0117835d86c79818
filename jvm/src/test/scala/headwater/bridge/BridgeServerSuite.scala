package headwater.bridge

import java.nio.ByteBuffer
import java.nio.channels.SocketChannel
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

    /** Somebody who has every right to connect does so. */
    def assertWorks(): Unit =
      Using.resource(TestConnection.admitted(server, "control")) { python =>
        Using.resource(control()) { ours =>
          python.send(Array(42))
          val one = ByteBuffer.allocate(1)
          assert(ours.read(one) == 1 && one.get(0) == 42)
          ours.write(ByteBuffer.wrap(Array[Byte](43)))
          assert(python.read(1).toSeq == Seq[Byte](43))
        }
      }
  }

  private def withServer(unix: Boolean, greetingMillis: Long = 30000)(body: Fixture => Unit): Unit = {
    val controls = new LinkedBlockingQueue[SocketChannel]
    val server =
      new BridgeServer(unix, (channel, welcome) => { welcome(); controls.add(channel) }, greetingMillis)
    try body(new Fixture(server, controls))
    finally server.close()
  }

  for (unix <- Seq(true, false)) {
    val kind = if (unix) "a Unix socket" else "a port"

    test(s"on $kind, who knows the secret is let in, and the connection is handed over") {
      withServer(unix) { fixture =>
        assert(fixture.server.address.startsWith(if (unix) "unix:" else "tcp:"))
        fixture.assertWorks()
      }
    }

    test(s"on $kind, a feed that is expected gets through, once") {
      withServer(unix) { fixture =>
        val expected = fixture.server.expect("f.0")
        Using.resource(TestConnection.admitted(fixture.server, "feed f.0")) { feed =>
          val ours = expected.get(20, TimeUnit.SECONDS)
          feed.send(Array(1, 2, 3))
          val three = ByteBuffer.allocate(3)
          while (three.hasRemaining) assert(ours.read(three) > 0)
          assert(three.array.toSeq == Seq[Byte](1, 2, 3), "nothing of it went with the greeting")
          Using.resource(TestConnection.to(fixture.server)) { again =>
            again.say(s"headwater ${fixture.server.secret} feed f.0\n")
            again.awaitCut()
          }
          ours.close()
          feed.awaitCut()
        }
      }
    }

    test(s"on $kind, who does not know the secret is cut off and logged, and nobody else notices") {
      withServer(unix) { fixture =>
        val secret = fixture.server.secret
        val lines = Seq(
          "another secret" -> s"headwater ${"0" * 64} control\n",
          "the secret but for one digit" -> s"headwater ${secret.init}${if (secret.last == '0') '1' else '0'} control\n",
          "half of the secret" -> s"headwater ${secret.take(32)} control\n",
          "the secret and more" -> s"headwater ${secret}0 control\n",
          "no secret" -> "headwater control\n",
          "an empty secret" -> "headwater  control\n",
          "an empty line" -> "\n",
          "nothing we know" -> "GET / HTTP/1.1\r\n\r\n",
          "no role" -> s"headwater $secret\n",
          "another role" -> s"headwater $secret root\n",
          "a feed without a name" -> s"headwater $secret feed\n",
          "other words" -> s"hello $secret control\n"
        )
        lines.foreach { case (what, line) =>
          withClue(what) {
            CapturedLog(classOf[BridgeServer]) { log =>
              Using.resource(TestConnection.to(fixture.server)) { stranger =>
                stranger.say(line)
                stranger.awaitCut()
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

    test(s"on $kind, a line that is too long is cut off before it ends") {
      withServer(unix) { fixture =>
        CapturedLog(classOf[BridgeServer]) { log =>
          Using.resource(TestConnection.to(fixture.server)) { stranger =>
            stranger.say("x" * 257)
            stranger.awaitCut()
          }
          assert(log.has("WARN", "it did not say who it is"))
        }
        fixture.assertWorks()
      }
    }

    test(s"on $kind, who says half a line and no more is cut off in time, and others get in meanwhile") {
      withServer(unix, greetingMillis = 1500) { fixture =>
        CapturedLog(classOf[BridgeServer]) { log =>
          val from = System.nanoTime()
          Using.resource(TestConnection.to(fixture.server)) { half =>
            Using.resource(TestConnection.to(fixture.server)) { silent =>
              half.say(s"headwater ${fixture.server.secret.take(10)}")
              fixture.assertWorks()
              if (System.nanoTime() - from < TimeUnit.MILLISECONDS.toNanos(1000))
                assert(!half.isCut && !silent.isCut, "they have their time")
              half.awaitCut()
              silent.awaitCut()
            }
          }
          val took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - from)
          assert(took >= 1500 && took < 15000)
          Script.await(s"not logged: ${log.lines}")(log.lines.count(_.contains("was refused")) == 2)
        }
      }
    }

    test(s"on $kind, who is let in is not cut off when the time for greetings is over") {
      withServer(unix, greetingMillis = 300) { fixture =>
        Using.resource(TestConnection.to(fixture.server)) { silent => // its time starts later than python's
          Using.resource(TestConnection.admitted(fixture.server, "control")) { python =>
            Using.resource(TestConnection.to(fixture.server)) { later =>
              later.awaitCut()
              silent.awaitCut()
              assert(!python.isCut)
              fixture.control().close()
            }
          }
        }
      }
    }

    test(s"on $kind, a hundred strangers at once do not keep a good one out for longer than their time") {
      withServer(unix, greetingMillis = 500) { fixture =>
        val strangers = Seq.fill(100)(TestConnection.to(fixture.server))
        try {
          Script.await("nobody got in")(
            scala.util.Try(TestConnection.admitted(fixture.server, "control").close()).isSuccess
          )
          strangers.foreach(_.awaitCut())
        } finally strangers.foreach(_.close())
        fixture.control().close()
        fixture.assertWorks()
      }
    }
  }

  test("a feed that nobody expects is refused, and logged, and others work") {
    withServer(unix = true) { fixture =>
      CapturedLog(classOf[BridgeServer]) { log =>
        Using.resource(TestConnection.to(fixture.server)) { feed =>
          feed.say(s"headwater ${fixture.server.secret} feed nobody.0\n")
          feed.awaitCut()
        }
        assert(log.has("WARN", "no feed of that name is expected"))
      }
      fixture.assertWorks()
    }
  }

  test("a feed that is expected no more is refused") {
    withServer(unix = true) { fixture =>
      val expected = fixture.server.expect("f.0")
      fixture.server.expectNoMore("f.0")
      Using.resource(TestConnection.to(fixture.server)) { feed =>
        feed.say(s"headwater ${fixture.server.secret} feed f.0\n")
        feed.awaitCut()
      }
      assert(!expected.isDone)
    }
  }

  test("a feed that was cancelled while it was on its way has its connection closed") {
    withServer(unix = true) { fixture =>
      fixture.server.expect("f.0").cancel(false)
      Using.resource(TestConnection.to(fixture.server)) { feed =>
        feed.say(s"headwater ${fixture.server.secret} feed f.0\n")
        feed.awaitCut()
      }
    }
  }

  test("the folder of the Unix socket is for its owner only") {
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
        Using.resource(TestConnection.to(one.server)) { caller =>
          caller.say(s"headwater ${two.server.secret} control\n")
          caller.awaitCut()
        }
      }
    }
  }

  test("close takes no more connections, and lets go of those who have not said who they are") {
    val server = new BridgeServer(unix = true, (_, _) => (), greetingMillis = 500)
    Using.resource(TestConnection.to(server)) { silent =>
      Script.await("it was not taken")(ours.exists(_.getName == "headwater-bridge-greeting"))
      server.close()
      assert(scala.util.Try(TestConnection.to(server)).isFailure)
      silent.awaitCut()
    }
  }

  test("who is answered ok is connected from then on") {
    val bridge = new Bridge(unix = true)
    try
      (1 to 2000).foreach { round =>
        Using.resource(TestConnection.to(bridge.server)) { python =>
          python.say(s"headwater ${bridge.server.secret} control\n")
          assert(python.isAdmittedNow)
          assert(bridge.isConnected, s"round $round")
        }
        Script.await("its end was not seen")(!bridge.isConnected)
      }
    finally bridge.server.close()
  }
}
