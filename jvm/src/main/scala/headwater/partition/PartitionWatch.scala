package headwater.partition

import java.util.concurrent.CompletableFuture

import headwater.core.PartitionKeyType

/** What Python sees of the partitions of a source, as it was told last: which there are, and how far each goes.
  *
  * Python asks the author's code, in threads of its own, and answers when something has changed; here the answer is kept,
  * and the next is asked for. So whoever wants to know how things stand never waits for the author's code.
  */
private[headwater] trait PartitionWatch extends AutoCloseable {

  /** None until Python has answered for the first time. */
  def seen: Option[PartitionWatch.Seen]

  /** What Python has given up for. */
  def failure: Option[Throwable]

  /** Waits until every partition has answered, or failed to; false if that did not come in time. */
  def awaitComplete(nanos: Long): Boolean

  /** For each partition, an end behind that start such that at most so many rows lie between. */
  def after(wanted: Map[String, (Long, Long)]): CompletableFuture[Map[String, Long]]
}

private[headwater] object PartitionWatch {

  /** @param latest
    *   one past the last offset, of the partitions that have answered
    * @param starts
    *   where those begin whose start was not known
    * @param gone
    *   partitions that are not there any more
    * @param isComplete
    *   all that are there have answered, or failed to
    * @param failing
    *   by partition; what fails for all of them has the empty name
    */
  final case class Seen(
      naming: PartitionKeyType,
      latest: Map[String, Long],
      starts: Map[String, Long],
      gone: Set[String],
      isComplete: Boolean,
      failing: Map[String, Failing]
  )

  /** @param errors in a row */
  final case class Failing(errors: Long, last: String)
}
