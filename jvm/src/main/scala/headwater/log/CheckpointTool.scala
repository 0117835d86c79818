package headwater.log

import java.io.{BufferedWriter, FileDescriptor, FileOutputStream, IOException, OutputStreamWriter, Writer}
import java.nio.charset.{Charset, StandardCharsets}

import scala.util.Try

/** The command `headwater checkpoint show|verify PATH [--json]`. It reads a log with the scan that recovery uses, needs no
  * SparkContext, and neither changes nor locks anything.
  *
  * It prints to standard output, and an error as one line to standard error. The exit status is 0, or 1 for damage and for
  * errors.
  */
object CheckpointTool {

  /** @param arguments
    *   `show` or `verify`, `text` or `json`, and the path, as the Python side has checked them
    */
  def main(arguments: Array[String]): Unit = {
    val charset =
      Try(Charset.forName(System.getProperty("headwater.encoding"))).getOrElse(StandardCharsets.UTF_8)
    def writer(descriptor: FileDescriptor) =
      new BufferedWriter(new OutputStreamWriter(new FileOutputStream(descriptor), charset))
    // Not System.out: it hides that the reader of a pipe has gone.
    System.exit(
      run(arguments(0), arguments(1), arguments(2), writer(FileDescriptor.out), writer(FileDescriptor.err))
    )
  }

  /** Returns the exit status. */
  private[headwater] def run(verb: String, form: String, path: String, out: Writer, err: Writer): Int =
    try {
      val facts = CheckpointFacts.read(path)
      val lines = (verb, form) match {
        case ("show", "text") => CheckpointReport.show(facts)
        case ("show", "json") => Seq(CheckpointJson.line(CheckpointJson.show(facts), isAscii = true))
        case ("verify", "text") => CheckpointReport.verify(facts)
        case ("verify", "json") => Seq(CheckpointJson.line(CheckpointJson.verify(facts), isAscii = true))
        case _ => throw new IllegalArgumentException(s"there is no command $verb with $form")
      }
      print(out, lines)
      if (verb == "verify" && facts.isDamaged) 1 else 0
    } catch {
      case e: CheckpointException =>
        print(err, Seq(s"headwater: ${ReportText.shortened(e.getMessage, 10000)}"))
        1
      case _: ReaderGoneException => 1
    }

  /** Nobody reads the output any more, as when it is piped into `head`. */
  private final class ReaderGoneException(cause: IOException) extends RuntimeException(cause)

  private def print(out: Writer, lines: Seq[String]): Unit =
    try {
      lines.foreach(line => out.write(line.replaceFirst("\\s+$", "") + "\n"))
      out.flush()
    } catch { case e: IOException => throw new ReaderGoneException(e) }
}
