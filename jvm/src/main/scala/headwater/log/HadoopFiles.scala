package headwater.log

import java.io.{Closeable, FileNotFoundException}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}

/** A folder on a Hadoop file system, to be read. Nothing is created. */
private[headwater] class HadoopFolder(folder: Path, conf: Configuration) extends LogFolder {

  override def pathOf(name: String): String =
    if (name.isEmpty) folder.toString else new Path(folder, name).toString

  override def list(): Seq[String] =
    try folder.getFileSystem(conf).listStatus(folder).map(_.getPath.getName).toVector
    catch { case _: FileNotFoundException => Vector.empty }

  override def read(name: String): LogFiles.In = HadoopFiles.open(new Path(folder, name), conf)
}

/** A folder on a Hadoop file system. A file is durable once it is closed, as far as that file system guarantees
  * it. Many of them cannot append to a durable file, so each sync group is a file. There is no lock: a driver
  * that finds the manifest of a newer epoch stops.
  */
private[headwater] final class HadoopFiles(folder: Path, conf: Configuration)
    extends HadoopFolder(folder, conf)
    with LogFiles {
  private[this] val fs: FileSystem = folder.getFileSystem(conf)
  fs.mkdirs(folder)

  /** Creating without overwriting lets only one of two drivers take an epoch. */
  override def writeAtomically(name: String, bytes: Array[Byte]): Unit = {
    val out = fs.create(new Path(folder, name), false)
    try out.write(bytes)
    finally out.close()
  }

  override def create(name: String): LogFiles.Out = new LogFiles.Out {
    private[this] val out = fs.create(new Path(folder, name), false)

    override def write(bytes: Array[Byte]): Unit = out.write(bytes)
    override def sync(): Unit = out.close()
    override def truncate(length: Long): Unit = () // each sync group is a file, which is deleted
    override def close(): Unit = out.close()
  }

  override def delete(name: String): Unit = fs.delete(new Path(folder, name), false)

  override def sync(name: String): Unit = () // it was closed, or does not exist

  override def canAppend: Boolean = false

  override def lock(): Closeable = () => ()
}

private[headwater] object HadoopFiles {

  def open(path: Path, conf: Configuration): LogFiles.In = new LogFiles.In {
    private[this] val fs = path.getFileSystem(conf)
    override val length: Long = fs.getFileStatus(path).getLen
    private[this] val in = fs.open(path)

    override def readAt(position: Long, into: Array[Byte], wanted: Int): Int = {
      val available = math.max(0L, math.min(wanted.toLong, length - position)).toInt
      in.readFully(position, into, 0, available)
      available
    }

    override def close(): Unit = in.close()
  }
}
