package headwater.core

import java.time.{Instant, ZoneOffset}
import java.time.format.DateTimeFormatter
import java.util.Locale

/** What a running source reports of itself, for progress reports and `hw.feeds()`.
  *
  * @param state
  *   one of [[FeedReport.States]]
  * @param badRows
  *   rows that did not fit the schema
  */
private[headwater] final case class FeedReport(
    state: String,
    restarts: Long = 0,
    badRows: Long = 0,
    lastError: Option[FeedReport.LastError] = None
) {

  /** For progress reports. */
  def metrics: Map[String, String] =
    Map("state" -> state, "restarts" -> restarts.toString, "badRows" -> badRows.toString) ++
      lastError.toSeq.flatMap(e => Seq("lastError" -> e.message, "lastErrorAt" -> FeedReport.time(e.at)))
}

private[headwater] object FeedReport {

  /** @param at in milliseconds since 1970 */
  final case class LastError(message: String, at: Long)

  /** The most severe first. */
  val States: Seq[String] =
    Seq(
      "failed",
      "abandoned",
      "restarting",
      "reconnecting",
      "paused",
      "starting",
      "running",
      "stopped",
      "ended"
    )

  val Starting: FeedReport = FeedReport("starting")

  /** Of several feeds that are one source: their most severe state, their counts, and their last error. */
  def all(reports: Seq[FeedReport]): FeedReport = FeedReport(
    States.find(state => reports.exists(_.state == state)).getOrElse(Starting.state),
    reports.map(_.restarts).sum,
    reports.map(_.badRows).sum,
    reports.flatMap(_.lastError).maxByOption(_.at)
  )

  /** The metrics of arrivals, for progress reports. */
  def metrics(arrivals: Arrivals.Status): Map[String, String] =
    arrivals.lastAt.map(at => "lastRowAt" -> time(at)).toMap +
      ("rowsPerSecond" -> rate(arrivals.rowsPerSecond))

  def rate(value: Double): String = "%.1f".formatLocal(Locale.ROOT, value)

  /** As Spark writes the time of a progress report. */
  def time(millis: Long): String = TimeFormat.format(Instant.ofEpochMilli(millis))

  private val TimeFormat =
    DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", Locale.ROOT).withZone(ZoneOffset.UTC)
}
