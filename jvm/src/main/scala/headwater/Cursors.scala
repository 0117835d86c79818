package headwater

import com.fasterxml.jackson.core.JsonProcessingException

/** Cursors are JSON. */
private[headwater] object Cursors {

  /** Of what somebody wrote for an option: JSON, and what is not JSON is a text. */
  def fromOption(text: String): String = if (isJson(text)) text else Peer.Json.writeValueAsString(text)

  private def isJson(text: String): Boolean =
    try !Peer.Json.readTree(text).isMissingNode
    catch { case _: JsonProcessingException => false }
}
