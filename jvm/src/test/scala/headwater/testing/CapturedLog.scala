package headwater.testing

import java.util.concurrent.ConcurrentLinkedQueue

import scala.jdk.CollectionConverters._

import org.apache.logging.log4j.{LogManager, Level}
import org.apache.logging.log4j.core.{LogEvent, Logger}
import org.apache.logging.log4j.core.appender.AbstractAppender
import org.apache.logging.log4j.core.config.Property

/** The log lines of a class while `body` runs, as `LEVEL message`, from all threads. */
object CapturedLog {
  final class Lines {
    private[CapturedLog] val all = new ConcurrentLinkedQueue[String]
    def lines: Seq[String] = all.asScala.toSeq
    def has(level: String, part: String): Boolean =
      lines.exists(line => line.startsWith(level) && line.contains(part))
  }

  def apply[T](of: Class[_])(body: Lines => T): T = {
    val lines = new Lines
    val appender = new AbstractAppender(s"log-${System.nanoTime()}", null, null, true, Property.EMPTY_ARRAY) {
      override def append(event: LogEvent): Unit =
        lines.all.add(s"${event.getLevel} ${event.getMessage.getFormattedMessage}")
    }
    val logger = LogManager.getLogger(of.getName).asInstanceOf[Logger]
    val level = logger.getLevel
    appender.start()
    logger.addAppender(appender)
    logger.setLevel(Level.DEBUG)
    try body(lines)
    finally {
      logger.setLevel(level)
      logger.removeAppender(appender)
      appender.stop()
    }
  }
}
