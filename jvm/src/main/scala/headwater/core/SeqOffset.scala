package headwater.core

import org.apache.spark.sql.execution.streaming.Offset

/** The position after row `seq` of a source's stream.
  *
  * Spark writes [[json]] to its offset log, and compares offsets by that text, so there is one way only to write an
  * offset: one line, these fields, this order. `run` says which life of the feed the row belongs to (a feed that keeps
  * its rows in memory cannot serve the rows of an earlier run), `source` stops a checkpoint from being read by another
  * source, and `durability` says that the row is in the log; without it, it was in memory. The names are a promise; a golden file guards them.
  *
  * It extends Spark's V1 class: with an offset that extends only the V2 class the first batch is empty, without a word.
  */
final case class SeqOffset(source: String, run: String, seq: Long, durability: Durability = Durability.Memory)
    extends Offset {
  require(SeqOffset.isName(source), s"not a source name: '$source'")
  require(SeqOffset.isRun(run), s"not a run: '$run'")
  require(seq >= 0, s"not a seq: $seq")

  // Neither a name nor a run can hold a character that JSON escapes.
  override val json: String =
    s"""{"v":${SeqOffset.FormatVersion},"source":"$source","run":"$run","seq":$seq$where}"""

  private def where: String = durability match {
    case Durability.Memory => ""
    case kept => s""","durability":"${kept.name}""""
  }

  override def toString: String = json
}

object SeqOffset {
  val FormatVersion = 1

  def isName(text: String): Boolean = text.matches("[A-Za-z][A-Za-z0-9_]{0,63}")
  def isRun(text: String): Boolean = text.matches("[0-9a-f]{16}")

  private val fields = Seq("v", "source", "run", "seq", "durability")

  /** Reads what [[SeqOffset.json]] wrote, and nothing else.
    *
    * @throws InvalidOffsetException
    *   says what is wrong with the text
    */
  def parse(json: String): SeqOffset = {
    val read = new OffsetJson(json, FormatVersion, required = fields.init, known = fields)
    val offset = SeqOffset(
      read.text("source", isName, OffsetJson.sourceName),
      read.text("run", isRun, "16 lower-case hexadecimal digits"),
      read.long("seq"),
      if (read.has("durability"))
        Durability.named(read.text("durability", _ == Durability.Log.name, "\"log\", or left out"))
      else Durability.Memory
    )
    read.checkWritten(offset.json)
    offset
  }
}
