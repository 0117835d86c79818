package headwater.core

import com.fasterxml.jackson.databind.json.JsonMapper

/** JSON for everything that has no stricter rules: [[OffsetJson]] reads offsets. */
private[headwater] object Json {
  val mapper: JsonMapper = JsonMapper.builder().build()
}
