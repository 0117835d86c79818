package headwater.log

import java.io.IOException

import com.github.luben.zstd.Zstd
import net.jpountz.lz4.LZ4Factory

/** The compression of a frame's payload. Every supported Spark ships both libraries. */
private[headwater] sealed abstract class Codec(val name: String, val code: Byte) extends Serializable {

  def compress(raw: Array[Byte]): Array[Byte]

  /** @throws IOException when the bytes cannot be decompressed */
  def restore(stored: Array[Byte], rawBytes: Int): Array[Byte]
}

private[headwater] object Codec {

  case object None extends Codec("none", 0) {
    override def compress(raw: Array[Byte]): Array[Byte] = raw
    override def restore(stored: Array[Byte], rawBytes: Int): Array[Byte] = stored
  }

  case object Lz4 extends Codec("lz4", 1) {
    override def compress(raw: Array[Byte]): Array[Byte] =
      LZ4Factory.fastestInstance.fastCompressor.compress(raw)

    override def restore(stored: Array[Byte], rawBytes: Int): Array[Byte] = attempt(name) {
      val raw = new Array[Byte](rawBytes)
      val restored = LZ4Factory.fastestInstance.safeDecompressor.decompress(stored, 0, stored.length, raw, 0)
      if (restored != rawBytes) throw new IOException(s"$restored bytes came out, not $rawBytes")
      raw
    }
  }

  case object Zstandard extends Codec("zstd", 2) {
    override def compress(raw: Array[Byte]): Array[Byte] = Zstd.compress(raw)
    override def restore(stored: Array[Byte], rawBytes: Int): Array[Byte] =
      attempt(name) {
        val raw = Zstd.decompress(stored, rawBytes)
        if (raw.length != rawBytes) throw new IOException(s"${raw.length} bytes came out, not $rawBytes")
        raw
      }
  }

  val all: Seq[Codec] = Seq(None, Lz4, Zstandard)

  def of(code: Byte): Option[Codec] = all.find(_.code == code)

  def named(name: String): Codec = all.find(_.name == name).get

  private def attempt(name: String)(body: => Array[Byte]): Array[Byte] =
    try body
    catch {
      case e: RuntimeException =>
        throw new IOException(s"what was compressed with $name cannot be restored", e)
    }
}
