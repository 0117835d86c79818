package headwater.log

import java.io.{Closeable, IOException}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.Base64
import java.util.zip.CRC32

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import headwater.core.ArrowSchema

/** The header of a segment.
  *
  * @param first
  *   the seq of the first row that the segment can hold
  * @param cursors
  *   the last durable cursor of each shard when the segment was created, since earlier segments may be deleted
  */
private[headwater] final case class SegmentHeader(
    source: String,
    run: String,
    epoch: Long,
    number: Long,
    first: Long,
    arrowSchema: ArrowSchema,
    cursors: Map[Int, String]
) {
  def name: String = SegmentHeader.nameOf(epoch, number)

  def bytes: Array[Byte] = {
    val tree =
      LogJson.mapper.createObjectNode().put("v", SegmentHeader.Version).put("source", source).put("run", run)
    tree.put("epoch", epoch).put("number", number).put("first", first)
    tree.put("arrowSchema", Base64.getEncoder.encodeToString(arrowSchema.bytes))
    val cursorNode = tree.putObject("cursors")
    cursors.toSeq.sorted.foreach { case (shard, json) =>
      cursorNode.set[JsonNode](shard.toString, LogJson.mapper.readTree(json))
    }
    val json = tree.toString.getBytes(UTF_8)
    val out = ByteBuffer.allocate(SegmentHeader.FixedBytes + json.length).order(ByteOrder.LITTLE_ENDIAN)
    out.put(SegmentHeader.Magic).putInt(json.length).putInt(Frame.crcOf(json, 0, json.length)).put(json).array
  }
}

private[headwater] object SegmentHeader {
  val Version = 1
  val FixedBytes = 16
  val MaxBytes: Int = 32 << 20
  val Magic: Array[Byte] = "HWLOG".getBytes(UTF_8) ++ Array[Byte](0, 0, Version.toByte)

  private val Name = """(\d{8})-(\d{12})\.segment""".r

  def nameOf(epoch: Long, number: Long): String = f"$epoch%08d-$number%012d.segment"

  /** The epoch and the number in the name of a segment. */
  def parse(name: String): Option[(Long, Long)] = name match {
    case Name(epoch, number) => Some((epoch.toLong, number.toLong))
    case _ => None
  }
}

/** Why the header of a segment cannot be used.
  *
  * @param canBeTorn
  *   a write that was interrupted can leave this; otherwise it was written like this
  */
private[headwater] final case class HeaderFault(what: String, canBeTorn: Boolean)

/** Reads a segment. Nothing in it is used before its checksum was verified.
  *
  * @param path
  *   for messages
  */
private[headwater] final class SegmentFile(val path: String, in: LogFiles.In) extends Closeable {
  import SegmentHeader._

  val length: Long = in.length

  private[this] var cached = Array.emptyByteArray
  private[this] var cachedAt = 0L

  /** The position of the first frame, and the header; or what is wrong with it. */
  lazy val opened: Either[HeaderFault, (Long, SegmentHeader)] = readHeader()

  /** @throws DamagedException when the header is damaged */
  def header: SegmentHeader =
    opened.fold(fault => throw new DamagedException(s"$path is damaged: ${fault.what}"), _._2)

  /** The frame at a position. Its header and note are verified, its payload is not. */
  def frameAt(position: Long): Option[Frame] = readFrame(position).toOption

  /** The same as [[frameAt]], or what is wrong at the position. */
  def readFrame(position: Long): Either[String, Frame] =
    for {
      fixed <- bytesAt(position, Frame.HeaderBytes).toRight("the file ends within the header of a frame")
      frame <- Frame.readFixedPart(fixed).toRight {
        if (Frame.isMark(fixed.array, fixed.arrayOffset)) "the frame header is corrupt"
        else "no frame begins here"
      }
      note <- bytesAt(position + Frame.HeaderBytes, frame.note.length)
        .toRight("the file ends within the note of a frame")
      _ = note.get(note.position(), frame.note)
      _ <- Either.cond(Frame.isIntact(fixed, frame.note), (), "the checksum of the frame header is wrong")
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

  /** The next position, from `from` on, of a frame that begins a sync group: everything before it was durable
    * when it was written.
    */
  def nextGroup(from: Long): Option[Long] = {
    val piece = new Array[Byte](math.max(0L, math.min(PieceBytes.toLong, length - from)).toInt)
    var start = from
    while (start + Frame.HeaderBytes <= length) {
      val size = in.readAt(start, piece, math.min(piece.length.toLong, length - start).toInt)
      if (size < Frame.HeaderBytes) return None
      var i = 0
      while (i + Frame.HeaderBytes <= size) {
        if (Frame.isMark(piece, i) && frameAt(start + i).exists(_.isFirst)) return Some(start + i)
        i += 1
      }
      start += i
    }
    None
  }

  /** The positions of all sync groups. */
  def groups: Vector[Long] = Vector.unfold(0L)(from => nextGroup(from).map(at => (at, at + 1)))

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
        val magic = new Array[Byte](Magic.length)
        fixed.get(fixed.position(), magic)
        val size = fixed.getInt(fixed.position() + 8)
        val crc = fixed.getInt(fixed.position() + 12)
        if (!magic.sameElements(Magic))
          if (magic.startsWith(Magic.dropRight(1)))
            written(s"it has format version ${magic.last}, this headwater reads version $Version")
          else torn("it does not begin as a segment does")
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
            try Right((FixedBytes.toLong + size, parseHeader(LogJson.mapper.readTree(json))))
            catch { case NonFatal(e) => written(s"its header cannot be read: $e") }
        }
    }

  private def torn(what: String) = Left(HeaderFault(what, canBeTorn = true))
  private def written(what: String) = Left(HeaderFault(what, canBeTorn = false))

  private def parseHeader(tree: JsonNode): SegmentHeader = SegmentHeader(
    tree.get("source").asText,
    tree.get("run").asText,
    tree.get("epoch").asLong,
    tree.get("number").asLong,
    tree.get("first").asLong,
    new ArrowSchema(Base64.getDecoder.decode(tree.get("arrowSchema").asText)),
    tree.get("cursors").fields.asScala.map(entry => entry.getKey.toInt -> entry.getValue.toString).toMap
  )

  /** Headers are small and many, so several are read at once. The returned buffer starts at position 0. */
  private def bytesAt(position: Long, size: Int): Option[ByteBuffer] =
    if (position + size > length) None
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
