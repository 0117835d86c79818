package headwater.partition

import scala.collection.mutable

import headwater.core.{Json, PartitionKeyType}

/** Offsets `start until end` of one partition, in a batch.
  *
  * @param number
  *   of the range in its batch, for what a task reports of it
  */
private[headwater] final case class PartitionRange(number: Int, partition: String, start: Long, end: Long) {
  def width: Long = end - start
}

/** Which ranges a batch has, and which task reads them. */
private[headwater] object Ranges {

  /** Tasks in the order of their ranges; each range is in one.
    *
    * A range becomes several where there are fewer than `minTasks`, in proportion to its width, and then each is a task.
    * Many small ones share a task: a task costs some milliseconds whatever it reads, and more of them than there are
    * slots only wait for each other. So ranges are dealt out to the slots, the widest first, each to the task that has
    * least.
    */
  def tasks(ranges: Seq[PartitionRange], minTasks: Int, slots: Int): Seq[Seq[PartitionRange]] =
    if (ranges.isEmpty) Seq.empty
    else if (ranges.size < minTasks) split(ranges, minTasks).map(Seq(_))
    else if (ranges.size <= math.max(minTasks, slots)) ranges.map(Seq(_))
    else dealt(ranges, math.max(minTasks, slots))

  /** What a task is told, as JSON. */
  def json(naming: PartitionKeyType, task: Seq[PartitionRange]): String = {
    val told = Json.mapper.createObjectNode()
    val listed = told.putArray("ranges")
    task.foreach { range =>
      listed.addObject
        .put("i", range.number)
        .put("p", range.partition)
        .put("kind", naming.name)
        .put("start", range.start)
        .put("end", range.end)
    }
    told.toString
  }

  private def split(ranges: Seq[PartitionRange], wanted: Int): Seq[PartitionRange] = {
    val total = ranges.map(range => BigInt(range.width)).sum
    val pieces = ranges.flatMap { range =>
      // Rounded up: there are as many as wanted, or more.
      val share = (BigInt(range.width) * wanted + total - 1) / total
      val count = share.max(1).min(range.width).toLong
      (0L until count).map { i =>
        def border(n: Long): Long = range.start + (BigInt(range.width) * n / count).toLong
        range.copy(start = border(i), end = border(i + 1))
      }
    }
    pieces.zipWithIndex.map { case (piece, number) => piece.copy(number = number) }
  }

  private def dealt(ranges: Seq[PartitionRange], count: Int): Seq[Seq[PartitionRange]] = {
    val hands = Vector.fill(count)(Vector.newBuilder[PartitionRange])
    val least = mutable.PriorityQueue.from((0 until count).map(hand => (BigInt(0), hand)))(
      Ordering[(BigInt, Int)].reverse
    )
    ranges.sortBy(range => (-range.width, range.number)).foreach { range =>
      val (weight, hand) = least.dequeue()
      hands(hand) += range
      least.enqueue((weight + range.width, hand))
    }
    hands.map(_.result().sortBy(_.number)).sortBy(_.head.number)
  }
}

/** How many of the rows that wait each partition may give, where not all can come at once. */
private[headwater] object Shares {

  /** By how much waits in each, and none is left out for ever: first one row for each, beginning with the partition whose
    * turn it is where there are not that many, then in proportion to what is left.
    *
    * @return
    *   `max` in all, or all that waits if that is less
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
      // What rounding has left over is less than one for each.
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
