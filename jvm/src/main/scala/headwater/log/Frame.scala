package headwater.log

import java.io.IOException
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest
import java.util.zip.CRC32

import headwater.core.Cursor

/** One entry of a segment, with checksums: rows, or the record of a commit. The wiki page "The log on disk"
  * describes its bytes. Lengths are used only after the checksum of the header was verified, and are bounded even
  * then.
  *
  * @param shard
  *   the feed that its rows and its cursor came from; 0 in format 1, which has no shard for rows
  * @param seq
  *   of its first row; for a commit, the last committed row
  * @param arrived
  *   when the JVM received the rows, in microseconds since the epoch; 0 without rows, and in format 1
  * @param isFirst
  *   of a sync group: everything before it in the file was durable when it was written
  * @param hasMore
  *   the next frame belongs to the same row group
  */
private[headwater] final case class Frame(
    format: FrameFormat,
    kind: Byte,
    codec: Codec,
    isFirst: Boolean,
    hasMore: Boolean,
    shard: Int,
    rows: Int,
    seq: Long,
    arrived: Long,
    storedBytes: Int,
    rawBytes: Int,
    payloadCrc: Int,
    note: Array[Byte]
) {
  def headerBytes: Int = format.fixedBytes + note.length
  def length: Long = headerBytes.toLong + storedBytes

  def isRows: Boolean = kind == Frame.RowsKind

  /** The seq after its last row. */
  def next: Long = if (isRows) seq + rows else seq

  /** @throws java.io.IOException when the note is not readable */
  def cursor: Option[Cursor] = Option.when(note.nonEmpty)(format.cursor(this))
}

private[headwater] object Frame {
  val RowsKind: Byte = 1
  val CommitKind: Byte = 2

  /** A row may have 64 MiB, and compression may enlarge incompressible data. */
  val MaxPayloadBytes: Int = 96 << 20
  val MaxNoteBytes: Int = 16 << 20

  /** No log reaches this row: the number was not written by a log. */
  val MaxSeq: Long = 1L << 62

  private[log] val MoreFlag = 1
  private[log] val FirstFlag = 2

  def commit(format: FrameFormat, seq: Long, isFirst: Boolean): Frame =
    Frame(
      format,
      CommitKind,
      Codec.None,
      isFirst,
      hasMore = false,
      0,
      0,
      seq,
      0,
      0,
      0,
      0,
      Array.emptyByteArray
    )

  def crcOf(bytes: Array[Byte], from: Int, length: Int): Int = {
    val crc = new CRC32
    crc.update(bytes, from, length)
    crc.getValue.toInt
  }
}

/** The layout of the frames in a segment. Not thread-safe. */
private[headwater] sealed trait FrameFormat {

  /** The length of a header without its note. */
  def fixedBytes: Int

  /** Whether whoever writes the text of a row can put a valid frame into it. */
  def isForgeable: Boolean

  def isMark(bytes: Array[Byte], at: Int): Boolean

  /** Reads the fixed part of a header. The frame comes without its note, beside the length of the note.
    *
    * @param position
    *   of the frame in the file
    * @return
    *   or what is wrong with it
    */
  def read(header: ByteBuffer, position: Long): Either[String, (Frame, Int)]

  /** Verifies what [[read]] could not without the note. */
  def isIntact(header: ByteBuffer, note: Array[Byte]): Boolean

  /** @throws java.io.IOException when the note is not readable */
  def cursor(frame: Frame): Cursor
}

private[headwater] object FrameFormat {
  import Frame._

  private val NoFrame = "no frame begins here"
  private val Corrupt = "the frame header is corrupt"
  private[log] val WrongChecksum = "the checksum of the frame header is wrong"

  /** Only read. Its checksum is a plain CRC, so a frame in the text of a row is as valid as one of the log: a frame
    * counts only at the position where the one before it ends.
    */
  case object V1 extends FrameFormat {
    override val fixedBytes: Int = 40
    override def isForgeable: Boolean = true
    override def isMark(bytes: Array[Byte], at: Int): Boolean = startsWith(bytes, at, 'r')

    override def read(header: ByteBuffer, position: Long): Either[String, (Frame, Int)] = {
      val in = header.order(ByteOrder.LITTLE_ENDIAN)
      plausible(
        isMark(in.array, in.arrayOffset),
        this,
        in,
        fixedAt = 8,
        shard = 0,
        rows = in.getInt(12),
        seq = in.getLong(16),
        arrived = 0,
        lengthsAt = 24
      )
    }

    override def isIntact(header: ByteBuffer, note: Array[Byte]): Boolean = {
      val crc = new CRC32
      crc.update(header.array, header.arrayOffset + 8, fixedBytes - 8)
      crc.update(note)
      crc.getValue.toInt == header.order(ByteOrder.LITTLE_ENDIAN).getInt(4)
    }

    override def cursor(frame: Frame): Cursor = new String(frame.note, UTF_8) match {
      case Note(shard, json) => Cursor(shard.toInt, json)
      case other => throw new IOException(s"not the note of a frame: ${other.take(200)}")
    }

    private val Note = """(?s)\{"shard":(\d{1,9}),"cursor":(.+)\}""".r
  }

  /** The checksum of a header is bound to the key of the log, the segment and the position in it. Nobody who writes
    * rows knows the key, so a valid frame was written by the log, at this place.
    *
    * @param key
    *   of the log: [[Manifest.key]]
    */
  final class V2(key: String, epoch: Long, number: Long) extends FrameFormat {
    private[this] val digest = MessageDigest.getInstance("SHA-256")
    private[this] val bound = {
      val bytes = Key.bytes(key)
      val bound = ByteBuffer.allocate(bytes.length + 24).order(ByteOrder.LITTLE_ENDIAN)
      bound.put(bytes).putLong(epoch).putLong(number)
    }

    override val fixedBytes: Int = 60
    override def isForgeable: Boolean = false
    override def isMark(bytes: Array[Byte], at: Int): Boolean = startsWith(bytes, at, '2')

    override def read(header: ByteBuffer, position: Long): Either[String, (Frame, Int)] = {
      val in = header.order(ByteOrder.LITTLE_ENDIAN)
      plausible(
        isMark(in.array, in.arrayOffset),
        this,
        in,
        fixedAt = 12,
        shard = in.getInt(16),
        rows = in.getInt(20),
        seq = in.getLong(24),
        arrived = in.getLong(32),
        lengthsAt = 40
      ).filterOrElse(
        _ => checksum(in.array, in.arrayOffset, position) == in.getLong(4),
        WrongChecksum
      )
    }

    override def isIntact(header: ByteBuffer, note: Array[Byte]): Boolean =
      crcOf(note, 0, note.length) == header.order(ByteOrder.LITTLE_ENDIAN).getInt(56)

    override def cursor(frame: Frame): Cursor = Cursor(frame.shard, new String(frame.note, UTF_8))

    /** The header of a frame, with its note. */
    def header(frame: Frame, position: Long): Array[Byte] = {
      val flags = (if (frame.hasMore) MoreFlag else 0) | (if (frame.isFirst) FirstFlag else 0)
      val out = ByteBuffer.allocate(frame.headerBytes).order(ByteOrder.LITTLE_ENDIAN)
      out.put(Mark).putLong(0).put(frame.kind).put(frame.codec.code).put(flags.toByte).put(0: Byte)
      out.putInt(frame.shard).putInt(frame.rows).putLong(frame.seq).putLong(frame.arrived)
      out.putInt(frame.storedBytes).putInt(frame.rawBytes).putInt(frame.payloadCrc)
      out.putInt(frame.note.length).putInt(crcOf(frame.note, 0, frame.note.length)).put(frame.note)
      out.putLong(4, checksum(out.array, 0, position))
      out.array
    }

    private def checksum(header: Array[Byte], from: Int, position: Long): Long = {
      digest.update(bound.putLong(bound.capacity - 8, position).array)
      digest.update(header, from + 12, fixedBytes - 12)
      ByteBuffer.wrap(digest.digest()).order(ByteOrder.LITTLE_ENDIAN).getLong
    }
  }

  private val Mark = "hwf2".getBytes(UTF_8)

  private def startsWith(bytes: Array[Byte], at: Int, version: Char): Boolean =
    bytes(at) == 'h' && bytes(at + 1) == 'w' && bytes(at + 2) == 'f' && bytes(at + 3) == version

  /** What both versions check: kinds, flags, and the limits of all numbers.
    *
    * @param fixedAt
    *   where kind, codec and flags are
    * @param lengthsAt
    *   where the lengths of the payload, its checksum and the length of the note are
    */
  private def plausible(
      isMarked: Boolean,
      format: FrameFormat,
      in: ByteBuffer,
      fixedAt: Int,
      shard: Int,
      rows: Int,
      seq: Long,
      arrived: Long,
      lengthsAt: Int
  ): Either[String, (Frame, Int)] = {
    val kind = in.get(fixedAt)
    val codec = Codec.of(in.get(fixedAt + 1))
    val flags = in.get(fixedAt + 2)
    val stored = in.getInt(lengthsAt)
    val raw = in.getInt(lengthsAt + 4)
    val noteBytes = in.getInt(lengthsAt + 12)
    val isPlausible = (kind == RowsKind || kind == CommitKind) && codec.nonEmpty &&
      flags >= 0 && flags <= (MoreFlag | FirstFlag) && in.get(fixedAt + 3) == 0 && shard >= 0 && rows >= 0 &&
      seq >= 0 && seq <= MaxSeq && within(stored, MaxPayloadBytes) && within(raw, MaxPayloadBytes) &&
      within(noteBytes, MaxNoteBytes)
    if (!isMarked) Left(NoFrame)
    else if (!isPlausible) Left(Corrupt)
    else {
      val frame = Frame(
        format,
        kind,
        codec.get,
        (flags & FirstFlag) != 0,
        (flags & MoreFlag) != 0,
        shard,
        rows,
        seq,
        arrived,
        stored,
        raw,
        in.getInt(lengthsAt + 8),
        Array.emptyByteArray
      )
      Right((frame, noteBytes))
    }
  }

  private def within(length: Int, max: Int): Boolean = length >= 0 && length <= max
}

/** The secret of a log: 128 random bits, as 32 hexadecimal digits. It is in the manifest and in the segments, and
  * nowhere else: a run is in Spark's offsets, which a user interface shows.
  */
private[log] object Key {
  private val Bytes = 16

  def random(): String = {
    val bytes = new Array[Byte](Bytes)
    new java.security.SecureRandom().nextBytes(bytes)
    bytes.map(byte => f"$byte%02x").mkString
  }

  def bytes(key: String): Array[Byte] = {
    require(isKey(key), "the key must have 32 hexadecimal digits")
    key.grouped(2).map(Integer.parseInt(_, 16).toByte).toArray
  }

  def isKey(text: String): Boolean = text.matches("[0-9a-f]{32}")
}
