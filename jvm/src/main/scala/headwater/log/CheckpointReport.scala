package headwater.log

import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}
import headwater.core.{SeqOffset, StreamOffset, VectorOffset}
import headwater.log.ReportText.{counted, shortened, span, table}
import headwater.log.SourceFacts._

/** The facts of a checkpoint as lines of text. */
private[log] object CheckpointReport {

  def show(facts: CheckpointFacts): Seq[String] = {
    val problem = facts.problem.map(problem => fact("", s"$problem; so which rows Spark has is not known"))
    val sources = facts.sources.flatMap(source => "" +: sourceLines(source))
    val closing =
      if (facts.sources.exists(isChecked)) Nil
      else Seq("", "There is no log of headwater in this checkpoint.")
    Seq(
      fact("checkpoint", shortened(facts.path, 1000)),
      fact("Spark", progress(facts))
    ) ++ problem ++ sources ++ closing
  }

  /** One line for each source that can be verified, and one for each finding. */
  def verify(facts: CheckpointFacts): Seq[String] = {
    val checked = facts.sources.filter(isChecked)
    val nothing = Option.when(checked.isEmpty) {
      s"ok   ${shortened(facts.path, 1000)} has no log of headwater, so nothing to verify"
    }
    val lines = checked.flatMap { source =>
      val damaged = source.findings.count(_.kind == Finding.Damage)
      val status = if (damaged > 0) "FAIL" else "ok  "
      val verdict = if (damaged > 0) counted(damaged, "damaged place") else "sound"
      s"$status ${title(source)}: $verdict; ${size(source.kind)}" +:
        source.findings.map(finding => s"     ${finding.kind.label}: ${describe(source, finding)}")
    }
    val problem = facts.problem.filter(_ => checked.nonEmpty).map { problem =>
      s"     $problem; so the logs were not compared with it"
    }
    nothing.toSeq ++ lines ++ problem
  }

  private def isChecked(source: SourceFacts): Boolean = source.kind match {
    case _: Logged | _: Partitioned => true
    case InMemory | Other => false
  }

  private def progress(facts: CheckpointFacts): String = facts.lastBatch.fold("no batch was begun") { last =>
    val done = facts.lastCommit.fold("none is done")(commit => s"the last done is $commit")
    val again = facts.again.fold("")(batch => s"; on the next start batch $batch is run again")
    s"the last batch begun is $last, $done$again"
  }

  private def sourceLines(source: SourceFacts): Seq[String] = {
    val findings = source.findings.map(finding => fact(finding.kind.label, describe(source, finding)))
    val (about, closing) = source.kind match {
      case Other => (Seq(fact("", "not headwater's, or without an offset yet")), Nil)
      case InMemory =>
        val where = "its rows are in the memory of a driver, only its offset is in the checkpoint"
        (fact("", where) +: spark(source, hasLog = false), Nil)
      case Logged(log, again) =>
        val lines = log.toSeq.flatMap(logLines) ++ spark(source, log.nonEmpty) ++ again.map(rowsAgain)
        (lines, log.toSeq.flatMap(segments))
      case kind: Partitioned =>
        val where = "its rows are upstream, only the offsets of its partitions are in the checkpoint"
        (fact("", where) +: kind.again.map(rangesAgain).toSeq, partitions(source, kind))
    }
    fact("source", title(source)) +: (about ++ findings ++ closing)
  }

  private def spark(source: SourceFacts, hasLog: Boolean): Seq[String] = source.offset.toSeq.collect {
    case offset: SeqOffset =>
      val done =
        source.committed.collect { case committed: SeqOffset => s"row ${committed.seq}" }.getOrElse("none")
      val run = if (hasLog) "" else s", of run ${offset.run}"
      fact("Spark", s"begun up to row ${offset.seq}, done up to $done$run")
  }

  private def logLines(log: LogFacts): Seq[String] = {
    val about = log.manifest.toSeq.flatMap { manifest =>
      val run = s"${shortened(manifest.run)}, epoch ${manifest.epoch}, ${counted(manifest.shards, "shard")}"
      Seq(fact("run", run), fact("schema", shortened(SchemaText.of(manifest.schema), 1000)))
    }
    val where = log.ranges.take(3).map { case (first, last) => span(first, last) } ++ log.ranges
      .drop(3)
      .take(1)
      .map(_ => "…")
    val rows =
      if (log.rows == 0) "none retained"
      else
        s"${log.rows} retained (${where.mkString(", ")}): ${log.rows - log.waiting} committed, ${log.waiting} waiting"
    val committed = if (log.committed < 0) "nothing" else s"up to row ${log.committed}"
    val cursors = log.scan.cursors.toSeq.sorted.map { case (shard, json) =>
      fact("cursor", s"of shard $shard: ${shortened(CheckpointJson.cursorText(json))}")
    }
    about ++ Seq(fact("rows", rows), fact("committed", committed)) ++
      (if (cursors.isEmpty) Seq(fact("cursor", "none")) else cursors)
  }

  private def rowsAgain(again: RowsAgain): String = {
    val rows = again.rows.fold("no rows of this source") { case (first, last) =>
      val gaps = again.missing.map { case (first, last) => span(first, last) }
      s"${span(first, last)}, ${if (gaps.isEmpty) "all in the log" else s"without ${gaps.mkString(", ")}"}"
    }
    fact("again", s"batch ${again.batch}: $rows")
  }

  private def rangesAgain(again: RangesAgain): String = {
    val offsets = again.ranges.map { case (_, from, until) => BigInt(until) - from }.sum
    val what =
      if (again.ranges.isEmpty) "no offsets of this source"
      else s"${counted(offsets, "offset")} of ${counted(again.ranges.length, "partition")}"
    fact("again", s"batch ${again.batch}: $what")
  }

  private def segments(log: LogFacts): Seq[String] = {
    val rows = log.scan.account.segments.map { segment =>
      val numbers = Seq(segment.bytes, segment.frames, segment.rows).map(_.toString)
      segment.name +: (numbers ++ segment.range.fold(Seq("-", "-"))(range =>
        Seq(range._1.toString, range._2.toString)
      ))
    }
    if (rows.isEmpty) Nil else "" +: table(Seq("segment", "bytes", "frames", "rows", "first", "last"), rows)
  }

  /** By partition, the offset with which it began, and the next offset after the last batch done and begun. */
  private def partitions(source: SourceFacts, kind: Partitioned): Seq[String] = {
    val done = CheckpointJson.next(source.committed)
    val begun = CheckpointJson.next(source.offset)
    def cell(positions: Map[String, Long], partition: String) = positions.get(partition).fold("-")(_.toString)
    val rows = kind.sorted(kind.starts ++ done ++ begun).map { case (partition, _) =>
      shortened(partition) +: Seq(kind.starts, done, begun).map(cell(_, partition))
    }
    if (rows.isEmpty) Nil else "" +: table(Seq("partition", "start", "done", "begun"), rows)
  }

  private def size(kind: Kind): String = kind match {
    case Logged(Some(log), _) =>
      val segments = log.scan.account.segments
      Seq(
        counted(segments.length, "segment"),
        counted(segments.map(_.frames).sum, "frame"),
        counted(log.rows, "row"),
        counted(segments.map(_.bytes).sum, "byte")
      ).mkString(", ")
    case kind: Partitioned =>
      s"${counted(kind.startFiles, "file")} with start positions, ${counted(kind.starts.size, "partition")}"
    case _ => "there is no log"
  }

  private def describe(source: SourceFacts, finding: Finding): String = {
    val isLog = source.kind.isInstanceOf[Logged]
    val lost = finding.lost match {
      case Some((first, None)) => s"; rows from $first on may be lost"
      case Some((first, Some(last))) => s"; ${span(first, last)} ${if (first == last) "is" else "are"} lost"
      case None if isLog && finding.kind == Finding.Damage => "; no row is known to be lost"
      case None => ""
    }
    s"${finding.file} at byte ${finding.at}: ${shortened(finding.what, 400)}$lost"
  }

  private def title(source: SourceFacts): String =
    s"${source.name.fold("unknown")(shortened(_))} (${shortened(source.folder)})"

  private def fact(label: String, text: String): String = label.padTo(10, ' ') + "  " + text
}

/** The facts of a checkpoint as JSON. The names are a promise. */
private[log] object CheckpointJson {
  private val Version = 1
  private val nodes = JsonNodeFactory.instance

  def show(facts: CheckpointFacts): JsonNode = {
    val tree = nodes.objectNode().put("v", Version).put("checkpoint", facts.path)
    val spark = tree.putObject("spark")
    put(spark, "offset", facts.lastBatch)
    put(spark, "commit", facts.lastCommit)
    put(spark, "again", facts.again)
    spark.put("problem", facts.problem.orNull)
    val sources = tree.putArray("sources")
    facts.sources.foreach(source => sources.add(sourceNode(source)))
    tree
  }

  def verify(facts: CheckpointFacts): JsonNode = {
    val tree = nodes.objectNode().put("v", Version).put("checkpoint", facts.path)
    tree.put("sound", !facts.isDamaged).put("problem", facts.problem.orNull)
    val logs = tree.putArray("logs")
    facts.sources.foreach { source =>
      source.kind match {
        case Logged(log, _) =>
          val segments = log.fold(Vector.empty[LogScan.Content])(_.scan.account.segments)
          val node = logs.addObject().put("folder", source.folder).put("source", source.name.orNull)
          node.put("segments", segments.length).put("frames", segments.map(_.frames).sum)
          node.put("bytes", segments.map(_.bytes).sum).put("rows", log.fold(0L)(_.rows))
          putFindings(node, source.findings)
        case kind: Partitioned =>
          val node = tree.withArray("partitioned").addObject()
          node.put("folder", source.folder).put("source", source.name.orNull)
          node.put("files", kind.startFiles).put("partitions", kind.starts.size)
          putFindings(node, source.findings)
        case InMemory | Other =>
      }
    }
    tree
  }

  private def sourceNode(source: SourceFacts): JsonNode = {
    val tree = nodes.objectNode().put("folder", source.folder).put("kind", source.kind.name)
    tree.put("source", source.name.orNull)
    source.kind match {
      case Logged(Some(log), _) => putLog(tree, log)
      case kind: Partitioned =>
        tree.put("partitions", kind.keyType.map(_.name).orNull)
        putPositions(tree.putObject("starts"), kind, kind.starts)
      case _ =>
    }
    tree.set[JsonNode]("offset", offsetNode(source, source.offset))
    tree.set[JsonNode]("commit", offsetNode(source, source.committed))
    source.kind match {
      case Logged(_, Some(again)) =>
        val node = tree.putObject("again").put("batch", again.batch)
        node.set[JsonNode](
          "rows",
          again.rows.fold[JsonNode](nodes.nullNode) { case (first, last) => pair(first, Some(last)) }
        )
        node.put("complete", again.missing.isEmpty)
        val missing = node.putArray("missing")
        again.missing.foreach { case (first, last) => missing.add(pair(first, Some(last))) }
      case Partitioned(_, _, _, Some(again)) =>
        val ranges = tree.putObject("again").put("batch", again.batch).putObject("ranges")
        again.ranges.foreach { case (partition, from, until) =>
          ranges.set[JsonNode](partition, pair(from, Some(until)))
        }
      case _ => tree.putNull("again")
    }
    putFindings(tree, source.findings)
    tree
  }

  private def putLog(tree: ObjectNode, log: LogFacts): Unit = {
    tree.put("run", log.manifest.map(_.run).orNull)
    put(tree, "epoch", log.manifest.map(_.epoch))
    put(tree, "shards", log.manifest.map(_.shards.toLong))
    tree.put("schema", log.manifest.map(manifest => SchemaText.of(manifest.schema)).orNull)
    val rows = tree.putObject("rows").put("retained", log.rows)
    rows.put("committed", log.rows - log.waiting).put("waiting", log.waiting)
    val ranges = rows.putArray("ranges")
    log.ranges.foreach { case (first, last) => ranges.add(pair(first, Some(last))) }
    rows.put("committedUpTo", log.committed)
    val cursors = tree.putObject("cursors")
    log.scan.cursors.toSeq.sorted.foreach { case (shard, json) =>
      cursors.set[JsonNode](shard.toString, cursorNode(json))
    }
    val segments = tree.putArray("segments")
    log.scan.account.segments.foreach { segment =>
      val node = segments.addObject().put("file", segment.name).put("bytes", segment.bytes)
      node.put("frames", segment.frames).put("rows", segment.rows)
      put(node, "first", segment.range.map(_._1))
      put(node, "last", segment.range.map(_._2))
    }
  }

  private def offsetNode(source: SourceFacts, offset: Option[StreamOffset]): JsonNode =
    (offset, source.kind) match {
      case (Some(offset: SeqOffset), _) =>
        nodes
          .objectNode()
          .put("run", offset.run)
          .put("seq", offset.seq)
          .put("durability", offset.durability.name)
      case (Some(offset: VectorOffset), kind: Partitioned) =>
        val tree = nodes.objectNode()
        putPositions(tree.putObject("next"), kind, offset.next.at)
        tree
      case _ => nodes.nullNode
    }

  private def putPositions(tree: ObjectNode, kind: Partitioned, positions: Map[String, Long]): Unit =
    kind.sorted(positions).foreach { case (partition, offset) => tree.put(partition, offset) }

  /** The positions of a partitioned source. */
  def next(offset: Option[StreamOffset]): Map[String, Long] =
    offset.collect { case VectorOffset(_, next) => next.at }.getOrElse(Map.empty[String, Long])

  private def putFindings(tree: ObjectNode, findings: Vector[Finding]): Unit =
    Seq(Finding.Damage, Finding.Torn, Finding.Ignored).foreach { kind =>
      val list = tree.putArray(kind.name)
      findings.filter(_.kind == kind).foreach { finding =>
        val node = list.addObject().put("file", finding.file).put("at", finding.at).put("what", finding.what)
        if (kind == Finding.Damage)
          node.set[JsonNode](
            "lost",
            finding.lost.fold[JsonNode](nodes.nullNode) { case (first, last) => pair(first, last) }
          )
      }
    }

  private def pair(first: Long, last: Option[Long]): JsonNode = {
    val both = nodes.arrayNode().add(first)
    last.fold(both.addNull())(both.add(_))
  }

  private def put(tree: ObjectNode, name: String, value: Option[Long]): Unit =
    value.fold(tree.putNull(name))(tree.put(name, _))

  /** Recovery does not parse cursors, so one that is not JSON is shown as a string. */
  private def cursorNode(json: String): JsonNode =
    Try(LogJson.mapper.readTree(json)).filter(!_.isMissingNode).getOrElse(nodes.textNode(json))

  def cursorText(json: String): String = cursorNode(json) match {
    case node if node.isTextual && !json.startsWith("\"") => json
    case node => line(node, isAscii = false)
  }

  /** On one line, with a space after each comma and colon.
    *
    * @param isAscii
    *   other characters are escaped
    */
  def line(node: JsonNode, isAscii: Boolean): String = {
    val out = new StringBuilder
    def add(node: JsonNode): Unit =
      if (node.isObject) {
        val fields = node.fields.asScala
        addAll("{", fields, "}") { field =>
          addString(field.getKey)
          out ++= ": "
          add(field.getValue)
        }
      } else if (node.isArray) addAll("[", node.elements.asScala, "]")(add)
      else if (node.isTextual) addString(node.textValue)
      else out ++= node.toString
    def addAll[T](start: String, items: Iterator[T], end: String)(addItem: T => Unit): Unit = {
      out ++= start
      items.zipWithIndex.foreach { case (item, i) =>
        if (i > 0) out ++= ", "
        addItem(item)
      }
      out ++= end
    }
    def addString(text: String): Unit = {
      out += '"'
      text.foreach {
        case '"' => out ++= "\\\""
        case '\\' => out ++= "\\\\"
        case '\n' => out ++= "\\n"
        case '\r' => out ++= "\\r"
        case '\t' => out ++= "\\t"
        case '\f' => out ++= "\\f"
        case '\b' => out ++= "\\b"
        case c if c < ' ' || isAscii && c > '~' => out ++= f"\\u${c.toInt}%04x"
        case c => out += c
      }
      out += '"'
    }
    add(node)
    out.toString
  }
}

/** Strings for people: on one line, not too long, and without characters that move the cursor of a terminal. */
private[log] object ReportText {

  def shortened(text: String, widest: Int = 60): String = {
    val points = text.codePoints.toArray
    val cut = if (points.length <= widest) points else points.take(widest - 1) :+ '…'.toInt
    cut.map(point => if (isPrintable(point)) Character.toString(point) else escaped(point)).mkString
  }

  private def isPrintable(point: Int): Boolean = point == ' ' || (Character.getType(point) match {
    case Character.CONTROL | Character.FORMAT | Character.SURROGATE | Character.PRIVATE_USE |
        Character.UNASSIGNED | Character.LINE_SEPARATOR | Character.PARAGRAPH_SEPARATOR |
        Character.SPACE_SEPARATOR =>
      false
    case _ => true
  })

  private def escaped(point: Int): String = point match {
    case '\n' => "\\n"
    case '\r' => "\\r"
    case '\t' => "\\t"
    case _ if point <= 0xff => f"\\x$point%02x"
    case _ if point <= 0xffff => f"\\u$point%04x"
    case _ => f"\\U$point%08x"
  }

  def counted(number: BigInt, thing: String): String = s"$number $thing${if (number == 1) "" else "s"}"

  def span(first: Long, last: Long): String = Finding.span(first, last)

  /** The first column is aligned left, the others are numbers and aligned right. */
  def table(names: Seq[String], rows: Seq[Seq[String]]): Seq[String] = {
    val widths = (names +: rows).transpose.map(_.map(cell => cell.codePointCount(0, cell.length)).max)
    def line(cells: Seq[String]): String = cells
      .zip(widths)
      .zipWithIndex
      .map { case ((cell, width), i) =>
        val padding = " " * (width - cell.codePointCount(0, cell.length))
        if (i == 0) cell + padding else padding + cell
      }
      .mkString("  ")
    Seq(line(names), line(widths.map("-" * _))) ++ rows.map(line)
  }
}

/** Spark's JSON of a struct type, as in a CREATE TABLE statement. */
private[log] object SchemaText {
  private val names =
    Map("integer" -> "INT", "long" -> "BIGINT", "short" -> "SMALLINT", "byte" -> "TINYINT")

  def of(json: String): String = {
    val tree = Try(LogJson.mapper.readTree(json)).getOrElse(JsonNodeFactory.instance.nullNode)
    Try(columns(tree, " ")).getOrElse(
      s"not understood: ${shortened(CheckpointJson.line(tree, isAscii = false))}"
    )
  }

  private def columns(struct: JsonNode, between: String): String = {
    val fields = field(struct, "fields")
    require(fields.isArray)
    fields.elements.asScala
      .map { column =>
        val isNullable = Option(column.get("nullable")).forall(_.asBoolean)
        s"${field(column, "name").asText}$between${typeText(field(column, "type"))}${if (isNullable) ""
          else " NOT NULL"}"
      }
      .mkString(", ")
  }

  private def typeText(kind: JsonNode): String =
    if (kind.isTextual) names.getOrElse(kind.textValue, kind.textValue.toUpperCase(java.util.Locale.ROOT))
    else
      field(kind, "type").asText match {
        case "array" => s"ARRAY<${typeText(field(kind, "elementType"))}>"
        case "map" => s"MAP<${typeText(field(kind, "keyType"))}, ${typeText(field(kind, "valueType"))}>"
        case "udt" => typeText(field(kind, "sqlType"))
        case _ => s"STRUCT<${columns(kind, ": ")}>"
      }

  private def field(node: JsonNode, name: String): JsonNode =
    Option(node.get(name)).getOrElse(throw new NoSuchElementException(name))
}
