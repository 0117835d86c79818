package headwater.core

import scala.io.Source
import scala.util.{Random, Try, Using}

import headwater.InvalidOffsetException
import headwater.testing.MutatedText
import org.scalacheck.Gen
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.prop.TableDrivenPropertyChecks
import org.scalatestplus.scalacheck.ScalaCheckPropertyChecks

class VectorOffsetSuite extends AnyFunSuite with ScalaCheckPropertyChecks with TableDrivenPropertyChecks {

  private val good = """{"v":1,"source":"shards","partitions":"int","next":{"0":17,"10":5}}"""

  private val offsets = Gen.choose(0L, Long.MaxValue)
  private val numbers = Gen.nonEmptyMap(Gen.zip(Gen.choose(0, Int.MaxValue).map(_.toString), offsets))
  private val names = Gen.nonEmptyMap(
    Gen.zip(Gen.choose(1, 40).flatMap(Gen.stringOfN(_, Gen.choose(' ', '\uD7FF'))), offsets)
  )
  private val positions = Gen.oneOf(
    numbers.map(at => Positions(PartitionKeyType.Numbers, at)),
    names.map(at => Positions(PartitionKeyType.Names, at))
  )

  test("offsets of version 1 are parsed, and written identically") {
    val lines =
      Using.resource(Source.fromResource("golden/vector-offset-v1.txt")("UTF-8"))(_.getLines().toList)
    assert(lines.size == 4)
    lines.foreach(line => assert(VectorOffset.parse(line).json == line))
    assert(VectorOffset.parse(lines.head).next.at == Map("0" -> 17L, "1" -> 5L))
    assert(VectorOffset.parse(lines(2)).next.at.keys.toSeq == Seq("orders-1", "orders-10", "orders-2"))
  }

  test("an offset survives its JSON, which is one line and independent of the order of partitions") {
    forAll(positions) { next =>
      val offset = VectorOffset("shards", next)
      assert(VectorOffset.parse(offset.json) == offset)
      assert(!offset.json.exists(c => c == '\n' || c == '\r') && offset.json != "-")
      val again = Positions(next.keyType, Random.shuffle(next.at.toSeq))
      assert(VectorOffset("shards", again).json == offset.json)
    }
  }

  test("an invalid offset is refused with the reason") {
    val cases = Table(
      "text" -> "reason",
      "-" -> "it is not JSON",
      "[1]" -> "must be a JSON object",
      good.replace("17", "17.0") -> "the offset of partition '0' is 17.0, it must be an integer from 0",
      good.replace("17", "-1") -> "the offset of partition '0' is -1",
      good.replace("17", "null") -> "the offset of partition '0' is null",
      good.replace("17", "9223372036854775808") -> "the offset of partition '0' is 9223372036854775808",
      good.replace("\"0\"", "\"00\"") -> "a partition '00', it must be an integer",
      good.replace("\"0\"", "\"2147483648\"") -> "a partition '2147483648', it must be an integer",
      good.replace("\"0\"", "\"a\"") -> "a partition 'a', it must be an integer",
      good.replace("\"0\"", "\"10\"") -> "it is not JSON",
      good.replace("\"int\"", "\"float\"") -> "'partitions' is \"float\", it must be int or text",
      good.replace("\"int\"", "\"text\"").replace("\"0\"", "\"\"") -> "a partition '', it must be a name",
      good.replace("\"int\"", "\"text\"").replace("\"0\"", "\"\\ud83d\"") -> "it must be a name",
      good.replace("{\"0\":17,\"10\":5}", "{}") -> "'next' must be an object with an offset",
      good.replace("{\"0\":17,\"10\":5}", "7") -> "'next' must be an object with an offset",
      good.replace("{\"0\":17,\"10\":5}", "{\"10\":5,\"0\":17}") -> s"it must be written as $good",
      good.replace("\"v\":1", "\"v\":2") -> "it has version 2, this headwater",
      good.replace("shards", "../x") -> "'source' is \"../x\"",
      good.replace("\"next\"", "\"seq\"") -> "unknown field 'seq'",
      """{"v":1,"source":"a","run":"0000000000000000","seq":0}""" -> "unknown field 'run', 'seq'"
    )
    forAll(cases) { (text, reason) =>
      val error = intercept[InvalidOffsetException](VectorOffset.parse(text))
      assert(error.getMessage.contains(reason))
      assert(error.getMessage.length < 1000)
    }
  }

  test("any invalid string is an InvalidOffsetException") {
    forAll(MutatedText.of(good), minSuccessful(3000)) { text =>
      Try(VectorOffset.parse(text)).fold(
        error => assert(error.isInstanceOf[InvalidOffsetException], error),
        offset => assert(offset.json == text)
      )
    }
  }
}
