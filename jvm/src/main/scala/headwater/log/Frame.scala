package headwater.log

import java.io.IOException
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.CRC32

import headwater.core.Cursor

/** One entry of a segment, with checksums: rows, or the record of a commit. The wiki page "The log on disk"
  * describes its bytes. Lengths are used only after the checksum of the header was verified, and are bounded even
  * then.
  *
  * @param seq
  *   of its first row; for a commit, the last committed row
  * @param isFirst
  *   of a sync group: everything before it in the file was durable when it was written
  * @param hasMore
  *   the next frame belongs to the same row group
  */
private[headwater] final case class Frame(
    kind: Byte,
    codec: Codec,
    isFirst: Boolean,
    hasMore: Boolean,
    rows: Int,
    seq: Long,
    storedBytes: Int,
    rawBytes: Int,
    payloadCrc: Int,
    note: Array[Byte]
) {
  import Frame._

  def headerBytes: Int = HeaderBytes + note.length
  def length: Long = headerBytes.toLong + storedBytes

  def isRows: Boolean = kind == RowsKind

  /** The seq after its last row. */
  def next: Long = if (isRows) seq + rows else seq

  /** @throws java.io.IOException when the note is not readable */
  def cursor: Option[Cursor] = Option.when(note.nonEmpty)(Note.read(note))

  def hasReadableNote: Boolean = note.isEmpty || Note.isReadable(note)

  def header: Array[Byte] = {
    val flags = (if (hasMore) MoreFlag else 0) | (if (isFirst) FirstFlag else 0)
    val bytes = ByteBuffer.allocate(headerBytes).order(ByteOrder.LITTLE_ENDIAN)
    bytes.putInt(Mark).putInt(0).put(kind).put(codec.code).put(flags.toByte).put(0: Byte)
    bytes
      .putInt(rows)
      .putLong(seq)
      .putInt(storedBytes)
      .putInt(rawBytes)
      .putInt(payloadCrc)
      .putInt(note.length)
    bytes.put(note)
    bytes.putInt(4, crcOf(bytes.array, 8, headerBytes - 8))
    bytes.array
  }
}

private[headwater] object Frame {
  val HeaderBytes = 40

  val RowsKind: Byte = 1
  val CommitKind: Byte = 2

  /** A row may have 64 MiB, and compression may enlarge incompressible data. */
  val MaxPayloadBytes: Int = 96 << 20
  val MaxNoteBytes: Int = 16 << 20

  private val Mark = ByteBuffer.wrap("hwfr".getBytes(UTF_8)).order(ByteOrder.LITTLE_ENDIAN).getInt
  private val MoreFlag = 1
  private val FirstFlag = 2

  def commit(seq: Long, isFirst: Boolean): Frame =
    Frame(CommitKind, Codec.None, isFirst, hasMore = false, 0, seq, 0, 0, 0, Array.emptyByteArray)

  /** Parses the fixed part of a header; None if it is not one. The note is filled in later. */
  def readFixedPart(header: ByteBuffer): Option[Frame] = {
    val in = header.order(ByteOrder.LITTLE_ENDIAN)
    val kind = in.get(8)
    val codec = Codec.of(in.get(9))
    val flags = in.get(10)
    val frame = Frame(
      kind,
      codec.getOrElse(Codec.None),
      (flags & FirstFlag) != 0,
      (flags & MoreFlag) != 0,
      in.getInt(12),
      in.getLong(16),
      in.getInt(24),
      in.getInt(28),
      in.getInt(32),
      Array.emptyByteArray
    )
    val note = in.getInt(36)
    val isPlausible = in.getInt(0) == Mark && (kind == RowsKind || kind == CommitKind) && codec.nonEmpty &&
      flags >= 0 && flags <= (MoreFlag | FirstFlag) && in.get(11) == 0 && frame.rows >= 0 && frame.seq >= 0 &&
      within(frame.storedBytes, MaxPayloadBytes) && within(frame.rawBytes, MaxPayloadBytes) && within(
        note,
        MaxNoteBytes
      )
    Option.when(isPlausible)(frame.copy(note = new Array[Byte](note)))
  }

  def isMark(bytes: Array[Byte], at: Int): Boolean =
    bytes(at) == 'h' && bytes(at + 1) == 'w' && bytes(at + 2) == 'f' && bytes(at + 3) == 'r'

  /** Verifies the checksum of header and note. */
  def isIntact(header: ByteBuffer, note: Array[Byte]): Boolean = {
    val crc = new CRC32
    crc.update(header.array, header.arrayOffset + 8, HeaderBytes - 8)
    crc.update(note)
    crc.getValue.toInt == header.order(ByteOrder.LITTLE_ENDIAN).getInt(4)
  }

  def crcOf(bytes: Array[Byte], from: Int, length: Int): Int = {
    val crc = new CRC32
    crc.update(bytes, from, length)
    crc.getValue.toInt
  }

  private def within(length: Int, max: Int): Boolean = length >= 0 && length <= max

  /** The cursor of a frame, as JSON. The cursor keeps its exact spelling. */
  private[log] object Note {
    private val Format = """(?s)\{"shard":(\d{1,9}),"cursor":(.+)\}""".r

    def write(cursor: Cursor): Array[Byte] =
      s"""{"shard":${cursor.shard},"cursor":${cursor.json}}""".getBytes(UTF_8)

    def isReadable(note: Array[Byte]): Boolean = Format.matches(new String(note, UTF_8))

    def read(note: Array[Byte]): Cursor = new String(note, UTF_8) match {
      case Format(shard, json) => Cursor(shard.toInt, json)
      case other => throw new IOException(s"not the note of a frame: ${other.take(200)}")
    }
  }
}
