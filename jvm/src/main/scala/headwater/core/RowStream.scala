package headwater.core

import scala.concurrent.duration.{Deadline, FiniteDuration}

/** A stream of rows with offsets, as the adapters to Spark's interfaces see it. It uses none of these interfaces.
  *
  * For each batch an adapter calls [[latest]] (how far can this batch go?), then [[commit]] of the batch before (its
  * rows may be dropped), then [[plan]] (the rows of `(from, to]`). While there is nothing new, Spark asks for
  * [[latest]] every 10 ms. These calls come from the query's thread, each after [[open]]. [[newest]] and [[metrics]]
  * never block. [[stop]] may be called at any time, from any thread.
  *
  * After a restart Spark first plans the last batch of its offset log again. If that batch did not finish, Spark runs
  * it; if it did, the plan is never run. So a plan whose rows are lost is still a plan, and the loss is reported when
  * it runs, since only then the rows are needed.
  *
  * @tparam Plan
  *   what [[plan]] returns, for the adapter to make partitions of
  */
private[headwater] trait RowStream[Plan] {
  def name: String

  /** What progress reports and the UI show. It contains no secret. */
  def description: String

  /** Opens the stream at a position that Spark has, and starts to read the source. Later calls do nothing.
    *
    * The stream is not opened when it is created: Spark stops a source only if all other sources of the query could be
    * created too.
    */
  def open(known: Position): Unit

  /** The position before the first row. */
  def beginning: Position = Beginning

  /** Only by its JSON: offsets from Spark's offset log are not instances of our classes.
    *
    * @throws InvalidOffsetException
    *   when this is not an offset, or an offset of another source
    */
  def parse(json: String): Position

  /** The end of the next batch after `from`; None while there is no batch.
    *
    * @throws FeedFailedException
    *   when the source failed and all rows before the failure were read
    */
  def latest(from: Position, limit: Admission): Option[StreamOffset]

  /** The offset of the newest row, whatever the limits allow. */
  def newest: Option[StreamOffset]

  /** The stream ends with the rows that are available now, or that arrive within `availableNowWait`. The end is fixed by
    * the next [[latest]]: only then is the start position known.
    */
  def fixEnd(): Unit

  /** The rows of `(from, to]`: always the same rows for the same pair, after a restart too. */
  def plan(from: Position, to: Position): Plan

  /** Rows as they arrive, for real-time mode. */
  def live: LiveBatches

  /** Spark will not ask again for the rows up to `to`. */
  def commit(to: Position): Unit

  /** Why no more rows come. */
  def failure: Option[Throwable]

  /** For progress reports. */
  def metrics: Map[String, String]

  /** Ends the source and releases everything. A source that does not end in time is abandoned, and its rows refused. */
  def stop(deadline: Deadline): Unit
}

/** A position in a stream: the beginning, or the end of a batch. */
private[headwater] sealed trait Position

private[headwater] case object Beginning extends Position

/** An offset as Spark stores it. Spark compares offsets as strings, so equal positions have equal JSON. */
private[headwater] trait StreamOffset extends Position {
  def json: String
}

/** Reads a stream in real-time mode: rows are handed on as they arrive, and the end of a batch is known when it is over.
  * There is a reader for each shard, in a task of its own. Thread-safe.
  */
private[headwater] trait LiveBatches extends LiveRows {

  /** A batch begins.
    *
    * @return
    *   for each reader, the seq after which it begins
    */
  def begin(start: Position): IndexedSeq[Long]

  /** The batch is over.
    *
    * @param positions
    *   up to which seq each reader has handed on the rows of its shard
    * @return
    *   the end of the batch
    */
  def end(positions: IndexedSeq[Long]): Position
}

/** What a reader of a stream in real-time mode calls, in a task. */
trait LiveRows {

  /** The next rows after `after`, of all shards; waits for the first of them.
    *
    * @param after
    *   the reader has handed on all rows of its shard up to this seq
    * @throws FeedFailedException
    *   when the source failed and all rows before the failure were read
    */
  def await(shard: Int, after: Long, timeout: FiniteDuration): ArrivedRows
}

/** @param slices
  *   empty if no row arrived in time
  * @param end
  *   the seq of the last row that was looked at
  */
final case class ArrivedRows(slices: Seq[Slice], end: Long)
