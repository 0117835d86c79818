package headwater.core

import java.util.concurrent.TimeUnit.NANOSECONDS

import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.InvalidOptionException

/** The options of every source written in Python, beside [[BufferedOptions]]. Python acts on all of them except
  * `concurrency`. `linger` is in nanoseconds.
  */
private[headwater] final case class PythonOptions(
    concurrency: Int,
    onError: String,
    maxRestarts: Option[Long],
    onBadRow: String,
    linger: Long,
    batchRows: Long,
    startCursor: Option[String]
) {

  /** How many times in a row the author's code may fail before the query fails. */
  def maxConsecutiveErrors: Long = if (onError == "fail") 0 else maxRestarts.getOrElse(Long.MaxValue)

  def writeTo(request: ObjectNode): ObjectNode = {
    maxRestarts.foreach(request.put("maxRestarts", _))
    request
      .put("onError", onError)
      .put("onBadRow", onBadRow)
      .put("lingerMs", NANOSECONDS.toMillis(linger))
      .put("batchRows", batchRows)
  }
}

private[headwater] object PythonOptions {
  val names: Seq[String] =
    Seq("onError", "maxRestarts", "onBadRow", "concurrency", "linger", "batchRows", "startCursor")

  def read(options: SourceOptions): PythonOptions = {
    import SourceOptions._
    val parsed = PythonOptions(
      concurrency = options.optional("concurrency")(integer(1, 256)).getOrElse(1L).toInt,
      onError = options.optional("onError")(oneOf("fail", "restart", "end")).getOrElse("fail"),
      maxRestarts = options.optional("maxRestarts")(integer(0)),
      onBadRow = options.optional("onBadRow")(oneOf("fail", "drop", "null")).getOrElse("fail"),
      linger = options.optional("linger")(duration).getOrElse(10000000L),
      batchRows = options.optional("batchRows")(integer(1, 1 << 20)).getOrElse(8192L),
      startCursor = options.optional("startCursor")(
        SourceOptions.OptionType("a cursor, as JSON")(text => Some(text).filter(_.nonEmpty))
      )
    )
    if (parsed.maxRestarts.nonEmpty && parsed.onError != "restart")
      throw new InvalidOptionException(
        s"Option 'maxRestarts' is '${parsed.maxRestarts.get}', and 'onError' is '${parsed.onError}': set onError to " +
          "restart, or leave maxRestarts out."
      )
    parsed
  }
}
