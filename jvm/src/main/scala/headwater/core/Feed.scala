package headwater.core

import scala.concurrent.duration.Deadline

import headwater.buffer.Buffer

/** A running source. It produces rows until it has no more, or until it is closed. */
trait Feed {

  /** Called once, in a thread of its own. Returns when there are no more rows. An exception fails the query,
    * after Spark has read the rows that were appended before it.
    */
  def run(out: RowSink): Unit

  /** Called once, from another thread, to make [[run]] return: closes what it may be blocked on. The thread is
    * interrupted afterwards. The call may come before or after [[run]], and must return by the deadline.
    */
  def close(deadline: Deadline): Unit

  /** What it reports of itself; None if there is nothing beside whether it runs. Never blocks. */
  def report: Option[FeedReport] = None
}

/** Where a feed puts its rows. Thread-safe. */
trait RowSink {

  /** Appends rows, and the upstream's position after them. Blocks while there is no room; this is how
    * back-pressure reaches the feed.
    *
    * @return
    *   false when the feed must end
    */
  def append(rowGroup: RowGroup): Boolean

  final def append(rows: ArrowRows): Boolean = append(RowGroup(Seq(rows)))

  /** The feed has appended everything that its upstream has for now. An AvailableNow run need not wait longer. */
  def caughtUp(): Unit

  def status: Buffer.Status
}
