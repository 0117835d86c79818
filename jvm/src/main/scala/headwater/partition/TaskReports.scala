package headwater.partition

import javax.annotation.concurrent.GuardedBy

import com.fasterxml.jackson.databind.JsonNode
import headwater.core.Json

/** Counts the rows that tasks report. Each range counts once, however often it was read. */
private[headwater] final class TaskReports {
  import TaskReports._

  @GuardedBy("this") private[this] var previous = NoRows
  @GuardedBy("this") private[this] var current: (Seq[PartitionRange], () => Seq[String]) = Nil -> (() => Nil)

  def startBatch(ranges: Seq[PartitionRange], reports: () => Seq[String]): Unit = synchronized {
    endBatch()
    current = ranges -> reports
  }

  def endBatch(): Unit = synchronized {
    previous += sum(byRange.values.map(countsOf))
    current = Nil -> (() => Nil)
  }

  /** For the current batch. A range without a report counts as if every offset were a row. */
  def inBatch: RowCounts = synchronized {
    val reported = byRange
    val (ranges, _) = current
    sum(ranges.map(range => reported.get(range.number).fold(RowCounts(range.width, 0, 0))(countsOf)))
  }

  /** For all ranges that were read to their end. */
  def total: RowCounts = synchronized(previous + sum(byRange.values.map(countsOf)))

  private def byRange: Map[Int, JsonNode] = synchronized {
    val (_, reports) = current
    reports().map(Json.mapper.readTree).map(report => report.path("i").asInt -> report).toMap
  }
}

private[headwater] object TaskReports {

  /** @param bad
    *   rows that did not fit the schema
    * @param lost
    *   offsets that could no longer be read
    */
  final case class RowCounts(rows: Long, bad: Long, lost: Long) {
    def +(other: RowCounts): RowCounts = RowCounts(rows + other.rows, bad + other.bad, lost + other.lost)
  }

  private val NoRows = RowCounts(0, 0, 0)

  private def sum(all: Iterable[RowCounts]): RowCounts = all.foldLeft(NoRows)(_ + _)

  private def countsOf(report: JsonNode): RowCounts =
    RowCounts(report.path("rows").asLong, report.path("bad").asLong, report.path("lost").asLong)
}
