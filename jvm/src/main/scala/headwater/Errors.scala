package headwater

/** An option that cannot be used. Thrown at `load()`; the message names the option, its value and what is allowed. */
final class InvalidOptionException(message: String) extends IllegalArgumentException(message)

/** An offset that this source did not write, or that it cannot understand. */
final class InvalidOffsetException(message: String, cause: Throwable = null)
    extends IllegalArgumentException(message, cause)

/** Rows that Spark asks for and that are gone. */
final class DataLossException(message: String) extends IllegalStateException(message)
