package headwater.log

import java.io.IOException
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.CRC32

import headwater.core.Cursor

/** One piece of a segment: rows or the note of a commit, with checksums. The wiki page "The log on disk" explains it byte
  * by byte. Lengths are believed only once the checksum of the head has been found right, and are bounded then.
  *
  * @param seq
  *   of its first row; of a commit, the last row that was committed
  * @param isFirst
  *   of a group: all that stands before it in the file was durable when it was written
  * @param hasMore
  *   the next frame belongs to the same parcel
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

  def headBytes: Int = HeadBytes + note.length
  def length: Long = headBytes.toLong + storedBytes

  def isRows: Boolean = kind == RowsKind

  /** The seq behind its last row. */
  def next: Long = if (isRows) seq + rows else seq

  def cursor: Option[Cursor] = Option.when(note.nonEmpty)(Note.read(note))

  def head: Array[Byte] = {
    val flags = (if (hasMore) MoreFlag else 0) | (if (isFirst) FirstFlag else 0)
    val bytes = ByteBuffer.allocate(headBytes).order(ByteOrder.LITTLE_ENDIAN)
    bytes.putInt(Mark).putInt(0).put(kind).put(codec.code).put(flags.toByte).put(0: Byte)
    bytes
      .putInt(rows)
      .putLong(seq)
      .putInt(storedBytes)
      .putInt(rawBytes)
      .putInt(payloadCrc)
      .putInt(note.length)
    bytes.put(note)
    bytes.putInt(4, crcOf(bytes.array, 8, headBytes - 8))
    bytes.array
  }
}

private[headwater] object Frame {
  val HeadBytes = 40

  val RowsKind: Byte = 1
  val CommitKind: Byte = 2

  /** A row may weigh 64 MiB, and compression may add to what cannot be compressed. */
  val MaxPayloadBytes: Int = 96 << 20
  val MaxNoteBytes: Int = 16 << 20

  private val Mark = ByteBuffer.wrap("hwfr".getBytes(UTF_8)).order(ByteOrder.LITTLE_ENDIAN).getInt
  private val MoreFlag = 1
  private val FirstFlag = 2

  def commit(seq: Long, isFirst: Boolean): Frame =
    Frame(CommitKind, Codec.None, isFirst, hasMore = false, 0, seq, 0, 0, 0, Array.emptyByteArray)

  /** Reads the fixed part of a head; None if that is not what stands there. The note is still to come. */
  def fixedPart(head: ByteBuffer): Option[Frame] = {
    val in = head.order(ByteOrder.LITTLE_ENDIAN)
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
    val believable = in.getInt(0) == Mark && (kind == RowsKind || kind == CommitKind) && codec.nonEmpty &&
      flags >= 0 && flags <= (MoreFlag | FirstFlag) && in.get(11) == 0 && frame.rows >= 0 && frame.seq >= 0 &&
      within(frame.storedBytes, MaxPayloadBytes) && within(frame.rawBytes, MaxPayloadBytes) && within(
        note,
        MaxNoteBytes
      )
    Option.when(believable)(frame.copy(note = new Array[Byte](note)))
  }

  def isMark(bytes: Array[Byte], at: Int): Boolean =
    bytes(at) == 'h' && bytes(at + 1) == 'w' && bytes(at + 2) == 'f' && bytes(at + 3) == 'r'

  /** Whether head and note are as they were written. */
  def isSound(head: ByteBuffer, note: Array[Byte]): Boolean = {
    val crc = new CRC32
    crc.update(head.array, head.arrayOffset + 8, HeadBytes - 8)
    crc.update(note)
    crc.getValue.toInt == head.order(ByteOrder.LITTLE_ENDIAN).getInt(4)
  }

  def crcOf(bytes: Array[Byte], from: Int, length: Int): Int = {
    val crc = new CRC32
    crc.update(bytes, from, length)
    crc.getValue.toInt
  }

  private def within(length: Int, most: Int): Boolean = length >= 0 && length <= most

  /** What a frame says of the upstream: JSON. The cursor's text is kept to the letter. */
  private[log] object Note {
    private val Form = """(?s)\{"shard":(\d{1,9}),"cursor":(.+)\}""".r

    def write(cursor: Cursor): Array[Byte] =
      s"""{"shard":${cursor.shard},"cursor":${cursor.json}}""".getBytes(UTF_8)

    def read(note: Array[Byte]): Cursor = new String(note, UTF_8) match {
      case Form(shard, json) => Cursor(shard.toInt, json)
      case other => throw new IOException(s"not the note of a frame: ${other.take(200)}")
    }
  }
}
