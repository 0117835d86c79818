package headwater.log

import com.fasterxml.jackson.core.{JsonFactoryBuilder, StreamReadConstraints}
import com.fasterxml.jackson.databind.DeserializationFeature
import com.fasterxml.jackson.databind.cfg.JsonNodeFeature
import com.fasterxml.jackson.databind.json.JsonMapper

/** Keeps JSON numbers exact: a cursor's number may have more digits than a double. Earlier versions accepted cursors
  * that `Cursor.fault` refuses now; their logs can still be read.
  */
private[log] object LogJson {
  private[this] val limits = StreamReadConstraints
    .builder()
    .maxNumberLength(10000)
    .maxStringLength(Int.MaxValue)
    .maxNameLength(Int.MaxValue)
    .build()

  val mapper: JsonMapper = JsonMapper
    .builder(new JsonFactoryBuilder().streamReadConstraints(limits).build())
    .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
    .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
    .disable(JsonNodeFeature.STRIP_TRAILING_BIGDECIMAL_ZEROES)
    .build()
}
