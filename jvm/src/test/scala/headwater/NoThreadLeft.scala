package headwater

import scala.jdk.CollectionConverters._

import org.scalatest.{BeforeAndAfterEach, Suite}

/** No thread of ours survives a test. */
trait NoThreadLeft extends BeforeAndAfterEach { this: Suite =>
  private var before = Set.empty[Thread]

  override protected def beforeEach(): Unit = {
    super.beforeEach()
    before = ours
  }

  override protected def afterEach(): Unit = {
    super.afterEach()
    Script.await(s"left over: ${(ours -- before).map(describe).mkString("\n")}")((ours -- before).isEmpty)
  }

  protected def ours: Set[Thread] =
    Thread.getAllStackTraces.keySet.asScala.filter(t => t.isAlive && t.getName.startsWith("headwater-")).toSet

  private def describe(thread: Thread): String =
    thread.getName + thread.getStackTrace.mkString("\n    ", "\n    ", "")
}
