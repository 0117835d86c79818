package headwater.core

/** The position after row `seq` of a source's stream.
  *
  * Spark writes [[json]] to its offset log and compares offsets as strings, so an offset has exactly one
  * spelling: one line, these fields, this order. The field names are a promise; a golden file guards them.
  *
  * `run` identifies the run that the row belongs to: rows kept in memory cannot be served after their run.
  * `source` keeps another source from reading the checkpoint. `durability` is written only if the row is in the
  * log.
  */
final case class SeqOffset(source: String, run: String, seq: Long, durability: Durability = Durability.Memory)
    extends StreamOffset {
  require(SeqOffset.isName(source), s"not a source name: '$source'")
  require(SeqOffset.isRun(run), s"not a run: '$run'")
  require(seq >= 0, s"not a seq: $seq")

  // Neither a name nor a run can contain a character that JSON escapes.
  override val json: String =
    s"""{"v":${SeqOffset.FormatVersion},"source":"$source","run":"$run","seq":$seq$durabilityField}"""

  private def durabilityField: String = durability match {
    case Durability.Memory => ""
    case other => s""","durability":"${other.name}""""
  }

  override def toString: String = json
}

object SeqOffset {
  val FormatVersion = 1

  def isName(text: String): Boolean = text.matches("[A-Za-z][A-Za-z0-9_]{0,63}")
  def isRun(text: String): Boolean = text.matches("[0-9a-f]{16}")

  /** The position before the first row, for interfaces of Spark that need an offset there. A promise as well: any
    * adapter may read what another one wrote. It has no run, since no store was opened yet.
    */
  def beginning(source: String): String = s"""{"v":$FormatVersion,"source":"$source","seq":-1}"""

  /** The source, and [[Beginning]] or the offset.
    *
    * @throws InvalidOffsetException
    *   states what is wrong with the string
    */
  def position(json: String): (String, Position) = json match {
    case BeforeFirst(source) if json == beginning(source) => (source, Beginning)
    case _ =>
      val offset = parse(json)
      (offset.source, offset)
  }

  private val BeforeFirst = """\{"v":1,"source":"([A-Za-z][A-Za-z0-9_]{0,63})","seq":-1\}""".r

  private val fields = Seq("v", "source", "run", "seq", "durability")

  /** Accepts exactly what [[SeqOffset.json]] writes.
    *
    * @throws InvalidOffsetException
    *   states what is wrong with the string
    */
  def parse(json: String): SeqOffset = {
    val parsed = new OffsetJson(json, FormatVersion, required = fields.init, known = fields)
    val offset = SeqOffset(
      parsed.text("source", isName, OffsetJson.sourceName),
      parsed.text("run", isRun, "16 lower-case hexadecimal digits"),
      parsed.long("seq"),
      if (parsed.has("durability"))
        Durability.named(parsed.text("durability", _ == Durability.Log.name, "\"log\", or left out"))
      else Durability.Memory
    )
    parsed.requireCanonical(offset.json)
    offset
  }
}
