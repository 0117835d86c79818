package headwater

/** An invalid option. Thrown at `load()`; the message names the option, its value and what is allowed. */
final class InvalidOptionException(message: String) extends IllegalArgumentException(message)

/** An offset that this source did not write, or cannot parse. */
final class InvalidOffsetException(message: String, cause: Throwable = null)
    extends IllegalArgumentException(message, cause)

/** Spark asks for rows that no longer exist. */
final class DataLossException(message: String) extends IllegalStateException(message)

/** A feed failed. For a feed in Python, the message ends with the Python traceback. */
final class FeedFailedException(message: String, cause: Throwable = null)
    extends IllegalStateException(message, cause)

private[headwater] object FeedFailedException {

  /** Without a stack of the JVM: the Python traceback is what helps, and Spark logs all of an exception. */
  def inPython(message: String): FeedFailedException = {
    val error = new FeedFailedException(message)
    error.setStackTrace(Array.empty)
    error
  }
}

/** The Python process is missing, or did not respond as expected. */
final class BridgeException(message: String, cause: Throwable = null)
    extends IllegalStateException(message, cause)
