package headwater.core

import java.util.concurrent.TimeUnit.NANOSECONDS

import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.InvalidOptionException

/** The options of every source written in Python, beside [[BufferedOptions]]. Python acts on all of them except
  * `concurrency` and `ackOn`. `linger` is in nanoseconds.
  */
private[headwater] final case class PythonOptions(
    concurrency: Int,
    onError: String,
    maxRestarts: Option[Long],
    onBadRow: String,
    linger: Long,
    batchRows: Long,
    startCursor: Option[String],
    ackOn: String
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
  def read(options: SourceOptions): PythonOptions = {
    val parsed = PythonOptions(
      concurrency = options.get[Long]("concurrency").toInt,
      onError = options.get[String]("onError"),
      maxRestarts = options.find[Long]("maxRestarts"),
      onBadRow = options.get[String]("onBadRow"),
      linger = options.get[Long]("linger"),
      batchRows = options.get[Long]("batchRows"),
      startCursor = options.find[String]("startCursor"),
      ackOn = options.get[String]("ackOn")
    )
    if (parsed.maxRestarts.nonEmpty && parsed.onError != "restart")
      throw new InvalidOptionException(
        s"Option 'maxRestarts' is '${parsed.maxRestarts.get}', and 'onError' is '${parsed.onError}': set onError to " +
          "restart, or leave maxRestarts out."
      )
    for (cursor <- parsed.startCursor; fault <- Cursor.fault(Cursor.jsonOf(cursor), parsed.concurrency))
      throw new InvalidOptionException(
        s"Option 'startCursor' is '${OffsetJson.shorten(cursor)}', which cannot be a cursor: $fault."
      )
    parsed
  }
}
