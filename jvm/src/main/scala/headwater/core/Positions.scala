package headwater.core

import scala.collection.immutable.TreeMap

/** The next offset to read in each partition of a source, sorted by partition. */
final case class Positions private (keyType: PartitionKeyType, at: TreeMap[String, Long]) {
  require(at.nonEmpty, "positions of no partition")
  at.foreach { case (partition, offset) =>
    require(keyType.isPartition(partition), s"not a partition: ${keyType.allowed} is, not '$partition'")
    require(offset >= 0, s"not an offset of partition '$partition': $offset")
  }

  def get(partition: String): Option[Long] = at.get(partition)

  /** These positions, and those of partitions that are missing here. */
  def orElse(others: Map[String, Long]): Positions = Positions(keyType, others ++ at)

  def updated(changed: Map[String, Long]): Positions = Positions(keyType, at ++ changed)
}

object Positions {
  def apply(keyType: PartitionKeyType, at: Iterable[(String, Long)]): Positions =
    new Positions(keyType, TreeMap.from(at)(keyType.order))
}

/** How a source identifies its partitions: all by numbers, or all by names. `name` is the type's name in JSON. */
sealed abstract class PartitionKeyType(val name: String, val allowed: String) extends Serializable {
  def isPartition(text: String): Boolean
  def order: Ordering[String]
}

object PartitionKeyType {
  case object Numbers extends PartitionKeyType("int", s"an integer from 0 to ${Int.MaxValue}") {
    override def isPartition(text: String): Boolean =
      text.toIntOption.exists(n => n >= 0 && n.toString == text)
    override def order: Ordering[String] = Ordering.by(_.toInt)
  }

  /** Lone surrogates are rejected: no file could store them. */
  case object Names extends PartitionKeyType("text", "a name of 1 to 255 characters") {
    override def isPartition(text: String): Boolean =
      text.nonEmpty && text.codePointCount(0, text.length) <= 255 &&
        !text.codePoints.anyMatch(c => Character.MIN_SURROGATE <= c && c <= Character.MAX_SURROGATE)
    override def order: Ordering[String] = Ordering.String
  }

  val all: Seq[PartitionKeyType] = Seq(Numbers, Names)

  def named(name: String): Option[PartitionKeyType] = all.find(_.name == name)
}
