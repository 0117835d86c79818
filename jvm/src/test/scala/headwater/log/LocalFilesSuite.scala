package headwater.log

import java.io.IOException
import java.nio.file.{Files, Path}

import scala.util.{Failure, Success, Try}

import headwater.testing.{NoThreadLeft, Script}
import org.scalatest.funsuite.AnyFunSuite

/** What is not a regular file, in the folder of a log. */
class LocalFilesSuite extends AnyFunSuite with NoThreadLeft {
  import Logs._

  private val strange: Seq[(String, Path => Unit)] = Seq(
    "a named pipe" -> (path => assert(new ProcessBuilder("mkfifo", path.toString).start().waitFor() == 0)),
    "a link to /dev/zero" -> (path => { Files.createSymbolicLink(path, Path.of("/dev/zero")); () }),
    "a link to a file" -> (path => {
      val target = Files.createTempFile("headwater", ".segment")
      Files.createSymbolicLink(path, target)
      ()
    }),
    "a link to nothing" -> (path => { Files.createSymbolicLink(path, Path.of("nowhere")); () }),
    "a folder" -> (path => { Files.createDirectory(path); () })
  )

  /** The outcome, within a time: to open a pipe may block for ever. */
  private def inTime[T](body: => T): Try[T] = {
    @volatile var outcome = Option.empty[Try[T]]
    val thread = new Thread(() => outcome = Some(Try(body)))
    thread.setDaemon(true)
    thread.start()
    Script.await("it blocks")(outcome.nonEmpty)
    outcome.get
  }

  private def withLog[T](body: Path => T): T = {
    val folder = Files.createTempDirectory("headwater-files")
    withStore(new LocalFiles(folder, durable = true))(append(_, rowGroup(0, 3)))
    body(folder)
  }

  private def start(folder: Path): Try[Seq[Long]] =
    inTime(withStore(new LocalFiles(folder, durable = true), known = offset(0))(all))

  for ((what, create) <- strange) {
    for (
      name <- Seq(
        "00000001-000000000007.segment",
        "00000000-000000000000.segment",
        "manifest-00000009.json",
        "lock"
      )
    )
      test(s"$what with the name $name is refused by name, and removing it is enough") {
        withLog { folder =>
          val path = folder.resolve(name)
          Files.deleteIfExists(path)
          create(path)
          start(folder) match {
            case Failure(e: IOException) =>
              assert(e.getMessage.contains(name) && e.getMessage.contains("Not a regular file"), e)
            case other => fail(s"it gave $other")
          }
          Files.delete(path)
          assert(start(folder) == Success(Seq(0L, 1L, 2L)))
        }
      }

    test(s"$what cannot be read by a task") {
      val path = Files.createTempDirectory("headwater-files").resolve("00000001-000000000000.segment")
      create(path)
      val error = inTime(LocalFiles.open(path).close()).failed.get
      assert(error.getMessage == s"$path: Not a regular file")
    }

    test(s"a checkpoint with $what is reported, not read") {
      val checkpoint = Files.createTempDirectory("headwater-files")
      Files.createDirectories(checkpoint.resolve("offsets"))
      val source = Files.createDirectories(checkpoint.resolve("sources").resolve("0"))
      withStore(new LocalFiles(source, durable = true))(append(_, rowGroup(0, 3)))
      create(source.resolve("00000001-000000000007.segment"))
      val error = inTime(CheckpointFacts.read(checkpoint.toString)).failed.get
      assert(
        error.getMessage.contains("00000001-000000000007.segment cannot be read: Not a regular file"),
        error
      )
    }
  }
}
