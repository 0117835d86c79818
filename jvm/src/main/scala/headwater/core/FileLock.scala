package headwater.core

import java.io.Closeable
import java.nio.channels.FileChannel
import java.nio.file.{Files, LinkOption, Path, StandardCopyOption, StandardOpenOption}

/** The operating system's lock of a file. It ends with its process, so nobody finds one after kill -9.
  *
  * It also ends when its process closes any handle of that file, so the rest of the process must not even open it. The
  * files that the process has locked are therefore system properties: a jar that was added as an artifact is loaded more
  * than once, and each copy of this class has statics of its own.
  */
private[headwater] object FileLock {

  /** Takes the lock, or returns who has it.
    *
    * @param path
    *   without links; created if it does not exist
    */
  def tryLock(path: Path): Either[String, Closeable] = tryLock(path, path)

  /** Creates a file that is locked from the moment at which it exists, or returns who has it. */
  def createLocked(path: Path): Either[String, Closeable] = {
    val temporary = path.resolveSibling(s"${path.getFileName}.tmp")
    val lock = tryLock(path, temporary)
    lock.foreach(_ => Files.move(temporary, path, StandardCopyOption.ATOMIC_MOVE))
    lock
  }

  /** @param opened the file that is to be opened, whose name is or will be `path` */
  private def tryLock(path: Path, opened: Path): Either[String, Closeable] = {
    val property = s"headwater.lock.$path"
    if (System.getProperties.putIfAbsent(property, "held") != null) Left("another query of this application")
    else {
      var isTaken = false
      try {
        val file = FileChannel.open(
          opened,
          StandardOpenOption.CREATE,
          StandardOpenOption.WRITE,
          LinkOption.NOFOLLOW_LINKS
        )
        try isTaken = file.tryLock() != null
        finally if (!isTaken) file.close()
        if (!isTaken) Left("another process")
        else
          Right { () =>
            if (file.isOpen) {
              file.close()
              System.getProperties.remove(property)
              ()
            }
          }
      } finally if (!isTaken) System.getProperties.remove(property)
    }
  }
}
