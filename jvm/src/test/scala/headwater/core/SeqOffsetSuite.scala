package headwater.core

import scala.io.Source
import scala.util.{Try, Using}

import headwater.adapters.SparkOffset
import headwater.InvalidOffsetException
import headwater.testing.MutatedText
import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.prop.TableDrivenPropertyChecks
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

class SeqOffsetSuite extends AnyFunSuite with ScalaCheckPropertyChecks with TableDrivenPropertyChecks {

  private val good = """{"v":1,"source":"random_alpha","run":"00c0ffee00c0ffee","seq":41}"""

  private val names = for {
    head <- Gen.alphaChar
    tail <- Gen.listOf(Gen.oneOf(Gen.alphaNumChar, Gen.const('_')))
  } yield (head +: tail).take(64).mkString

  test("offsets of version 1 are parsed, and written identically") {
    val lines = Using.resource(Source.fromResource("golden/seq-offset-v1.txt"))(_.getLines().toList)
    assert(lines.size == 4)
    lines.foreach(line => assert(SeqOffset.parse(line).json == line))
    assert(lines.map(SeqOffset.parse).map(_.seq) == Seq(0L, 41L, Long.MaxValue, 7L))
    assert(lines.map(SeqOffset.parse(_).durability.name) == Seq("memory", "memory", "memory", "log"))
  }

  test("the offset before the first row is read as the beginning, and written identically") {
    val lines = Using.resource(Source.fromResource("golden/seq-offset-beginning.txt"))(_.getLines().toList)
    val sources = Seq("a", "random_alpha", "Z_9")
    assert(lines == sources.map(SeqOffset.beginning))
    assert(lines.map(SeqOffset.position) == sources.map(_ -> Beginning))
    assert(SeqOffset.position(good) == ("random_alpha" -> SeqOffset.parse(good)))
    Seq(
      lines.head.replace("-1", "-2"),
      lines.head.replace("-1", "-1.0"),
      lines.head + " ",
      lines.head.replace("\"a\"", "\"../a\""),
      lines.head.replace("}", ",\"run\":\"0000000000000000\"}")
    ).foreach(text => withClue(text)(intercept[InvalidOffsetException](SeqOffset.position(text))))
  }

  test("an offset survives its JSON, which is one line and unique") {
    forAll(names, Gen.long, Gen.choose(0L, Long.MaxValue)) { (source, run, seq) =>
      val offset = SeqOffset(source, f"$run%016x", seq)
      assert(SeqOffset.parse(offset.json) == offset)
      assert(!offset.json.contains('\n') && offset.json != "-")
    }
  }

  test("an offset equals Spark's SerializedOffset with the same JSON") {
    val fromLog = new org.apache.spark.sql.execution.streaming.Offset { override val json: String = good }
    assert(fromLog == new SparkOffset(SeqOffset.parse(good)))
  }

  test("an invalid offset is refused with the reason") {
    val cases = Table(
      "text" -> "reason",
      "" -> "must be a JSON object",
      "-" -> "it is not JSON",
      "41" -> "must be a JSON object",
      "null" -> "must be a JSON object",
      "[1]" -> "must be a JSON object",
      good + good -> "it is not JSON",
      good.dropRight(1) -> "it is not JSON",
      good.replace("41", "41.0") -> "'seq' is 41.0, it must be an integer from 0",
      good.replace("41", "1e3") -> "'seq' is 1000.0, it must be an integer from 0",
      good.replace("41", "-1") -> "'seq' is -1, it must be an integer from 0",
      good.replace("41", "\"41\"") -> "'seq' is \"41\", it must be an integer from 0",
      good.replace("41", "NaN") -> "it is not JSON",
      good.replace("41", "null") -> "'seq' is null",
      good.replace("41", "9223372036854775808") -> "'seq' is 9223372036854775808",
      good.replace("41", "9" * 400) -> "'seq' is 999",
      good.replace("\"v\":1", "\"v\":2") -> "it has version 2, this headwater",
      good.replace("\"v\":1", "\"v\":\"1\"") -> "'v' is \"1\"",
      good.replace("\"v\":1,", "") -> "the field 'v' is missing",
      good.replace("\"v\":1", "\"v\":1,\"v\":1") -> "it is not JSON",
      good.replace("\"seq\"", "\"Seq\"") -> "unknown field 'Seq'",
      good.replace("}", ",\"more\":1}") -> "unknown field 'more'",
      good.replace("00c0ffee00c0ffee", "00C0FFEE00C0FFEE") -> "'run' is \"00C0FFEE00C0FFEE\", it must be 16",
      good.replace("\"00c0ffee00c0ffee\"", "7") -> "'run' is 7",
      good.replace(",", ", ") -> s"it must be written as $good",
      good.replace("\"v\":1,", "").replace("}", ",\"v\":1}") -> s"it must be written as $good",
      good.replace("random_alpha", "../x") -> "'source' is \"../x\"",
      good.replace("random_alpha", "a/b") -> "'source' is \"a/b\"",
      good.replace("random_alpha", "a\\u0000b") -> "'source' is",
      good.replace("random_alpha", "a" * 300) -> "'source' is"
    )
    forAll(cases) { (text, reason) =>
      val error = intercept[InvalidOffsetException](SeqOffset.parse(text))
      assert(error.getMessage.contains(reason))
      assert(error.getMessage.length < 1000)
    }
  }

  test("any invalid string is an InvalidOffsetException") {
    forAll(MutatedText.of(good), minSuccessful(3000)) { text =>
      Try(SeqOffset.parse(text)).fold(
        error => assert(error.isInstanceOf[InvalidOffsetException], error),
        offset => assert(offset.json == text)
      )
    }
  }
}
