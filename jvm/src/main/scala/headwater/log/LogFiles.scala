package headwater.log

import java.io.Closeable
import java.nio.charset.StandardCharsets.UTF_8

import scala.util.Using

/** The folder in which a log lies. What makes bytes durable differs from one file system to the next; that is all that is
  * known here.
  *
  * '''One thread''' writes. Reading files may be done by any.
  */
private[headwater] trait LogFiles {

  /** For messages, and for tasks: where a file is. */
  def pathOf(name: String): String

  def list(): Seq[String]

  def read(name: String): LogFiles.In

  /** A small file, as text; what is beyond so many bytes is left out. */
  final def text(name: String, maxBytes: Long): String = Using.resource(read(name)) { in =>
    val bytes = new Array[Byte](math.min(in.length, maxBytes).toInt)
    in.readAt(0, bytes, bytes.length)
    new String(bytes, UTF_8)
  }

  /** A file that is there whole or not at all, whatever happens; durable on return. */
  def writeWhole(name: String, bytes: Array[Byte]): Unit

  /** A new file, which must not exist yet. Its name is durable with the first [[LogFiles.Out.sync]]. */
  def create(name: String): LogFiles.Out

  def delete(name: String): Unit

  /** Makes durable what an earlier process may have written and not synced. */
  def sync(name: String): Unit

  /** Whether what is written is there after a restart of the query. */
  def isDurable: Boolean = true

  /** Whether a file can be added to after a [[LogFiles.Out.sync]]; if not, each group needs a file of its own. */
  def canAppend: Boolean

  /** Keeps others from writing, until closed.
    *
    * @throws java.io.IOException
    *   says who has it
    */
  def lock(): Closeable
}

private[headwater] object LogFiles {

  trait In extends Closeable {
    def length: Long

    /** Fills the array as far as the file goes. Says how many bytes that were. */
    def readAt(position: Long, into: Array[Byte], length: Int): Int
  }

  trait Out extends Closeable {
    def write(bytes: Array[Byte]): Unit

    /** Returns when all that was written would survive a power cut, as far as this file system can promise that. */
    def sync(): Unit
  }
}
