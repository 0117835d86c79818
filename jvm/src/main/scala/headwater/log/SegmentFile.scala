package headwater.log

import java.io.{Closeable, IOException}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.Base64
import java.util.zip.CRC32

import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import headwater.core.ArrowSchema

/** The header of a segment.
  *
  * @param first
  *   the seq of the first row that the segment can hold
  * @param arrived
  *   when its first rows arrived, in microseconds since the epoch; 0 if its first sync group had no rows, and in
  *   version 1
  * @param key
  *   of the log, see [[Manifest]]; empty in version 1
  * @param cursors
  *   the last durable cursor of each shard when the segment was created, since earlier segments may be deleted
  */
private[headwater] final case class SegmentHeader(
    version: Int,
    source: String,
    run: String,
    epoch: Long,
    number: Long,
    first: Long,
    arrived: Long,
    key: String,
    arrowSchema: ArrowSchema,
    cursors: Map[Int, String]
) {
  def name: String = SegmentHeader.nameOf(epoch, number)

  def frameFormat: FrameFormat = if (version == 1) FrameFormat.V1 else new FrameFormat.V2(key, epoch, number)

  /** Only the current version is written.
    *
    * @throws LogFailedException
    *   when no reader would accept it
    */
  def bytes: Array[Byte] = {
    SegmentHeader.cursorFault(cursors).foreach(what => throw new LogFailedException(what))
    val tree = LogJson.mapper.createObjectNode().put("v", SegmentHeader.Version)
    tree.put("source", source).put("run", run).put("key", key)
    tree.put("epoch", epoch).put("number", number).put("first", first).put("arrived", arrived)
    tree.put("arrowSchema", Base64.getEncoder.encodeToString(arrowSchema.bytes))
    val cursorNode = tree.putObject("cursors")
    cursors.toSeq.sorted.foreach { case (shard, json) =>
      cursorNode.set[JsonNode](shard.toString, LogJson.mapper.readTree(json))
    }
    val json = tree.toString.getBytes(UTF_8)
    if (json.length > SegmentHeader.MaxBytes)
      throw new LogFailedException(
        s"the header of a segment has ${json.length} bytes, more than the limit of ${SegmentHeader.MaxBytes}"
      )
    val out = ByteBuffer.allocate(SegmentHeader.FixedBytes + json.length).order(ByteOrder.LITTLE_ENDIAN)
    out.put(SegmentHeader.magic(SegmentHeader.Version)).putInt(json.length)
    out.putInt(Frame.crcOf(json, 0, json.length)).put(json).array
  }
}

private[headwater] object SegmentHeader {

  /** The version that is written. */
  val Version = 2
  val FixedBytes = 16
  val MaxBytes: Int = 32 << 20

  /** Epochs have 8 digits in names, and more only where somebody has used them up. */
  val MaxEpoch: Long = 999999999999999L

  private[this] val Name = """(\d{8,15})-(\d{12})\.segment""".r

  /** Why no header can have these cursors: it must be below [[MaxBytes]], and readable. */
  def cursorFault(cursors: Map[Int, String]): Option[String] =
    try {
      val bytes = cursors.valuesIterator
        .map(json => LogJson.mapper.readTree(json).toString.getBytes(UTF_8).length.toLong + 16)
        .sum
      Option.when(bytes > MaxCursorBytes) {
        s"the cursors of ${cursors.size} shards have $bytes bytes, more than the limit of $MaxCursorBytes"
      }
    } catch { case NonFatal(e) => Some(s"a cursor cannot be read: ${e.getMessage}") }

  /** The rest is for the other fields. */
  private[this] val MaxCursorBytes = MaxBytes - (1 << 20)

  def magic(version: Int): Array[Byte] = "HWLOG".getBytes(UTF_8) ++ Array[Byte](0, 0, version.toByte)

  def nameOf(epoch: Long, number: Long): String = f"$epoch%08d-$number%012d.segment"

  /** The epoch and the number in the name of a segment. */
  def parse(name: String): Option[(Long, Long)] = name match {
    case Name(epoch, number) =>
      Some((epoch.toLong, number.toLong)).filter { case (e, n) => nameOf(e, n) == name }
    case _ => None
  }
}

/** Why the header of a segment cannot be used.
  *
  * @param canBeTorn
  *   a write that was interrupted can leave this; otherwise it was written like this
  */
private[headwater] final case class HeaderFault(what: String, canBeTorn: Boolean)

/** Where the next sync group begins, behind a place without a valid frame. */
private[log] sealed trait NextGroup

private[log] object NextGroup {
  case object None extends NextGroup

  /** All bytes before it were durable when it was written. */
  final case class At(position: Long) extends NextGroup

  /** Something looks like a sync group, and may as well be the text of a row. Nothing of it can be used. */
  case object Unproven extends NextGroup
}

/** Reads a segment. Nothing in it is used before its checksum was verified.
  *
  * @param path
  *   for messages
  * @param assumedFormat
  *   of its frames, if its header cannot be read
  */
private[headwater] final class SegmentFile(
    val path: String,
    in: LogFiles.In,
    assumedFormat: Option[FrameFormat] = None
) extends Closeable {
  import SegmentHeader._

  val length: Long = in.length

  private[this] var cached = Array.emptyByteArray
  private[this] var cachedAt = 0L

  /** The position of the first frame, and the header; or what is wrong with it. */
  lazy val opened: Either[HeaderFault, (Long, SegmentHeader)] = readHeader()

  /** @throws DamagedException when the header is damaged */
  def header: SegmentHeader =
    opened.fold(fault => throw new DamagedException(s"$path is damaged: ${fault.what}"), _._2)

  private[this] lazy val format: FrameFormat =
    opened.map(_._2.frameFormat).toOption.orElse(assumedFormat).getOrElse(header.frameFormat)

  /** The frame at a position. Its header and note are verified, its payload is not. */
  def frameAt(position: Long): Option[Frame] = readFrame(position).toOption

  /** The same as [[frameAt]], or what is wrong at the position. */
  def readFrame(position: Long): Either[String, Frame] =
    for {
      fixed <- bytesAt(position, format.fixedBytes).toRight("the file ends within the header of a frame")
      read <- format.read(fixed, position)
      (bare, noteBytes) = read
      // Checked before anything is allocated.
      note <- bytesAt(position + format.fixedBytes, noteBytes)
        .toRight("the file ends within the note of a frame")
      frame = bare.copy(note = arrayOf(note))
      _ <- Either.cond(format.isIntact(fixed, frame.note), (), FrameFormat.WrongChecksum)
      _ <- Either.cond(position + frame.length <= length, (), "the file ends within the payload of a frame")
    } yield frame

  /** Reads the payload in pieces. */
  def isPayloadIntact(frame: Frame, position: Long): Boolean = {
    val crc = new CRC32
    val piece = new Array[Byte](math.min(frame.storedBytes, PieceBytes))
    var done = 0
    while (done < frame.storedBytes) {
      val size = math.min(piece.length, frame.storedBytes - done)
      if (in.readAt(position + frame.headerBytes + done, piece, size) < size) return false
      crc.update(piece, 0, size)
      done += size
    }
    crc.getValue.toInt == frame.payloadCrc
  }

  /** @throws DamagedException names the file and the position */
  def payload(frame: Frame, position: Long): Array[Byte] = {
    val stored = new Array[Byte](frame.storedBytes)
    val read = in.readAt(position + frame.headerBytes, stored, stored.length)
    if (read < stored.length || Frame.crcOf(stored, 0, read) != frame.payloadCrc)
      throw new DamagedException(
        s"$path is damaged at byte $position: rows ${frame.seq} to ${frame.next - 1} are not what was written"
      )
    frame.codec.restore(stored, frame.rawBytes)
  }

  /** The sync group that follows a place without a valid frame. A format that can be forged is not searched: there a
    * frame counts only where the frame before it ends.
    */
  def nextGroup(damagedAt: Long): NextGroup =
    if (format.isForgeable) followFrames(damagedAt, damagedAt)
    else searchGroup(damagedAt + 1).fold[NextGroup](NextGroup.None)(NextGroup.At(_))

  @tailrec
  private def followFrames(damagedAt: Long, position: Long): NextGroup = frameAt(position) match {
    case Some(frame) if frame.isFirst && position > damagedAt => NextGroup.At(position)
    case Some(frame) => followFrames(damagedAt, position + frame.length)
    case None if searchGroup(position + 1).nonEmpty => NextGroup.Unproven
    case None => NextGroup.None
  }

  /** The next position, from `from` on, of what looks like the first frame of a sync group. The time grows with the
    * length of the file, whatever is in it.
    */
  def searchGroup(from: Long): Option[Long] = {
    val piece = new Array[Byte](math.max(0L, math.min(PieceBytes.toLong, length - from)).toInt)
    var notesLeft = length // a note is read before it is known to be one
    var start = from
    while (start + format.fixedBytes <= length) {
      val size = in.readAt(start, piece, math.min(piece.length.toLong, length - start).toInt)
      if (size < format.fixedBytes) return None
      var i = 0
      while (i + format.fixedBytes <= size) {
        if (format.isMark(piece, i))
          format.read(ByteBuffer.wrap(piece, i, format.fixedBytes).slice(), start + i) match {
            case Right((frame, noteBytes))
                if frame.isFirst && start + i + frame.length + noteBytes <= length =>
              notesLeft -= noteBytes
              if (notesLeft < 0 || frameAt(start + i).nonEmpty) return Some(start + i)
            case _ =>
          }
        i += 1
      }
      start += i
    }
    None
  }

  /** The positions of all sync groups. */
  def groups: Vector[Long] = Vector.unfold(0L)(from => searchGroup(from).map(at => (at, at + 1)))

  /** Consecutive frames, up to a position. */
  def framesFrom(position: Long, until: Long): Vector[Frame] =
    Vector.unfold(position)(at =>
      Option.when(at < until)(at).flatMap(frameAt).map(frame => (frame, at + frame.length))
    )

  override def close(): Unit = in.close()

  private def readHeader(): Either[HeaderFault, (Long, SegmentHeader)] =
    bytesAt(0, FixedBytes) match {
      case None if length == 0 => torn("the file is empty")
      case None => torn(s"it has $length bytes, which is too short for a header")
      case Some(fixed) =>
        val start = new Array[Byte](8)
        fixed.get(fixed.position(), start)
        val version = start.last.toInt
        val size = fixed.getInt(fixed.position() + 8)
        val crc = fixed.getInt(fixed.position() + 12)
        if (!start.sameElements(magic(version))) torn("it does not begin as a segment does")
        else if (version < 1 || version > Version)
          written(s"it has format version $version, this headwater reads versions 1 to $Version")
        else if (size < 0 || size > MaxBytes)
          torn(
            s"its header has a length of ${Integer.toUnsignedLong(size)} bytes, more than the limit of $MaxBytes"
          )
        else if (FixedBytes + size.toLong > length) torn("its header is cut off")
        else {
          val json = new Array[Byte](size)
          in.readAt(FixedBytes, json, size)
          if (Frame.crcOf(json, 0, size) != crc) torn("the checksum of its header is wrong")
          else
            try Right((FixedBytes.toLong + size, parseHeader(version, LogJson.mapper.readTree(json))))
            catch { case NonFatal(e) => written(s"its header cannot be read: $e") }
        }
    }

  private def torn(what: String) = Left(HeaderFault(what, canBeTorn = true))
  private def written(what: String) = Left(HeaderFault(what, canBeTorn = false))

  private def parseHeader(version: Int, tree: JsonNode): SegmentHeader = {
    def field(name: String): JsonNode =
      Option(tree.get(name)).getOrElse(throw new IOException(s"the field '$name' is missing"))
    def number(name: String): Long = {
      val value = field(name).asLong(-1)
      if (value < 0 || value > Frame.MaxSeq) throw new IOException(s"'$name' is ${field(name)}")
      value
    }
    if (number("v") != version) throw new IOException(s"its version is ${field("v")} and $version")
    val key = if (version == 1) "" else field("key").asText
    if (version > 1 && !Key.isKey(key)) throw new IOException("its key is not a key")
    SegmentHeader(
      version,
      field("source").asText,
      field("run").asText,
      number("epoch"),
      number("number"),
      number("first"),
      if (version == 1) 0 else number("arrived"),
      key,
      new ArrowSchema(Base64.getDecoder.decode(field("arrowSchema").asText)),
      field("cursors").fields.asScala.map(entry => entry.getKey.toInt -> entry.getValue.toString).toMap
    )
  }

  private def arrayOf(bytes: ByteBuffer): Array[Byte] = {
    val array = new Array[Byte](bytes.remaining)
    bytes.get(bytes.position(), array)
    array
  }

  /** Headers are small and many, so several are read at once. The returned buffer starts at position 0. */
  private def bytesAt(position: Long, size: Int): Option[ByteBuffer] =
    if (position > length - size) None
    else {
      if (position < cachedAt || position + size > cachedAt + cached.length) {
        val bytes = new Array[Byte](math.min(math.max(size, CacheBytes).toLong, length - position).toInt)
        if (in.readAt(position, bytes, bytes.length) < bytes.length)
          throw new IOException(s"$path became shorter")
        cached = bytes
        cachedAt = position
      }
      val from = (position - cachedAt).toInt
      Some(ByteBuffer.wrap(cached, from, size).slice().order(ByteOrder.LITTLE_ENDIAN))
    }

  private val PieceBytes = 1 << 20
  private val CacheBytes = 16 << 10
}

/** A file of the log is damaged. The message names the file and the position. */
final class DamagedException(message: String) extends IOException(message)
