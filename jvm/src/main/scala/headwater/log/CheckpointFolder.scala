package headwater.log

import java.io.{FileNotFoundException, IOException}
import java.nio.file.{Files, FileSystemException, NoSuchFileException, Path, Paths}

import scala.util.Using
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{Path => HadoopPath}

/** What keeps a report from being made: the cause, and what to do about it. */
private[headwater] final class CheckpointException(val what: String, val remedy: String)
    extends RuntimeException(s"$what. Fix: $remedy.")

/** The folder of a checkpoint, to be read: on a local disk without Hadoop, elsewhere through Hadoop's file system. */
private[log] sealed trait CheckpointFolder {

  /** As it is shown. */
  def path: String

  def exists: Boolean

  /** @param names of folders, each within the one before */
  def isFolder(names: String*): Boolean

  def folder(names: String*): LogFolder

  /** The names of all files and folders; empty if there is no such folder. */
  final def list(names: String*): Seq[String] = if (isFolder(names: _*)) folder(names: _*).list() else Nil
}

private[log] object CheckpointFolder {
  private val Scheme = """(?s)([A-Za-z][A-Za-z0-9+.-]+):(.*)""".r // one letter is a drive
  private val Expected =
    "give the checkpointLocation of a query: the folder that holds offsets, commits and sources"

  /** @throws CheckpointException
    *   when that is not the checkpoint of a query
    */
  def open(location: String): CheckpointFolder = {
    val folder = find(location)
    if (!folder.isFolder()) {
      val what = if (folder.exists) "is not a folder" else "does not exist"
      throw new CheckpointException(s"the checkpoint $location $what", Expected)
    }
    if (!folder.isFolder("offsets") && !folder.isFolder("sources")) {
      val within = if (isLog(folder.folder())) ", it is the log of one source" else ""
      throw new CheckpointException(
        s"$location is not a checkpoint of a query: it has neither offsets nor sources$within",
        Expected
      )
    }
    folder
  }

  def isLog(folder: LogFolder): Boolean =
    folder.list().exists(name => SegmentHeader.parse(name).nonEmpty || Manifest.epochOf(name).nonEmpty)

  private def find(location: String): CheckpointFolder = location match {
    case _ if isLocal(location) => new Local(Paths.get(location))
    case Scheme(scheme, rest) if scheme.equalsIgnoreCase("file") =>
      new Local(Paths.get(rest.replaceFirst("^//(localhost)?(?=/)", "")))
    case Scheme(_, _) =>
      try new Hadoop(location, new HadoopPath(location), new Configuration)
      catch { case e @ (NonFatal(_) | _: LinkageError) => throw unreadable(location, e.getMessage) }
    case _ => new Local(Paths.get(location))
  }

  private def isLocal(location: String): Boolean =
    try Files.exists(Paths.get(location))
    catch { case _: java.nio.file.InvalidPathException => false }

  /** What is told of a file that cannot be read. */
  def unreadable(location: String, e: IOException): CheckpointException = e match {
    case e: FileSystemException => unreadable(e.getFile, Option(e.getReason).getOrElse(reason(e)))
    case e: FileNotFoundException =>
      e.getMessage match {
        case Refused(file, why) => unreadable(file, why)
        case message => unreadable(location, message)
      }
    case _ => unreadable(location, e.getMessage)
  }

  private val Refused = """(?s)(.+) \((.+)\)""".r // how java.io says it

  private def reason(e: FileSystemException): String = e match {
    case _: java.nio.file.AccessDeniedException => "Permission denied"
    case _: java.nio.file.NotDirectoryException => "Not a directory"
    case _ => e.getClass.getSimpleName
  }

  private def unreadable(location: String, message: String): CheckpointException = {
    val why =
      Option(message).flatMap(_.linesIterator.nextOption()).getOrElse("the file system gives no reason")
    val remedy =
      if (Scheme.matches(location) && !isLocal(location))
        "check the address and the rights, and that the file system's jars are in Spark's folder jars, or on " +
          "SPARK_DIST_CLASSPATH, and its configuration in HADOOP_CONF_DIR"
      else "check the rights of the file, and the disk"
    new CheckpointException(s"$location cannot be read: $why", remedy)
  }

  private final class Local(folder: Path) extends CheckpointFolder {
    override def path: String = {
      val names = folder.toString.split("/").toSeq.filter(name => name != ".")
      if (names.isEmpty) folder.toString else names.mkString("/")
    }

    override def exists: Boolean = Files.exists(folder)
    override def isFolder(names: String*): Boolean = Files.isDirectory(within(names))
    override def folder(names: String*): LogFolder = new LocalFolder(within(names))
    private def within(names: Seq[String]): Path = names.foldLeft(folder)(_.resolve(_))
  }

  private final class Hadoop(val path: String, folder: HadoopPath, conf: Configuration)
      extends CheckpointFolder {
    private[this] val fs = folder.getFileSystem(conf)

    override def exists: Boolean = fs.exists(folder)

    override def isFolder(names: String*): Boolean =
      try fs.getFileStatus(within(names)).isDirectory
      catch { case _: FileNotFoundException => false }

    override def folder(names: String*): LogFolder = new HadoopFolder(within(names), conf)
    private def within(names: Seq[String]): HadoopPath = names.foldLeft(folder)(new HadoopPath(_, _))
  }

  /** Reads again if a running query deletes a file meanwhile. */
  def stable[T](folder: LogFolder)(read: => T): T = {
    def attempt(left: Int): T =
      try read
      catch {
        case e @ (_: NoSuchFileException | _: FileNotFoundException | _: LogChangedException) =>
          if (left > 1) attempt(left - 1)
          else
            e match {
              case e: FileNotFoundException => throw unreadable(folder.pathOf(""), e)
              case _ =>
                throw new CheckpointException(
                  s"the log in ${folder.pathOf("")} changes faster than it can be read",
                  "stop the query that writes it, and try again"
                )
            }
      }
    attempt(Tries)
  }

  private val Tries = 3

  /** The content of a file, None if it is larger than `maxBytes`. */
  def bytes(folder: LogFolder, name: String, maxBytes: Int): Option[Array[Byte]] =
    Using.resource(folder.read(name)) { in =>
      Option.when(in.length <= maxBytes) {
        val bytes = new Array[Byte](in.length.toInt)
        bytes.take(in.readAt(0, bytes, bytes.length))
      }
    }
}
