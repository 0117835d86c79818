package headwater.log

import headwater.core.{Durability, LostRows, SeqOffset}
import headwater.{DataLossException, InvalidOffsetException}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.types.{DataType, StructType}

/** Checks at a start that a log and a checkpoint belong together. An error names what is missing; nothing starts
  * over silently.
  */
private[log] object Recovery extends Logging {

  def check(
      files: LogFiles,
      existing: Option[Manifest],
      scan: LogScan,
      known: Option[SeqOffset],
      settings: LogStore.Settings
  ): LogScan = (existing, known) match {
    case (None, _) if scan.account.segments.nonEmpty =>
      throw new InvalidOffsetException(
        s"${files.pathOf("")} has segments of a log and no manifest: put it back, or remove the segments to begin anew."
      )
    case (None, None) => scan
    case (None, Some(offset)) if offset.durability == Durability.Log =>
      val what =
        s"The checkpoint is at $offset, and the log that it speaks of is gone from ${files.pathOf("")}"
      if (settings.failOnDataLoss)
        throw new DataLossException(
          s"$what: rows that no batch had taken are lost. Set the option failOnDataLoss to false to continue without them."
        )
      logWarning(s"$what: continuing without it, since failOnDataLoss is false")
      scan
    case (None, Some(_)) => scan // rows were in memory so far
    case (Some(manifest), None) =>
      val committed = scan.commits.maxOption.getOrElse(-1L)
      val oldest = scan.first
      if (committed >= 0 || oldest > manifest.first)
        throw new InvalidOffsetException(
          s"The checkpoint's offsets are gone, and the log in ${files.pathOf("")} is still there: it has given the rows up " +
            s"to ${math.max(committed, oldest - 1)} to that checkpoint. Put the folders 'offsets' and 'commits' back, or " +
            "remove the whole checkpoint to begin anew."
        )
      checkEnd(files, manifest, scan, settings)
    case (Some(manifest), Some(offset)) if offset.run == manifest.run =>
      if (offset.seq < scan.next) checkEnd(files, manifest, scan, settings)
      else
        lost(
          settings,
          scan,
          math.max(offset.seq, manifest.next - 1),
          s"The checkpoint is at $offset, and the log in ${files.pathOf("")} ends with row ${scan.next - 1}"
        )
    case (Some(manifest), Some(offset)) if beginsBehind(manifest, offset) && scan.commits.isEmpty =>
      checkEnd(files, manifest, scan, settings)
    case (Some(manifest), Some(offset)) =>
      throw new InvalidOffsetException(
        s"The checkpoint is at $offset, which is not of the log in ${files.pathOf("")} (run ${manifest.run}): since that log " +
          "was written the query has run with durability=memory, or the folder is another checkpoint's. Set the option " +
          "durability to memory, or remove that folder to begin a new log after this offset."
      )
  }

  /** Checks a log before its query continues in memory: rows that wait in the log would be skipped. A log that
    * the checkpoint does not refer to was left before.
    */
  def checkBeforeMemory(files: LogFiles, known: Option[SeqOffset], failOnDataLoss: Boolean): Unit =
    Manifest
      .read(files)
      .filter(manifest => known.forall(at => at.run == manifest.run || beginsBehind(manifest, at)))
      .foreach { manifest =>
        val first = known.fold(manifest.first)(_.seq + 1)
        val next = LogScan.of(files, Some(manifest), manifest.first).next
        if (first < next) {
          val what =
            s"No batch has taken the rows $first to ${next - 1} of source '${manifest.source}', which wait in the log in " +
              s"${files.pathOf("")}, and with durability=memory none would"
          if (failOnDataLoss)
            throw new DataLossException(
              s"$what. Run the query with durability=log until its batches have taken them, or set the option failOnDataLoss " +
                "to false to continue without them."
            )
          logWarning(s"$what: continuing without them, since failOnDataLoss is false")
        }
      }

  /** The log begins right after this offset, whose row was in memory. */
  def beginsBehind(manifest: Manifest, offset: SeqOffset): Boolean = manifest.first == offset.seq + 1

  /** Rows that were durable, and that may have been acknowledged to the source, must be there even if Spark's offsets
    * do not name them.
    */
  private def checkEnd(
      files: LogFiles,
      manifest: Manifest,
      scan: LogScan,
      settings: LogStore.Settings
  ): LogScan =
    if (manifest.next <= scan.next) scan
    else
      lost(
        settings,
        scan,
        manifest.next - 1,
        s"The log in ${files.pathOf("")} ends with row ${scan.next - 1}, and by its manifest the rows up to " +
          s"${manifest.next - 1} were durable"
      )

  /** Rows that Spark was offered, or that were durable, and that are gone. */
  private def lost(settings: LogStore.Settings, scan: LogScan, upTo: Long, what: String): LogScan = {
    if (settings.failOnDataLoss)
      throw new DataLossException(
        s"$what: the rows ${scan.next} to $upTo are lost. Set the option failOnDataLoss to false to continue without them."
      )
    logWarning(s"$what: continuing without the rows ${scan.next} to $upTo, as failOnDataLoss is false")
    scan.copy(lost = scan.lost :+ LostRows(scan.next, upTo, what), next = upTo + 1)
  }
}

/** Checks that a source is the one that wrote the log. */
private[headwater] object Identity {

  def check(manifest: Manifest, settings: LogStore.Settings): Unit = {
    def refuse(what: String): Nothing = throw new InvalidOffsetException(
      s"The checkpoint's log was written by another source: $what. Start the query with a new checkpoint, or put it back as " +
        "it was."
    )
    if (manifest.source != settings.source)
      refuse(s"it was '${manifest.source}' and is '${settings.source}' now")
    if (settings.isResumable && manifest.shards != settings.shards)
      refuse(
        s"the option concurrency was ${manifest.shards} and is ${settings.shards} now, and each of the feeds has a cursor of " +
          "its own"
      )
    changedOption(manifest.identity, settings.identity).foreach(refuse)
    schemaChange(read(manifest.schema), read(settings.schema)).foreach(refuse)
  }

  /** The first option that must not change and did, as a message. */
  def changedOption(was: Map[String, String], is: Map[String, String]): Option[String] =
    (was.keySet ++ is.keySet).toSeq.sorted.find(option => was.get(option) != is.get(option)).map { option =>
      s"its option '$option' was ${quoted(was.get(option))} and is ${quoted(is.get(option))} now"
    }

  /** The first incompatible change, as a message. New nullable columns are compatible. */
  private def schemaChange(was: StructType, is: StructType): Option[String] = {
    val now = is.fields.map(field => field.name -> field).toMap
    val before = was.fieldNames.toSet
    was.fields.collectFirst {
      case field if !now.contains(field.name) => s"the column '${field.name}' is gone"
    } orElse was.fields.collectFirst {
      case field if now(field.name).dataType != field.dataType =>
        s"the column '${field.name}' was ${field.dataType.sql} and is ${now(field.name).dataType.sql} now"
      case field if field.nullable && !now(field.name).nullable =>
        s"the column '${field.name}' could be null, and cannot be now"
    } orElse is.fields.collectFirst {
      case field if !before(field.name) && !field.nullable =>
        s"the column '${field.name}' is new and cannot be null, and the rows in the log have no value for it"
    }
  }

  private def read(json: String): StructType = DataType.fromJson(json).asInstanceOf[StructType]

  private def quoted(value: Option[String]): String = value.fold("not set")(text => s"'$text'")
}
