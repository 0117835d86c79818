package headwater.core

import java.util.Locale
import java.util.concurrent.TimeUnit

import headwater.InvalidOptionException
import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap

/** The options that one `load()` was given to a source, read strictly: each error names the option, its value and what is
  * allowed. Names match ignoring case and underscores.
  *
  * @param known
  *   every option this source has, its own ones first
  */
private[headwater] final class SourceOptions(
    source: String,
    written: Map[String, String],
    known: Seq[String]
) {
  import SourceOptions._

  private[this] val values: Map[String, String] = {
    written.keys.groupBy(plain).values.find(_.size > 1).foreach { twins =>
      invalid(
        s"Source '$source' got one option under two names: ${twins.toSeq.sorted.mkString("'", "', '", "'")}."
      )
    }
    val knownByPlain = known.map(name => plain(name) -> name).toMap
    written.map { case (name, value) => knownByPlain.getOrElse(plain(name), unknown(name)) -> value }
  }

  /** The names of those that were set, as they are documented. */
  def set: Seq[String] = known.filter(values.contains)

  def optional[T](name: String)(read: Reader[T]): Option[T] = values.get(name).map(parse(name, _, read))

  def required[T](name: String)(read: Reader[T]): T =
    optional(name)(read).getOrElse(invalid(s"Source '$source' needs the option '$name': ${read.allowed}."))

  private def parse[T](name: String, value: String, read: Reader[T]): T =
    read
      .parse(value.trim)
      .getOrElse(invalid(s"Option '$name' of source '$source' is '$value', it must be ${read.allowed}."))

  private def unknown(name: String): Nothing =
    invalid(s"Source '$source' has no option '$name'. Its options are: ${known.mkString(", ")}.")
}

private[headwater] object SourceOptions {

  /** Options as they were written: Spark hands them over with their names in lower case, and with what they were. */
  def written(parameters: Map[String, String]): Map[String, String] = parameters match {
    case spelled: CaseInsensitiveMap[String @unchecked] => spelled.originalMap
    case plain => plain
  }

  /** Those that are called as one of `names`, and the others. */
  def split(written: Map[String, String], names: Seq[String]): (Map[String, String], Map[String, String]) = {
    val ours = names.map(plain).toSet
    written.partition { case (name, _) => ours(plain(name)) }
  }

  /** How a value is read, and what is said of a value that cannot be. */
  final case class Reader[T](allowed: String)(val parse: String => Option[T])

  def wholeNumber(min: Long, max: Long = Long.MaxValue): Reader[Long] =
    Reader(
      if (max == Long.MaxValue) s"a whole number, $min or more" else s"a whole number from $min to $max"
    ) {
      _.toLongOption.filter(n => min <= n && n <= max)
    }

  val anyLong: Reader[Long] =
    Reader(s"a whole number from ${Long.MinValue} to ${Long.MaxValue}")(_.toLongOption)

  val bytes: Reader[Long] = Reader("a size of at least 1 byte, such as 500k, 64m or 2g") { text =>
    attempt(JavaUtils.byteStringAsBytes(text)).filter(_ > 0)
  }

  /** In nanoseconds. Without a unit, 10 would mean seconds to one reader and milliseconds to another. */
  val duration: Reader[Long] = Reader("a duration with its unit, such as 250ms, 10s, 15m or 2h") {
    case Duration(count, unit) => attempt(Math.multiplyExact(count.toLong, Units(unit)))
    case _ => None
  }

  private val Duration = """(\d{1,18})\s*(ms|s|m|h|d)""".r
  private val Units = Map(
    "ms" -> TimeUnit.MILLISECONDS.toNanos(1),
    "s" -> TimeUnit.SECONDS.toNanos(1),
    "m" -> TimeUnit.MINUTES.toNanos(1),
    "h" -> TimeUnit.HOURS.toNanos(1),
    "d" -> TimeUnit.DAYS.toNanos(1)
  )

  val boolean: Reader[Boolean] = Reader("true or false")(_.toLowerCase(Locale.ROOT).toBooleanOption)

  def oneOf(words: String*): Reader[String] =
    Reader(words.mkString(" or "))(text => Some(text.toLowerCase(Locale.ROOT)).filter(words.contains))

  private def plain(name: String): String = name.toLowerCase(Locale.ROOT).replace("_", "")

  private def attempt[T](body: => T): Option[T] =
    try Some(body)
    catch { case _: IllegalArgumentException | _: ArithmeticException => None }

  private def invalid(message: String): Nothing = throw new InvalidOptionException(message)
}
