package headwater.core

import headwater.InvalidOptionException
import headwater.adapters.PythonProvider
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.prop.TableDrivenPropertyChecks

class PythonOptionsSuite extends AnyFunSuite with TableDrivenPropertyChecks {

  private def read(written: (String, String)*): PythonOptions =
    PythonOptions.read(new SourceOptions("letters", written.toMap, OptionTable.python))

  private def json(options: PythonOptions) =
    Json.mapper.readTree(options.writeTo(Json.mapper.createObjectNode().put("source", "letters")).toString)

  test("the defaults are those of the documentation") {
    val defaults = PythonOptions(
      concurrency = 1,
      onError = "fail",
      maxRestarts = None,
      onBadRow = "fail",
      linger = 10000000L,
      batchRows = 8192,
      startCursor = None,
      ackOn = "durable"
    )
    assert(read() == defaults)
  }

  test("each option is read, with any case and underscores") {
    val all = read(
      "Concurrency" -> "256",
      "on_error" -> "Restart",
      "MAXRESTARTS" -> "0",
      "onbadrow" -> "NULL",
      "linger" -> "2s",
      "batch_rows" -> "1048576",
      "ACK_ON" -> "Commit"
    )
    assert(all == PythonOptions(256, "restart", Some(0L), "null", 2000000000L, 1048576L, None, "commit"))
  }

  test("a start cursor that no start could read is refused, and not taken for a string") {
    Seq(
      "9" * 1001 -> "1000 digits",
      "[" * 101 + "]" * 101 -> "100 levels",
      "x" * (9 << 20) -> "the limit is 8388608"
    ).foreach { case (cursor, reason) =>
      val error = intercept[InvalidOptionException](read("startCursor" -> cursor))
      assert(error.getMessage.startsWith("Option 'startCursor' is '") && error.getMessage.contains(reason))
      assert(error.getMessage.length < 1000)
    }
    Seq("9" * 1000, "plain text", """{"at":1}""").foreach(cursor =>
      assert(read("startCursor" -> cursor).startCursor.contains(cursor))
    )
  }

  test("an invalid value is refused with the option, the value and what is allowed") {
    val cases = Table(
      ("option", "value", "allowed"),
      ("concurrency", "0", "it must be an integer from 1 to 256"),
      ("concurrency", "257", "it must be an integer from 1 to 256"),
      ("concurrency", "two", "it must be an integer from 1 to 256"),
      ("onError", "ignore", "it must be fail or restart or end"),
      ("onError", "", "it must be fail or restart or end"),
      ("maxRestarts", "-1", "it must be an integer, 0 or more"),
      ("onBadRow", "skip", "it must be fail or drop or null or keep"),
      ("ackOn", "batch", "it must be durable or commit"),
      ("linger", "10", "it must be a duration with its unit"),
      ("linger", "-1ms", "it must be a duration with its unit"),
      ("batchRows", "0", "it must be an integer from 1 to 1048576"),
      ("batchRows", "1048577", "it must be an integer from 1 to 1048576")
    )
    forAll(cases) { (option, value, allowed) =>
      val error = intercept[InvalidOptionException](read(option -> value))
      assert(error.getMessage.startsWith(s"Option '$option' of source 'letters' is '$value', $allowed"))
    }
  }

  test("maxRestarts without onError=restart is refused: it would do nothing") {
    Seq(Seq.empty, Seq("onError" -> "end"), Seq("onError" -> "fail")).foreach { onError =>
      val error = intercept[InvalidOptionException](read(onError :+ ("maxRestarts" -> "3"): _*))
      val policy = onError.headOption.fold("fail")(_._2)
      assert(
        error.getMessage.contains(s"'maxRestarts' is '3', and 'onError' is '$policy': set onError to restart")
      )
    }
    assert(read("onError" -> "restart", "maxRestarts" -> "3").maxRestarts == Some(3L))
  }

  test("the request to Python contains every option that Python acts on") {
    val request =
      json(read("onError" -> "restart", "maxRestarts" -> "3", "linger" -> "1500ms", "concurrency" -> "4"))
    val expected =
      """{"source":"letters","maxRestarts":3,"onError":"restart","onBadRow":"fail","lingerMs":1500,"batchRows":8192}"""
    assert(request == Json.mapper.readTree(expected))
    assert(!json(read()).has("maxRestarts"), "none is none")
  }

  test("all option names differ ignoring case and underscores") {
    val names = PythonProvider.Names.map(_.toLowerCase.replace("_", "")) :+ "source"
    assert(names.distinct == names)
  }
}
