package headwater.log

import java.io.{Closeable, IOException}
import java.nio.charset.StandardCharsets.UTF_8

import scala.util.Using

/** A folder that is only read. Any thread may use it, and others may change the folder meanwhile. */
private[headwater] trait LogFolder {

  /** The path of a file, for messages and for tasks. */
  def pathOf(name: String): String

  def list(): Seq[String]

  def read(name: String): LogFiles.In

  /** The content of a small file, up to `maxBytes`. */
  final def text(name: String, maxBytes: Long): String = Using.resource(read(name)) { in =>
    val bytes = new Array[Byte](math.min(in.length, maxBytes).toInt)
    in.readAt(0, bytes, bytes.length)
    new String(bytes, UTF_8)
  }
}

/** The folder of a log, for its writer. Implementations differ in what makes bytes durable.
  *
  * Only one thread may write.
  */
private[headwater] trait LogFiles extends LogFolder {

  /** Writes a file as a whole or not at all; durable on return. */
  def writeAtomically(name: String, bytes: Array[Byte]): Unit

  /** Creates a file, which must not exist. Its name is durable after the first [[LogFiles.Out.sync]]. */
  def create(name: String): LogFiles.Out

  def delete(name: String): Unit

  /** Makes durable what an earlier process may have written without a sync. */
  def sync(name: String): Unit

  /** Whether the files survive a restart of the query. */
  def isDurable: Boolean = true

  /** Whether a file can grow after a [[LogFiles.Out.sync]]. If not, each sync group needs a file of its own. */
  def canAppend: Boolean

  /** The space on the disk, where it is known. */
  def space: Option[LogFiles.Space] = None

  /** Keeps other writers out, until closed.
    *
    * @throws java.io.IOException
    *   names the owner of the lock
    */
  def lock(): Closeable
}

private[headwater] object LogFiles {

  trait In extends Closeable {
    def length: Long

    /** Fills the array as far as the file goes. Returns the number of bytes. */
    def readAt(position: Long, into: Array[Byte], length: Int): Int
  }

  trait Out extends Closeable {
    def write(bytes: Array[Byte]): Unit

    /** Returns when everything written would survive a power cut, as far as the file system can guarantee it. */
    def sync(): Unit

    /** Cuts off what was written after this position. The file is written no further. */
    def truncate(length: Long): Unit
  }

  /** In bytes.
    *
    * @param usable
    *   how many can still be written
    */
  final case class Space(usable: Long, total: Long)

  /** Whether a disk had no room. */
  def isFull(e: IOException): Boolean =
    Option(e.getMessage).exists(message => FullMessages.exists(message.contains))

  private val FullMessages = Seq("No space left on device", "Disk quota exceeded")
}
