package headwater.log

import java.io.{Closeable, IOException, RandomAccessFile}
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{Files, FileSystemException, LinkOption, Path, StandardCopyOption, StandardOpenOption}
import java.nio.file.attribute.BasicFileAttributes

import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.Using
import scala.util.control.NonFatal

import headwater.core.FileLock

/** A folder on a local disk, to be read. Nothing is created. */
private[headwater] class LocalFolder(folder: Path) extends LogFolder {

  override def pathOf(name: String): String = folder.resolve(name).toUri.toString

  override def list(): Seq[String] =
    Using.resource(Files.list(folder))(_.iterator.asScala.map(_.getFileName.toString).toVector)

  override def read(name: String): LogFiles.In = LocalFiles.open(folder.resolve(name))
}

/** A folder on a local disk, without Hadoop: its local file system writes checksum files of its own and does not
  * sync.
  *
  * Syncing a file makes its bytes durable, syncing its folder makes its name durable, and syncing the parent
  * folder makes the folder's name durable.
  *
  * @param durable
  *   false for a temporary folder: nothing is synced
  */
private[headwater] final class LocalFiles(folder: Path, durable: Boolean)
    extends LocalFolder(folder)
    with LogFiles {
  import LocalFiles._

  withPath(folder)(createFolder(folder))

  override def writeAtomically(name: String, bytes: Array[Byte]): Unit = withPath(folder.resolve(name)) {
    val temporary = folder.resolve(s"$name.tmp")
    Files.deleteIfExists(temporary)
    try {
      Using.resource(newFile(temporary)) { out =>
        writeFully(out, bytes)
        if (durable) out.force(true)
      }
      Files.move(temporary, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE)
    } catch { case NonFatal(e) => Files.deleteIfExists(temporary); throw e }
    syncFolder(folder)
  }

  override def create(name: String): LogFiles.Out = new LogFiles.Out {
    private[this] val out = newFile(folder.resolve(name))
    private[this] var isNameDurable = false

    override def write(bytes: Array[Byte]): Unit = writeFully(out, bytes)

    override def sync(): Unit = if (durable) {
      out.force(false)
      if (!isNameDurable) syncFolder(folder)
      isNameDurable = true
    }

    override def truncate(length: Long): Unit = out.truncate(length)
    override def close(): Unit = out.close()
  }

  override def delete(name: String): Unit = Files.deleteIfExists(folder.resolve(name))

  override def sync(name: String): Unit = if (durable) {
    val file = checkRegular(folder.resolve(name))
    Using.resource(FileChannel.open(file, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS))(_.force(true))
    syncFolder(folder)
  }

  override def isDurable: Boolean = durable

  override def canAppend: Boolean = true

  override def space: Option[LogFiles.Space] = {
    val disk = folder.toFile // Files.getFileStore fails where the mount is not visible, as in a chroot
    Option(disk.getTotalSpace).filter(_ > 0).map(LogFiles.Space(disk.getUsableSpace, _))
  }

  override def lock(): Closeable = {
    val path = folder.toRealPath().resolve("lock")
    if (Files.exists(path, LinkOption.NOFOLLOW_LINKS)) checkRegular(path)
    // The owner may be about to end, and a stopped query may still be writing.
    val deadline = LockTimeout.fromNow
    def tryLock() = withPath(path)(FileLock.tryLock(path))
    var lock = tryLock()
    while (lock.isLeft && deadline.hasTimeLeft()) {
      Thread.sleep(20)
      lock = tryLock()
    }
    lock.fold(
      who => throw new IOException(s"$path is locked by $who: one query at a time may use a checkpoint"),
      identity
    )
  }

  private def newFile(path: Path): FileChannel =
    FileChannel.open(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)

  private def writeFully(out: FileChannel, bytes: Array[Byte]): Unit = {
    val buffer = ByteBuffer.wrap(bytes)
    while (buffer.hasRemaining) {
      // In pieces: the JDK keeps a direct buffer for each thread, as large as the largest write.
      val piece = buffer.duplicate().limit(math.min(buffer.limit(), buffer.position() + (1 << 20)))
      buffer.position(buffer.position() + out.write(piece))
    }
  }

  /** Creates missing parent folders too, and makes the name of each new folder durable. */
  private def createFolder(path: Path): Unit = if (!Files.isDirectory(path)) {
    Option(path.getParent).foreach(createFolder)
    Files.createDirectories(path)
    Option(path.getParent).foreach(syncFolder)
  }

  private def syncFolder(path: Path): Unit =
    if (durable) Using.resource(FileChannel.open(path, StandardOpenOption.READ))(_.force(true))
}

private[headwater] object LocalFiles {

  private val LockTimeout = 3.seconds

  /** Names the path where the disk is full: the operating system does not. */
  private def withPath[T](path: Path)(body: => T): T =
    try body
    catch {
      case e: IOException if LogFiles.isFull(e) =>
        val full = new FileSystemException(
          path.toString,
          null,
          "No space left on device. Free space on this disk, then start the query again"
        )
        full.initCause(e)
        throw full
    }

  /** Only regular files belong in the folder of a log. To open a named pipe would block, and a link may lead to a file
    * without end.
    */
  private def checkRegular(path: Path): Path = {
    val attributes = Files.readAttributes(path, classOf[BasicFileAttributes], LinkOption.NOFOLLOW_LINKS)
    if (!attributes.isRegularFile) throw new FileSystemException(path.toString, null, "Not a regular file")
    path
  }

  /** Not a channel: an interrupt would close it, and Spark interrupts the query's thread and its tasks. */
  def open(path: Path): LogFiles.In = new LogFiles.In {
    private[this] val file = new RandomAccessFile(checkRegular(path).toFile, "r")

    override def length: Long = file.length()

    override def readAt(position: Long, into: Array[Byte], length: Int): Int = {
      file.seek(position)
      var read = 0
      var more = true
      while (more && read < length) {
        val n = file.read(into, read, length - read)
        more = n > 0
        if (more) read += n
      }
      read
    }

    override def close(): Unit = file.close()
  }
}
