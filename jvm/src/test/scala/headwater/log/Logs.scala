package headwater.log

import java.io.ByteArrayOutputStream
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.Base64

import scala.concurrent.duration._
import scala.util.Using

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.core.{ArrowSchema, Cursor, Durability, RowGroup, SeqOffset, Slice, Store}
import headwater.testing.{NumberedRows, Script}
import org.apache.hadoop.conf.Configuration

/** Stores and rows for the suites of the log. The id of a row is its seq, unless a test states otherwise. */
object Logs {
  val Source = "letters"
  val Run = "0123456789abcdef"
  val Key = "00112233445566778899aabbccddeeff"
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

  /** Of a log that this object's source has written, up to any epoch of the tests. */
  val manifest: Manifest = Manifest(Source, Run, Key, 9, 0, 0, 1, Script.schema.json, Map.empty)

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

  /** The same for a log that a full disk has blocked, and that has room again. */
  def awaitFlushed(store: Store): Unit =
    Script.await("the log does not continue")(store.isFlushed || store.failure.nonEmpty)

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
  def contentOf(scan: LogScan): Map[Long, Either[String, Long]] = {
    val lost = scan.lost.flatMap(lost => (lost.first to lost.last).map(_ -> Left(lost.why)))
    (lost ++ scan.rows.flatMap { case (first, rows) =>
      var why = Vector.empty[String]
      val slices = read(Seq(Slice.whole(rows)))(e => why :+= e.getMessage)
      val ids = NumberedRows.ids(slices)
      assert(ids.length == rows.count || why.nonEmpty, s"rows are missing from ${first -> rows}, silently")
      val range = first until first + rows.count
      assert(ids.forall(range.contains(_)) && ids == ids.sorted.distinct, s"$first $rows gives $ids")
      range.map(seq => seq -> (if (ids.contains(seq)) Right(seq) else Left(why.mkString("; "))))
    }).toMap
  }
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

  /** @param version of the format */
  def segment(
      epoch: Long,
      number: Long,
      first: Long,
      cursors: Map[Int, String] = Map.empty,
      codec: Codec = Codec.None,
      version: Int = SegmentHeader.Version
  )(groups: Seq[Entry]*): Segment = {
    val header =
      SegmentHeader(version, Logs.Source, Logs.Run, epoch, number, first, 0, Logs.Key, Logs.schema, cursors)
    val out = new ByteArrayOutputStream
    out.write(if (version == 1) Version1.bytes(header) else header.bytes)
    var seq = first
    var whole = first
    val starts = Vector.newBuilder[Int]
    val at = Vector.newBuilder[(Int, Long)]
    at += out.size -> first
    groups.foreach { group =>
      starts += out.size
      var isFirst = true
      def put(frame: Frame, payload: Array[Byte]): Unit = {
        out.write(bytes(frame, out.size.toLong))
        out.write(payload)
        if (!frame.hasMore) whole = seq
        at += out.size -> whole
        isFirst = false
      }
      group.foreach {
        case Commit(end) => put(Frame.commit(header.frameFormat, end, isFirst), Array.emptyByteArray)
        case Rows(counts, cursor) =>
          (if (counts.isEmpty) Seq(0) else counts).zipWithIndex.foreach { case (count, i) =>
            val isLast = i >= counts.length - 1
            val raw = if (count == 0) Array.emptyByteArray else NumberedRows.rows(seq, count, 24).bytes
            val stored = if (count == 0) raw else codec.compress(raw)
            val first = seq
            seq += count
            val frame = Frame(
              header.frameFormat,
              Frame.RowsKind,
              if (count == 0) Codec.None else codec,
              isFirst,
              !isLast,
              cursor.fold(0)(_.shard),
              count,
              first,
              0,
              stored.length,
              raw.length,
              Frame.crcOf(stored, 0, stored.length),
              Array.emptyByteArray
            )
            put(frame.copy(note = note(frame.format, cursor.filter(_ => isLast))), stored)
          }
      }
    }
    Segment(header.name, out.toByteArray, starts.result(), at.result())
  }

  /** A cursor as the note of a frame. */
  def note(format: FrameFormat, cursor: Option[Cursor]): Array[Byte] = format match {
    case FrameFormat.V1 =>
      cursor.fold("")(c => s"""{"shard":${c.shard},"cursor":${c.json}}""").getBytes(UTF_8)
    case _: FrameFormat.V2 => cursor.fold("")(_.json).getBytes(UTF_8)
  }

  /** The header of a frame, with its note. */
  def bytes(frame: Frame, position: Long): Array[Byte] = frame.format match {
    case FrameFormat.V1 => Version1.bytes(frame)
    case format: FrameFormat.V2 => format.header(frame, position)
  }
}

/** Writes format 1, as headwater 0.1 did. */
object Version1 {
  private val Mark = "hwfr".getBytes(UTF_8)

  def bytes(header: SegmentHeader): Array[Byte] = {
    val tree = LogJson.mapper.createObjectNode().put("v", 1).put("source", header.source)
    tree.put("run", header.run).put("epoch", header.epoch).put("number", header.number)
    tree.put("first", header.first)
    tree.put("arrowSchema", Base64.getEncoder.encodeToString(header.arrowSchema.bytes))
    val cursors = tree.putObject("cursors")
    header.cursors.foreach { case (shard, json) =>
      cursors.set[JsonNode](shard.toString, LogJson.mapper.readTree(json))
    }
    val json = tree.toString.getBytes(UTF_8)
    val out = ByteBuffer.allocate(16 + json.length).order(ByteOrder.LITTLE_ENDIAN)
    out
      .put(SegmentHeader.magic(1))
      .putInt(json.length)
      .putInt(Frame.crcOf(json, 0, json.length))
      .put(json)
      .array
  }

  def bytes(frame: Frame): Array[Byte] = {
    val flags = (if (frame.hasMore) 1 else 0) | (if (frame.isFirst) 2 else 0)
    val out = ByteBuffer.allocate(frame.headerBytes).order(ByteOrder.LITTLE_ENDIAN)
    out.put(Mark).putInt(0).put(frame.kind).put(frame.codec.code).put(flags.toByte).put(0: Byte)
    out.putInt(frame.rows).putLong(frame.seq).putInt(frame.storedBytes).putInt(frame.rawBytes)
    out.putInt(frame.payloadCrc).putInt(frame.note.length).put(frame.note)
    out.putInt(4, Frame.crcOf(out.array, 8, frame.headerBytes - 8)).array
  }

  def json(manifest: Manifest): String = {
    val fields = LogJson.mapper.readTree(manifest.json).asInstanceOf[ObjectNode].put("v", 1)
    fields.remove(java.util.List.of("key", "next", "crc")).toString
  }
}

/** The number of random runs: `HEADWATER_LOG_SEEDS=10000` for a long search. */
object Seeds {
  def count(usual: Int): Int = sys.env.get("HEADWATER_LOG_SEEDS").fold(usual)(_.toInt)
}
