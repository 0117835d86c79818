package headwater.partition

import scala.collection.mutable

import headwater.core.{Json, PartitionKeyType}

/** The offsets `start until end` of one partition, in a batch.
  *
  * @param number
  *   of the range in its batch; reports of tasks refer to it
  */
private[headwater] final case class PartitionRange(number: Int, partition: String, start: Long, end: Long) {
  def width: Long = end - start
}

/** Distributes the ranges of a batch over tasks. */
private[headwater] object Ranges {

  /** Tasks in the order of their ranges; each range is in one task.
    *
    * With fewer ranges than `minTasks`, ranges are split in proportion to their width, and each piece is a task.
    * With more ranges than slots, small ranges share a task: a task costs some milliseconds whatever it reads,
    * and more tasks than slots would only queue. The widest range is assigned first, each to the task with the
    * least width so far.
    */
  def tasks(ranges: Seq[PartitionRange], minTasks: Int, slots: Int): Seq[Seq[PartitionRange]] =
    if (ranges.isEmpty) Seq.empty
    else if (ranges.size < minTasks) split(ranges, minTasks).map(Seq(_))
    else if (ranges.size <= math.max(minTasks, slots)) ranges.map(Seq(_))
    else distribute(ranges, math.max(minTasks, slots))

  /** The ranges of a task as JSON, as Python reads them. */
  def json(keyType: PartitionKeyType, task: Seq[PartitionRange]): String = {
    val json = Json.mapper.createObjectNode()
    val array = json.putArray("ranges")
    task.foreach { range =>
      array.addObject
        .put("i", range.number)
        .put("p", range.partition)
        .put("kind", keyType.name)
        .put("start", range.start)
        .put("end", range.end)
    }
    json.toString
  }

  private def split(ranges: Seq[PartitionRange], minTasks: Int): Seq[PartitionRange] = {
    val total = ranges.map(range => BigInt(range.width)).sum
    val pieces = ranges.flatMap { range =>
      // Rounded up, so that there are at least minTasks pieces.
      val share = (BigInt(range.width) * minTasks + total - 1) / total
      val count = share.max(1).min(range.width).toLong
      (0L until count).map { i =>
        def boundary(n: Long): Long = range.start + (BigInt(range.width) * n / count).toLong
        range.copy(start = boundary(i), end = boundary(i + 1))
      }
    }
    pieces.zipWithIndex.map { case (piece, number) => piece.copy(number = number) }
  }

  private def distribute(ranges: Seq[PartitionRange], count: Int): Seq[Seq[PartitionRange]] = {
    val tasks = Vector.fill(count)(Vector.newBuilder[PartitionRange])
    val smallestFirst = mutable.PriorityQueue.from((0 until count).map(task => (BigInt(0), task)))(
      Ordering[(BigInt, Int)].reverse
    )
    ranges.sortBy(range => (-range.width, range.number)).foreach { range =>
      val (width, task) = smallestFirst.dequeue()
      tasks(task) += range
      smallestFirst.enqueue((width + range.width, task))
    }
    tasks.map(_.result().sortBy(_.number)).sortBy(_.head.number)
  }
}

/** How many of the waiting rows each partition may contribute, when not all fit into a batch. */
private[headwater] object Shares {

  /** In proportion to the rows that wait, and without starving a partition: each gets one row first, beginning
    * with the partition `turn` when there are fewer rows than partitions, and the rest is shared in proportion.
    *
    * @return
    *   `max` in total, or everything that waits if that is less
    */
  def of(waiting: IndexedSeq[Long], max: Long, turn: Int): IndexedSeq[Long] = {
    val total = waiting.map(BigInt(_)).sum
    if (total <= max) waiting
    else {
      val order = waiting.indices.map(i => (i + turn) % waiting.size).filter(waiting(_) > 0)
      val shares = Array.fill(waiting.size)(0L)
      order.take(math.min(max, Int.MaxValue.toLong).toInt).foreach(shares(_) = 1)
      val left = max - shares.sum
      val rest = waiting.indices.map(i => BigInt(waiting(i) - shares(i)))
      val all = rest.sum
      if (left > 0) rest.indices.foreach(i => shares(i) += (rest(i) * left / all).toLong)
      // Rounding leaves less than one row for each partition.
      var over = max - shares.sum
      order.filter(i => shares(i) < waiting(i)).foreach { i =>
        if (over > 0) {
          shares(i) += 1
          over -= 1
        }
      }
      shares.toIndexedSeq
    }
  }
}
