package headwater.bridge

import java.util.concurrent.atomic.AtomicLong

import headwater.core.Json
import headwater.testing.{NoThreadLeft, Script}
import org.scalatest.funsuite.AnyFunSuite

class PythonPartitionWatchSuite extends AnyFunSuite with NoThreadLeft {

  test("a wait ends even if the last of its time passes while it is looked at") {
    val bridge = new Bridge(unix = true)
    try {
      val clock = new AtomicLong // each look at it takes a millisecond
      val watch =
        new PythonPartitionWatch(bridge, "f", Json.mapper.createObjectNode(), () => clock.getAndAdd(1000000))
      @volatile var isComplete = Option.empty[Boolean]
      val waiting = new Thread(() => isComplete = Some(watch.awaitComplete(2000000)))
      waiting.setDaemon(true)
      waiting.start()
      Script.await("it waits for ever")(isComplete.nonEmpty)
      assert(!isComplete.get)
    } finally bridge.server.close()
  }
}
