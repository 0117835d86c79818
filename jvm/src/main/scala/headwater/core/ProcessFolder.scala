package headwater.core

import java.io.Closeable
import java.nio.file.{Files, LinkOption, Path, Paths}
import java.util.concurrent.ConcurrentLinkedQueue

import scala.jdk.CollectionConverters._
import scala.util.Using
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/** A temporary folder of this process, accessible to its user only: for the bridge's socket and for generated jars.
  *
  * A process that is killed leaves its folder behind. The next one deletes it: a folder whose lock is free belongs to a
  * process that is gone.
  */
private[headwater] object ProcessFolder extends Logging {
  private val Prefix = "headwater-"
  private val LockName = "lock"

  // A channel that nobody refers to is closed, and its lock is released.
  private[this] val locks = new ConcurrentLinkedQueue[Closeable]

  lazy val path: Path = create(Paths.get(System.getProperty("java.io.tmpdir")))

  /** The folder stays locked until the process ends, and is deleted then. */
  private[core] def create(parent: Path): Path = {
    val folder = Files.createTempDirectory(parent.toRealPath(), Prefix)
    folder.toFile.deleteOnExit()
    val lock = folder.resolve(LockName)
    lock.toFile.deleteOnExit()
    locks.add(
      FileLock
        .createLocked(lock)
        .fold(owner => throw new IllegalStateException(s"$lock is locked by $owner"), identity)
    )
    sweep(folder)
    folder
  }

  /** Deletes the folders that processes of the same user have left beside this one. */
  private def sweep(folder: Path): Unit =
    try {
      val user = Files.getOwner(folder)
      val others = Using.resource(Files.newDirectoryStream(folder.getParent, s"$Prefix*"))(_.asScala.toVector)
      others
        .filter(other => other != folder && Files.isDirectory(other, LinkOption.NOFOLLOW_LINKS))
        .filter(other => Files.getOwner(other, LinkOption.NOFOLLOW_LINKS) == user)
        .foreach(deleteIfStale)
    } catch { case NonFatal(e) => logDebug(s"folders beside $folder could not be looked at", e) }

  private def deleteIfStale(folder: Path): Unit =
    try {
      val lock = folder.resolve(LockName)
      if (Files.isRegularFile(lock, LinkOption.NOFOLLOW_LINKS))
        FileLock.tryLock(lock).foreach { held =>
          try {
            Using.resource(Files.newDirectoryStream(folder))(_.forEach(Files.delete(_)))
            Files.delete(folder)
            logInfo(s"deleted $folder, which a process that is gone has left")
          } finally held.close()
        }
    } catch { case NonFatal(e) => logDebug(s"$folder could not be deleted", e) }
}
