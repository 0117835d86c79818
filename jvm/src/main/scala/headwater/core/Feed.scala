package headwater.core

import headwater.buffer.Buffer

/** A source at work: it makes rows until it has no more, or until it is told to end. */
trait Feed {

  /** Called once, on a thread of its own. To return is to say that there are no more rows; to throw fails the query,
    * once Spark has read what was given before.
    */
  def run(out: RowSink): Unit

  /** Called from another thread, once, to make [[run]] return soon: close what it may be blocked on. The thread is
    * interrupted afterwards. It may come before [[run]] and after it; it takes a few seconds at most.
    */
  def close(): Unit
}

/** Where a feed puts its rows. Any number of threads may use it. */
trait RowSink {

  /** Takes some rows, and where the upstream stands after them. Blocks while there is no room.
    *
    * @return
    *   false when the feed has to end
    */
  def give(parcel: RowGroup): Boolean

  final def give(rows: ArrowRows): Boolean = give(RowGroup(Seq(rows)))

  /** The feed has given all that its upstream has for now. A run that ends with what is available need not wait longer. */
  def caughtUp(): Unit

  def status: Buffer.Status
}
