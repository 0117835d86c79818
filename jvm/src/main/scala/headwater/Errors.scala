package headwater

/** An option that cannot be used. Thrown at `load()`; the message names the option, its value and what is allowed. */
final class InvalidOptionException(message: String) extends IllegalArgumentException(message)

/** An offset that this source did not write, or that it cannot understand. */
final class InvalidOffsetException(message: String, cause: Throwable = null)
    extends IllegalArgumentException(message, cause)

/** Rows that Spark asks for and that are gone. */
final class DataLossException(message: String) extends IllegalStateException(message)

/** A feed that gave up. Of a feed in Python, the message ends with Python's traceback. */
final class FeedFailedException(message: String, cause: Throwable = null)
    extends IllegalStateException(message, cause)

/** The Python process of this driver is not there, or does not answer as it should. */
final class BridgeException(message: String, cause: Throwable = null)
    extends IllegalStateException(message, cause)
