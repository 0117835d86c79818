package headwater.core

import java.util.Locale
import java.util.concurrent.TimeUnit

import headwater.InvalidOptionException
import org.apache.spark.network.util.JavaUtils

/** The options of one `load()`, parsed strictly: each error names the option, its value and what is allowed.
  * Names match ignoring case and underscores.
  *
  * @param original
  *   the options, with names as the user wrote them
  * @param known
  *   every option of this source, its own options first
  */
private[headwater] final class SourceOptions(
    source: String,
    original: Map[String, String],
    known: Seq[String]
) {
  import SourceOptions._

  private[this] val values: Map[String, String] = {
    original.keys.groupBy(normalize).values.find(_.size > 1).foreach { duplicates =>
      invalid(
        s"Source '$source' got one option under two names: ${duplicates.toSeq.sorted.mkString("'", "', '", "'")}."
      )
    }
    val canonicalNames = known.map(name => normalize(name) -> name).toMap
    original.map { case (name, value) => canonicalNames.getOrElse(normalize(name), unknown(name)) -> value }
  }

  /** The options that were set, by their documented names. */
  def set: Seq[String] = known.filter(values.contains)

  def optional[T](name: String)(optionType: OptionType[T]): Option[T] =
    values.get(name).map(parse(name, _, optionType))

  def required[T](name: String)(optionType: OptionType[T]): T =
    optional(name)(optionType).getOrElse(
      invalid(s"Source '$source' needs the option '$name': ${optionType.allowed}.")
    )

  /** An option of the [[OptionTable]]: its value, or its default. `T` is the type that its option type parses to. */
  def get[T](name: String): T =
    find[T](name).getOrElse(throw new IllegalStateException(s"option '$name' has no default"))

  /** The same for an option that may have no default. */
  def find[T](name: String): Option[T] = {
    val entry = OptionTable(name)
    val optionType = entry.optionType.asInstanceOf[OptionType[T]]
    optional(name)(optionType).orElse(entry.default.map(parse(name, _, optionType)))
  }

  private def parse[T](name: String, value: String, optionType: OptionType[T]): T =
    optionType
      .parse(value.trim)
      .getOrElse(
        invalid(s"Option '$name' of source '$source' is '$value', it must be ${optionType.allowed}.")
      )

  private def unknown(name: String): Nothing =
    invalid(s"Source '$source' has no option '$name'. Its options are: ${known.mkString(", ")}.")
}

private[headwater] object SourceOptions {

  /** Separates the options in `names` from the others. */
  def split(original: Map[String, String], names: Seq[String]): (Map[String, String], Map[String, String]) = {
    val ours = names.map(normalize).toSet
    original.partition { case (name, _) => ours(normalize(name)) }
  }

  /** The options of both; those in `over` win. */
  def overlay(base: Map[String, String], over: Map[String, String]): Map[String, String] =
    split(base, over.keys.toSeq)._2 ++ over

  /** Parses the value of an option; `allowed` completes the error message "it must be …". */
  final case class OptionType[T](allowed: String)(val parse: String => Option[T])

  def integer(min: Long, max: Long = Long.MaxValue): OptionType[Long] =
    OptionType(
      if (max == Long.MaxValue) s"an integer, $min or more" else s"an integer from $min to $max"
    ) {
      _.toLongOption.filter(n => min <= n && n <= max)
    }

  val anyLong: OptionType[Long] =
    OptionType(s"an integer from ${Long.MinValue} to ${Long.MaxValue}")(_.toLongOption)

  val bytes: OptionType[Long] = OptionType("a size of at least 1 byte, such as 500k, 64m or 2g") { value =>
    tryParse(JavaUtils.byteStringAsBytes(value)).filter(_ > 0)
  }

  /** In nanoseconds. The unit is required: without it, 10 could mean seconds or milliseconds. */
  val duration: OptionType[Long] = OptionType("a duration with its unit, such as 250ms, 10s, 15m or 2h") {
    case Duration(count, unit) => tryParse(Math.multiplyExact(count.toLong, Units(unit)))
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

  val boolean: OptionType[Boolean] = OptionType("true or false")(_.toLowerCase(Locale.ROOT).toBooleanOption)

  def oneOf(values: String*): OptionType[String] =
    OptionType(values.mkString(" or "))(value => Some(value.toLowerCase(Locale.ROOT)).filter(values.contains))

  private def normalize(name: String): String = name.toLowerCase(Locale.ROOT).replace("_", "")

  private def tryParse[T](body: => T): Option[T] =
    try Some(body)
    catch { case _: IllegalArgumentException | _: ArithmeticException => None }

  private def invalid(message: String): Nothing = throw new InvalidOptionException(message)
}
