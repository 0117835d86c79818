package headwater.log

import scala.concurrent.duration._
import scala.util.Using

import headwater.core.{ArrowSchema, Cursor, Durability, LostRows, RowGroup, SeqOffset, Slice, Store}
import headwater.testing.{NumberedRows, Script}
import org.apache.hadoop.conf.Configuration

/** Stores and rows for the suites of the log. The id of a row is its seq, unless a test states otherwise. */
object Logs {
  val Source = "letters"
  val Run = "0123456789abcdef"
  val schema = new ArrowSchema(Script.arrowSchema.serializeAsMessage())

  def settings(
      codec: Codec = Codec.None,
      retainBatches: Int = 100,
      retainBytes: Long = Long.MaxValue,
      segmentBytes: Long = 64L << 20,
      logBytes: Long = Long.MaxValue,
      failOnDataLoss: Boolean = true
  ): LogStore.Settings = LogStore.Settings(
    Source,
    Script.schema.json,
    schema,
    shards = 1,
    isResumable = true,
    identity = Map.empty,
    logBytes,
    SegmentLog.Settings(codec, retainBatches, retainBytes, segmentBytes),
    failOnDataLoss
  )

  def open(
      files: LogFiles,
      options: LogStore.Settings = settings(),
      known: Option[SeqOffset] = None,
      run: String = Run
  ): LogStore = LogStore.open(files, options, known, run, () => System.nanoTime())

  def offset(seq: Long, run: String = Run, durability: Durability = Durability.Log): Option[SeqOffset] =
    Some(SeqOffset(Source, run, seq, durability))

  /** One batch of rows. Its cursor is the seq of its last row. */
  def rowGroup(first: Long, count: Int, bytes: Int = 24): RowGroup =
    RowGroup(Seq(NumberedRows.rows(first, count, bytes)), Some(Cursor(0, (first + count - 1).toString)))

  /** Waits until all appended rows are in the index, or never will be. */
  def settle(store: Store): Unit = {
    var settled = false // once is enough: a commit may be pending again
    store.buffer.awaitCatchUp(60000000000L) {
      settled = store.isFlushed || store.failure.nonEmpty
      settled
    }
    assert(settled || store.buffer.isBlocked, "the log does not settle")
  }

  def append(store: Store, rowGroups: RowGroup*): Unit = {
    rowGroups.foreach(rowGroup => assert(store.append(rowGroup), store.failure))
    settle(store)
  }

  /** As at the end of a query: the buffer is closed, then the store. */
  def close(store: Store): Unit = {
    store.buffer.close()
    store.close(1.second.fromNow, availableNow = false)
  }

  def withStore[T](
      files: LogFiles,
      options: LogStore.Settings = settings(),
      known: Option[SeqOffset] = None
  )(
      body: LogStore => T
  ): T = {
    val store = open(files, options, known)
    try body(store)
    finally close(store)
  }

  /** The ids of a window, as a task reads them. */
  def ids(store: Store, start: Long, end: Long): Seq[Long] = {
    val window = store.buffer.read(start, end)
    assert(window.goneUpTo == start && window.lost.isEmpty, window)
    ids(window.slices)
  }

  def all(store: Store): Seq[Long] = ids(store, store.buffer.firstNotDropped - 1, store.buffer.latest)

  def ids(slices: Seq[Slice]): Seq[Long] = NumberedRows.ids(read(slices)(throw _))

  def read(slices: Seq[Slice])(onDamage: DamagedException => Unit): Seq[Slice] =
    Using.resource(new StoredSlices(slices.iterator, () => new Configuration(false), (e, _) => onDamage(e)))(
      _.toVector
    )

  /** Every row of a scan: its id, or why it is lost. */
  def contentOf(scan: LogScan): Map[Long, Either[String, Long]] = scan.rows.flatMap {
    case (first, LostRows(count, why)) => (first until first + count).map(_ -> Left(why))
    case (first, rows) =>
      var why = Vector.empty[String]
      val slices = read(Seq(Slice.whole(rows)))(e => why :+= e.getMessage)
      val ids = NumberedRows.ids(slices)
      assert(ids.length == rows.count || why.nonEmpty, s"rows are missing from ${first -> rows}, silently")
      val range = first until first + rows.count
      assert(ids.forall(range.contains(_)) && ids == ids.sorted.distinct, s"$first $rows gives $ids")
      range.map(seq => seq -> (if (ids.contains(seq)) Right(seq) else Left(why.mkString("; "))))
  }.toMap
}

/** Writes segments as a test needs them. */
object Written {
  sealed trait Entry
  final case class Rows(counts: Seq[Int], cursor: Option[Cursor] = None) extends Entry
  final case class Commit(seq: Long) extends Entry

  /** @param at where a frame ends, and the seq after the last complete row group there */
  final case class Segment(name: String, bytes: Array[Byte], groups: Vector[Int], at: Vector[(Int, Long)]) {
    def headerBytes: Int = groups.headOption.getOrElse(bytes.length)
    def next: Long = at.last._2
  }

  def rows(counts: Int*): Rows = Rows(counts)

  def segment(
      epoch: Long,
      number: Long,
      first: Long,
      cursors: Map[Int, String] = Map.empty,
      codec: Codec = Codec.None
  )(groups: Seq[Entry]*): Segment = {
    val header = SegmentHeader(Logs.Source, Logs.Run, epoch, number, first, Logs.schema, cursors)
    val out = new java.io.ByteArrayOutputStream
    out.write(header.bytes)
    var seq = first
    var whole = first
    val starts = Vector.newBuilder[Int]
    val at = Vector.newBuilder[(Int, Long)]
    at += out.size -> first
    groups.foreach { group =>
      starts += out.size
      var isFirst = true
      def put(frame: Frame, payload: Array[Byte]): Unit = {
        out.write(frame.header)
        out.write(payload)
        if (!frame.hasMore) whole = seq
        at += out.size -> whole
        isFirst = false
      }
      group.foreach {
        case Commit(end) => put(Frame.commit(end, isFirst), Array.emptyByteArray)
        case Rows(counts, cursor) =>
          val note = cursor.fold(Array.emptyByteArray)(Frame.Note.write)
          (if (counts.isEmpty) Seq(0) else counts).zipWithIndex.foreach { case (count, i) =>
            val isLast = i >= counts.length - 1
            val raw = if (count == 0) Array.emptyByteArray else NumberedRows.rows(seq, count, 24).bytes
            val stored = if (count == 0) raw else codec.compress(raw)
            val crc = Frame.crcOf(stored, 0, stored.length)
            val first = seq
            seq += count
            put(
              Frame(
                Frame.RowsKind,
                if (count == 0) Codec.None else codec,
                isFirst,
                !isLast,
                count,
                first,
                stored.length,
                raw.length,
                crc,
                if (isLast) note else Array.emptyByteArray
              ),
              stored
            )
          }
      }
    }
    Segment(header.name, out.toByteArray, starts.result(), at.result())
  }
}

/** The number of random runs: `HEADWATER_LOG_SEEDS=10000` for a long search. */
object Seeds {
  def count(usual: Int): Int = sys.env.get("HEADWATER_LOG_SEEDS").fold(usual)(_.toInt)
}
