package headwater.partition

import scala.collection.immutable.ListMap

import headwater.core.{Json, Positions}

/** The metrics of a partitioned source in progress reports. */
private[headwater] object PartitionMetrics {

  /** Partitions that no longer exist are left out.
    *
    * @param reached
    *   the position of the query
    */
  def of(
      snapshot: Option[PartitionWatch.Snapshot],
      reached: Option[Positions],
      starts: Map[String, Long],
      taskReports: TaskReports
  ): Map[String, String] = {
    val latest = snapshot.fold(Map.empty[String, Long])(_.latest)
    val failing = snapshot.fold(Map.empty[String, PartitionWatch.PartitionErrors])(_.failing)
    val gone = snapshot.fold(Set.empty[String])(_.gone)
    val positions = starts ++ reached.fold(Map.empty[String, Long])(_.at) -- gone
    val lags = latest.map { case (partition, until) =>
      partition -> math.max(0L, until - positions.getOrElse(partition, until))
    }
    val (inBatch, total) = (taskReports.inBatch, taskReports.total)
    ListMap(
      "rowsInBatch" -> inBatch.rows.toString,
      "rowsRead" -> total.rows.toString,
      "rowsLost" -> total.lost.toString,
      "badRows" -> total.bad.toString,
      "waitingRows" -> lags.values.map(BigInt(_)).sum.toString,
      "maxLag" -> lags.values.maxOption.getOrElse(0L).toString,
      "partitionCount" -> (positions.keySet ++ latest.keySet).size.toString,
      "failingPartitions" -> failing.size.toString,
      "partitions" -> json(reached, positions, latest, lags, failing)
    )
  }

  private def json(
      reached: Option[Positions],
      positions: Map[String, Long],
      latest: Map[String, Long],
      lags: Map[String, Long],
      failing: Map[String, PartitionWatch.PartitionErrors]
  ): String = {
    val all = Json.mapper.createObjectNode()
    val order = reached.fold[Ordering[String]](Ordering.String)(_.keyType.order)
    val names = positions.keySet ++ latest.keySet
    (names.toSeq.sorted(order) ++ (failing.keySet -- names)).foreach { partition =>
      val entry = all.putObject(partition)
      positions.get(partition).foreach(entry.put("offset", _))
      latest.get(partition).foreach(entry.put("latest", _))
      lags.get(partition).foreach(entry.put("lag", _))
      entry.put("errors", failing.get(partition).fold(0L)(_.errors))
      failing.get(partition).foreach(failing => entry.put("lastError", failing.last))
    }
    all.toString
  }
}
