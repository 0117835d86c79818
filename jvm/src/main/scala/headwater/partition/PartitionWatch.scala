package headwater.partition

import java.util.concurrent.CompletableFuture

import headwater.core.{Arrivals, FeedReport, PartitionKeyType}

/** What is known of the partitions of a source: which there are, and how far each goes. No method but
  * [[awaitComplete]] waits for the author's code.
  */
private[headwater] trait PartitionWatch {

  /** None before the first response. */
  def snapshot: Option[PartitionWatch.Snapshot]

  /** Why the watch has ended. */
  def failure: Option[Throwable]

  /** How offsets grow. Their bytes are not known. */
  def arrivals: Arrivals.Status

  /** Waits until every partition has responded or failed.
    *
    * @return
    *   false when the time was up
    */
  def awaitComplete(nanos: Long): Boolean

  /** For each partition and pair `(start, rows)`: an end such that at most that many rows lie in between. */
  def after(requests: Map[String, (Long, Long)]): CompletableFuture[Map[String, Long]]
}

private[headwater] object PartitionWatch {

  /** @param latest
    *   one past the last offset, of the partitions that have responded
    * @param starts
    *   the start positions of partitions whose start was not known
    * @param gone
    *   partitions that no longer exist
    * @param isComplete
    *   all partitions have responded or failed
    * @param failing
    *   by partition; errors of the source as a whole have the empty key
    * @param report
    *   of the driver's calls
    */
  final case class Snapshot(
      keyType: PartitionKeyType,
      latest: Map[String, Long],
      starts: Map[String, Long],
      gone: Set[String],
      isComplete: Boolean,
      failing: Map[String, PartitionErrors],
      report: FeedReport = FeedReport("running")
  )

  /** @param errors the number of errors in a row */
  final case class PartitionErrors(errors: Long, last: String)
}
