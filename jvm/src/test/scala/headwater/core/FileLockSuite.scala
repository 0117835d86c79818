package headwater.core

import java.io.{Closeable, File}
import java.net.URLClassLoader
import java.nio.file.{Files, Path}
import java.util.concurrent.TimeUnit

import scala.util.Using

import org.scalatest.funsuite.AnyFunSuite

class FileLockSuite extends AnyFunSuite {
  private def newFolder: Path = Files.createTempDirectory("headwater-locks").toRealPath()

  private val classPath = System.getProperty("java.class.path")

  private def withCopy[T](body: ClassLoader => T): T = {
    val urls = classPath.split(File.pathSeparator).map(new File(_).toURI.toURL)
    Using.resource(new URLClassLoader(urls, ClassLoader.getPlatformClassLoader))(body)
  }

  /** Takes a lock with another copy of the class. */
  private def tryLockIn(loader: ClassLoader, path: Path): Option[Closeable] = {
    val module = loader.loadClass("headwater.core.FileLock$")
    assert(module != FileLock.getClass)
    val result = module.getMethod("tryLock", classOf[Path]).invoke(module.getField("MODULE$").get(null), path)
    Option.when(result.getClass.getName == "scala.util.Right")(
      result.getClass.getMethod("value").invoke(result).asInstanceOf[Closeable]
    )
  }

  private def isFreeElsewhere(path: Path): Boolean = start("try", path).waitFor() == 0

  private def start(what: String, path: Path): Process = {
    val java = Path.of(System.getProperty("java.home"), "bin", "java").toString
    new ProcessBuilder(java, "-cp", classPath, "headwater.core.FileLockProcess", what, path.toString)
      .redirectErrorStream(true)
      .start()
  }

  test("two copies of the class in two class loaders see each other's locks, and do not release them") {
    val path = newFolder.resolve("lock")
    withCopy { one =>
      withCopy { two =>
        val held = tryLockIn(one, path).get
        assert(
          tryLockIn(two, path).isEmpty && FileLock.tryLock(path) == Left("another query of this application")
        )
        assert(!isFreeElsewhere(path), "the operating system's lock is gone")
        held.close()
        assert(isFreeElsewhere(path))
        FileLock.tryLock(path).toOption.get.close()
      }
    }
  }

  test("the lock of a killed process is free") {
    val path = newFolder.resolve("lock")
    val other = start("hold", path)
    try {
      assert(other.getInputStream.read() == '!')
      assert(FileLock.tryLock(path) == Left("another process"))
    } finally other.destroyForcibly().waitFor()
    FileLock.tryLock(path).toOption.get.close()
  }

  test("the folders of killed processes are deleted at the next start, those in use are not") {
    val parent = newFolder
    def folders = parent.toFile.list.toSet
    val other = start("folder", parent)
    assert(other.getInputStream.read() == '!')
    val theirs = folders
    val foreign = Files.createDirectory(parent.resolve("headwater-notes"))
    Files.writeString(foreign.resolve("todo"), "kept")
    Files.createSymbolicLink(parent.resolve("headwater-link"), foreign)
    val first = ProcessFolder.create(parent)
    Files.createFile(first.resolve("bridge1"))
    assert(theirs.size == 1 && theirs.subsetOf(folders), "it is in use")
    other.destroyForcibly().waitFor(60, TimeUnit.SECONDS)
    withCopy { loader => // of the same process, as another copy of the class
      val module = loader.loadClass("headwater.core.ProcessFolder$")
      val second =
        module.getMethod("create", classOf[Path]).invoke(module.getField("MODULE$").get(null), parent)
      val left = Set(first, second.asInstanceOf[Path]).map(_.getFileName.toString)
      assert(folders == left ++ Set("headwater-notes", "headwater-link"))
      assert(Files.exists(first.resolve("bridge1")) && Files.exists(foreign.resolve("todo")))
      assert(!isFreeElsewhere(first.resolve("lock")))
    }
  }
}

/** A process of its own. */
object FileLockProcess {
  def main(arguments: Array[String]): Unit = {
    val path = Path.of(arguments(1))
    arguments(0) match {
      case "try" => System.exit(if (FileLock.tryLock(path).isRight) 0 else 1)
      case "hold" => FileLock.tryLock(path)
      case "folder" => Files.createFile(ProcessFolder.create(path).resolve("letters-1.jar"))
    }
    System.out.print("!")
    System.out.flush()
    System.in.read() // until it is killed
    ()
  }
}
