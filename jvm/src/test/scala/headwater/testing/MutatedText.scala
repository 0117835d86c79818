package headwater.testing

import org.scalacheck.Gen

/** Strings that differ slightly from a valid one, and arbitrary ones. */
object MutatedText {
  def of(good: String): Gen[String] = {
    val mutated = for {
      at <- Gen.choose(0, good.length - 1)
      char <- Gen.oneOf(Gen.asciiPrintableChar, Gen.oneOf("{}[]\",:0-9.eE\u0000\n"))
      cut <- Gen.choose(0, good.length)
      text <- Gen.oneOf(good.updated(at, char), good.take(cut), good.take(at) + char + good.drop(at))
    } yield text
    Gen.oneOf(mutated, Gen.asciiPrintableStr)
  }
}
