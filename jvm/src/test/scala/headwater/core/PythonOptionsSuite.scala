package headwater.core

import headwater.InvalidOptionException
import headwater.adapters.PythonProvider
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.prop.TableDrivenPropertyChecks

class PythonOptionsSuite extends AnyFunSuite with TableDrivenPropertyChecks {

  private def read(written: (String, String)*): PythonOptions =
    PythonOptions.read(new SourceOptions("letters", written.toMap, PythonOptions.names))

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
      startCursor = None
    )
    assert(read() == defaults)
  }

  test("each option is read, by any spelling of its name") {
    val all = read(
      "Concurrency" -> "256",
      "on_error" -> "Restart",
      "MAXRESTARTS" -> "0",
      "onbadrow" -> "NULL",
      "linger" -> "2s",
      "batch_rows" -> "1048576"
    )
    assert(all == PythonOptions(256, "restart", Some(0L), "null", 2000000000L, 1048576L, None))
  }

  test("a value that cannot be used is refused with option, value and what is allowed") {
    val cases = Table(
      ("option", "value", "allowed"),
      ("concurrency", "0", "it must be a whole number from 1 to 256"),
      ("concurrency", "257", "it must be a whole number from 1 to 256"),
      ("concurrency", "two", "it must be a whole number from 1 to 256"),
      ("onError", "ignore", "it must be fail or restart or end"),
      ("onError", "", "it must be fail or restart or end"),
      ("maxRestarts", "-1", "it must be a whole number, 0 or more"),
      ("onBadRow", "skip", "it must be fail or drop or null"),
      ("linger", "10", "it must be a duration with its unit"),
      ("linger", "-1ms", "it must be a duration with its unit"),
      ("batchRows", "0", "it must be a whole number from 1 to 1048576"),
      ("batchRows", "1048577", "it must be a whole number from 1 to 1048576")
    )
    forAll(cases) { (option, value, allowed) =>
      val error = intercept[InvalidOptionException](read(option -> value))
      assert(error.getMessage.startsWith(s"Option '$option' of source 'letters' is '$value', $allowed"))
    }
  }

  test("maxRestarts without onError=restart is refused: it would do nothing") {
    Seq(Seq.empty, Seq("onError" -> "end"), Seq("onError" -> "fail")).foreach { onError =>
      val error = intercept[InvalidOptionException](read(onError :+ ("maxRestarts" -> "3"): _*))
      val said = onError.headOption.fold("fail")(_._2)
      assert(
        error.getMessage.contains(s"'maxRestarts' is '3', and 'onError' is '$said': set onError to restart")
      )
    }
    assert(read("onError" -> "restart", "maxRestarts" -> "3").maxRestarts == Some(3L))
  }

  test("Python is told all that it acts on, beside what the order says already") {
    val told =
      json(read("onError" -> "restart", "maxRestarts" -> "3", "linger" -> "1500ms", "concurrency" -> "4"))
    val expected =
      """{"source":"letters","maxRestarts":3,"onError":"restart","onBadRow":"fail","lingerMs":1500,"batchRows":8192}"""
    assert(told == Json.mapper.readTree(expected))
    assert(!json(read()).has("maxRestarts"), "none is none")
  }

  test("no two options of every source are spelled alike") {
    val names = PythonProvider.Names.map(_.toLowerCase.replace("_", "")) :+ "source"
    assert(names.distinct == names)
  }
}
