package headwater.partition

import javax.annotation.concurrent.GuardedBy

import com.fasterxml.jackson.databind.JsonNode
import headwater.core.Json

/** What tasks have told of the ranges that they have read: each range counts once, however often it was read. */
private[headwater] final class TaskReports {
  import TaskReports._

  @GuardedBy("this") private[this] var before = noRows
  @GuardedBy("this") private[this] var current: (Seq[PartitionRange], () => Seq[String]) = Nil -> (() => Nil)

  def planned(ranges: Seq[PartitionRange], reports: () => Seq[String]): Unit = synchronized {
    batchIsOver()
    current = ranges -> reports
  }

  def batchIsOver(): Unit = synchronized {
    before += sum(told.values.map(counted))
    current = Nil -> (() => Nil)
  }

  /** Of this batch. A range that no task has read to its end counts as if every offset in it were a row. */
  def inBatch: Counted = synchronized {
    val known = told
    val (ranges, _) = current
    sum(ranges.map(range => known.get(range.number).fold(Counted(range.width, 0, 0))(counted)))
  }

  /** Of all ranges that were read to their end. */
  def inAll: Counted = synchronized(before + sum(told.values.map(counted)))

  private def told: Map[Int, JsonNode] = synchronized {
    val (_, reports) = current
    reports().map(Json.mapper.readTree).map(report => report.path("i").asInt -> report).toMap
  }
}

private[headwater] object TaskReports {

  /** @param bad
    *   rows that did not fit the schema
    * @param lost
    *   offsets that could not be read any more
    */
  final case class Counted(rows: Long, bad: Long, lost: Long) {
    def +(other: Counted): Counted = Counted(rows + other.rows, bad + other.bad, lost + other.lost)
  }

  private val noRows = Counted(0, 0, 0)

  private def sum(all: Iterable[Counted]): Counted = all.foldLeft(noRows)(_ + _)

  private def counted(report: JsonNode): Counted =
    Counted(report.path("rows").asLong, report.path("bad").asLong, report.path("lost").asLong)
}
