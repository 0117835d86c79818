package headwater.testing

import scala.concurrent.duration._
import scala.jdk.CollectionConverters._

import org.scalatest.{Failed, Outcome, TestSuite, TestSuiteMixin}

/** No thread of ours survives a test. */
trait NoThreadLeft extends TestSuiteMixin { this: TestSuite =>

  abstract override def withFixture(test: NoArgTest): Outcome = {
    val before = ours
    val outcome = super.withFixture(test)
    val left = NoThreadLeft.leftAfter(before)
    if (outcome.isSucceeded && left.nonEmpty) Failed(left.mkString("\n")) else outcome
  }

  protected def ours: Set[Thread] = NoThreadLeft.ours
}

object NoThreadLeft {
  def ours: Set[Thread] =
    Thread.getAllStackTraces.keySet.asScala
      .filter(t => t.isAlive && t.getName.startsWith("headwater-"))
      .toSet

  /** Threads that are left after some time to end. */
  def leftAfter(before: Set[Thread]): Set[String] = {
    val deadline = 10000.millis.fromNow
    while ((ours -- before).nonEmpty && deadline.hasTimeLeft()) Thread.sleep(1)
    (ours -- before).map(t => t.getName + t.getStackTrace.mkString(" is left:\n    ", "\n    ", ""))
  }
}
