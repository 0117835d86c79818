package headwater.log

import java.io.{Closeable, IOException}
import java.nio.channels.FileChannel
import java.nio.file.{Files, NoSuchFileException, Path, StandardOpenOption}
import java.util.concurrent.CountDownLatch

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.{Random, Using}

/** A folder that tracks which of its bytes and names would survive a power cut. The files are real, so that tasks can read
  * them. A process is a [[FaultyFiles]].
  */
final class Disk extends Closeable {
  val folder: Path = Files.createTempDirectory("headwater-disk")

  /** The durable part of each file whose name is durable. */
  private[this] val durable = mutable.Map.empty[String, Array[Byte]]
  private[this] var owner = Option.empty[FaultyFiles]

  private[log] var space = Long.MaxValue
  private[log] var total = Option.empty[Long]
  private[log] var failedSync = Option.empty[String]
  private[log] var syncs = 0
  private[log] var refused = 0
  private[log] var gate = Option.empty[CountDownLatch]

  /** How many more bytes can be written. */
  def limit(bytes: Long): Unit = synchronized { space = bytes }

  /** The same, on a disk of a size that its users can ask for. */
  def resize(free: Long, total: Long): Unit = synchronized {
    space = free
    this.total = Some(total)
  }

  def free: Long = synchronized(space)

  /** The next syncs fail. */
  def failSyncs(message: String): Unit = synchronized { failedSync = Some(message) }

  /** Syncs wait until it is opened. */
  def block(): CountDownLatch = synchronized {
    val latch = new CountDownLatch(1)
    gate = Some(latch)
    latch
  }

  def refusedWrites: Int = synchronized(refused)

  def syncCount: Int = synchronized(syncs)

  def names: Seq[String] = synchronized(list().filter(_ != "lock").sorted)

  def segments: Seq[String] = names.filter(_.endsWith(".segment"))

  /** Flips one bit. */
  def flip(name: String, position: Int, bit: Int): Unit = synchronized {
    val bytes = Files.readAllBytes(folder.resolve(name))
    bytes(position) = (bytes(position) ^ (1 << bit)).toByte
    put(name, bytes)
  }

  def put(name: String, bytes: Array[Byte]): Unit = synchronized {
    Files.write(folder.resolve(name), bytes)
    durable(name) = bytes
  }

  def remove(name: String): Unit = synchronized {
    Files.delete(folder.resolve(name))
    durable.remove(name)
  }

  def bytes(name: String): Array[Byte] = Files.readAllBytes(folder.resolve(name))

  /** A power cut: synced bytes stay. Of the rest any part may have reached the disk, in any order: names, deletions, and
    * pieces of files, with zeros between them.
    */
  def loseUnsynced(random: Random): Unit = synchronized {
    owner = None
    list().filterNot(durable.contains).foreach { name =>
      if (random.nextBoolean()) Files.delete(folder.resolve(name))
      else {
        Files.write(folder.resolve(name), survivors(Array.emptyByteArray, bytes(name), random))
        durable(name) = bytes(name)
      }
    }
    durable.keys.toSeq.sorted.foreach { name =>
      val path = folder.resolve(name)
      if (Files.exists(path)) durable(name) = survivors(durable(name), bytes(name), random)
      else if (random.nextBoolean()) durable.remove(name)
      durable.get(name).foreach(Files.write(path, _))
    }
  }

  private[log] def survivors(synced: Array[Byte], all: Array[Byte], random: Random): Array[Byte] = {
    val length = synced.length + random.nextInt(all.length - synced.length + 1)
    val left = all.take(length)
    val sector = Seq(1, 8, 64, 512)(random.nextInt(4))
    val lost = random.nextInt(3) // of four
    synced.length.until(length, sector).foreach { from =>
      if (random.nextInt(4) < lost)
        java.util.Arrays.fill(left, from, math.min(from + sector, length), 0.toByte)
    }
    left
  }

  override def close(): Unit = {
    list().foreach(name => Files.delete(folder.resolve(name)))
    Files.delete(folder)
  }

  private[log] def list(): Seq[String] =
    Using.resource(Files.list(folder))(_.iterator.asScala.map(_.getFileName.toString).toVector)

  private[log] def lock(by: FaultyFiles): Closeable = synchronized {
    if (owner.exists(_ ne by))
      throw new IOException(s"$folder is locked by another query of this application")
    owner = Some(by)
    () => release(by)
  }

  private[log] def release(by: FaultyFiles): Unit = synchronized { if (owner.exists(_ eq by)) owner = None }

  /** @return how many bytes there was room for */
  private[log] def write(path: Path, bytes: Array[Byte]): Int = synchronized {
    val fits = math.min(bytes.length.toLong, space).toInt
    Files.write(path, bytes.take(fits), StandardOpenOption.APPEND)
    if (space < Long.MaxValue) space -= fits
    fits
  }

  private[log] def makeDurable(name: String): Unit = synchronized {
    durable(name) = bytes(name)
    syncFolder()
  }

  private[log] def syncFolder(): Unit = synchronized {
    val there = list().toSet
    durable.keys.toSeq.filterNot(there).foreach(durable.remove)
    // Now the names of files without durable bytes are durable too.
    there
      .filterNot(durable.contains)
      .filter(_.endsWith(".segment"))
      .foreach(durable(_) = Array.emptyByteArray)
  }
}

/** The view of one process on a [[Disk]]. The process can die at any step; its later steps have no effect.
  *
  * @param canAppend
  *   if not, each sync group needs a file of its own, and there is no lock
  */
final class FaultyFiles(val disk: Disk, override val canAppend: Boolean = true) extends LogFiles {
  private[this] var stepsLeft = Long.MaxValue

  /** Dies after this many steps, as by kill -9. */
  def dieAfter(steps: Long): Unit = disk.synchronized { stepsLeft = steps }

  def die(): Unit = {
    dieAfter(0)
    disk.release(this)
  }

  def isDead: Boolean = disk.synchronized(stepsLeft <= 0)

  private def step[T](body: => T): T = disk.synchronized {
    if (stepsLeft <= 0) throw new IOException("this process is dead")
    stepsLeft -= 1
    body
  }

  override def pathOf(name: String): String = disk.folder.resolve(name).toUri.toString

  override def list(): Seq[String] = step(disk.list())

  override def read(name: String): LogFiles.In = step(LocalFiles.open(disk.folder.resolve(name)))

  override def writeAtomically(name: String, bytes: Array[Byte]): Unit = step {
    fullIf(disk.space < bytes.length)
    disk.put(name, bytes)
    disk.syncFolder()
  }

  override def create(name: String): LogFiles.Out = step {
    fullIf(disk.space <= 0)
    val path = disk.folder.resolve(name)
    Files.write(path, Array.emptyByteArray, StandardOpenOption.CREATE_NEW)
    new LogFiles.Out {
      override def write(bytes: Array[Byte]): Unit = step(fullIf(disk.write(path, bytes) < bytes.length))

      override def sync(): Unit = {
        disk.synchronized(disk.gate).foreach(_.await())
        step {
          disk.syncs += 1
          disk.failedSync.foreach(message => throw new IOException(message))
          disk.makeDurable(name)
        }
      }

      override def truncate(length: Long): Unit = step {
        if (disk.space < Long.MaxValue) disk.space += Files.size(path) - length
        Using.resource(FileChannel.open(path, StandardOpenOption.WRITE))(_.truncate(length))
        ()
      }

      override def close(): Unit = ()
    }
  }

  override def space: Option[LogFiles.Space] =
    disk.synchronized(disk.total.map(LogFiles.Space(disk.space, _)))

  override def delete(name: String): Unit = step {
    val path = disk.folder.resolve(name)
    if (!Files.exists(path)) throw new NoSuchFileException(name)
    if (disk.space < Long.MaxValue) disk.space += Files.size(path)
    Files.delete(path)
  }

  override def sync(name: String): Unit = step(disk.makeDurable(name))

  override def lock(): Closeable = if (canAppend) disk.lock(this) else () => ()

  private def fullIf(full: Boolean): Unit = if (full) {
    disk.refused += 1
    throw new IOException("No space left on device")
  }
}
