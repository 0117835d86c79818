package headwater.testing

import headwater.buffer.{Buffer, MemoryStore}
import headwater.core.Store

/** A store in memory, around a buffer of the test's own. */
object InMemory {
  def apply(buffer: Buffer): Store = new MemoryStore("0123456789abcdef", buffer)
}
