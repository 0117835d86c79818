package headwater.core

import scala.collection.immutable.TreeMap

/** Where each partition of a source stands: the next offset to be read of it. Partitions are called by names or by numbers,
  * all of a source in the same way, and stand in the order of those.
  */
final case class Positions private (naming: PartitionKeyType, at: TreeMap[String, Long]) {
  require(at.nonEmpty, "positions of no partition")
  at.foreach { case (partition, offset) =>
    require(naming.isPartition(partition), s"not a partition: ${naming.allowed} is, not '$partition'")
    require(offset >= 0, s"not an offset of partition '$partition': $offset")
  }

  def get(partition: String): Option[Long] = at.get(partition)

  /** These, and those of partitions that are not among them. */
  def orElse(others: Map[String, Long]): Positions = Positions(naming, others ++ at)

  def updated(changed: Map[String, Long]): Positions = Positions(naming, at ++ changed)
}

object Positions {
  def apply(naming: PartitionKeyType, at: Iterable[(String, Long)]): Positions =
    new Positions(naming, TreeMap.from(at)(naming.order))
}

/** How the partitions of a source are called. It is known by its own name in JSON. */
sealed abstract class PartitionKeyType(val name: String, val allowed: String) extends Serializable {
  def isPartition(text: String): Boolean
  def order: Ordering[String]
}

object PartitionKeyType {
  case object Numbers extends PartitionKeyType("int", s"a whole number from 0 to ${Int.MaxValue}") {
    override def isPartition(text: String): Boolean =
      text.toIntOption.exists(n => n >= 0 && n.toString == text)
    override def order: Ordering[String] = Ordering.by(_.toInt)
  }

  /** Without half a character, which no file could hold. */
  case object Names extends PartitionKeyType("text", "a name of 1 to 255 characters") {
    override def isPartition(text: String): Boolean =
      text.nonEmpty && text.codePointCount(0, text.length) <= 255 &&
        !text.codePoints.anyMatch(c => Character.MIN_SURROGATE <= c && c <= Character.MAX_SURROGATE)
    override def order: Ordering[String] = Ordering.String
  }

  val all: Seq[PartitionKeyType] = Seq(Numbers, Names)

  def named(name: String): Option[PartitionKeyType] = all.find(_.name == name)
}
