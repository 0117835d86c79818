package headwater.testing

import headwater.buffer.{Buffer, MemoryStore}
import headwater.core.Store

/** A store in memory, with a buffer of the test. */
object InMemory {
  def apply(buffer: Buffer): Store = new MemoryStore("0123456789abcdef", buffer)
}
