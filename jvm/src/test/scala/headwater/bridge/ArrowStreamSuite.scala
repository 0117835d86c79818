package headwater.bridge

import java.io.{ByteArrayOutputStream, EOFException, IOException}
import java.lang.management.ManagementFactory
import java.nio.ByteBuffer
import java.nio.channels.{Channels, ReadableByteChannel}

import scala.jdk.CollectionConverters._
import scala.util.{Failure, Random, Success, Try, Using}

import com.google.flatbuffers.FlatBufferBuilder
import com.sun.management.ThreadMXBean
import headwater.BridgeException
import headwater.core.{ArrowRows, ArrowSchema, Slice}
import headwater.task.{SliceColumns, SliceRows}
import headwater.testing.{ArrowBytes, ArrowSamples, Script}
import org.apache.arrow.flatbuf.{
  Field => FbField,
  Message,
  MessageHeader,
  MetadataVersion,
  Schema => FbSchema
}
import org.apache.arrow.flatbuf.{Struct_, Type}
import org.apache.arrow.memory.RootAllocator
import org.apache.arrow.vector.{BigIntVector, VarCharVector, VectorSchemaRoot}
import org.apache.arrow.vector.ipc.ArrowStreamWriter
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.prop.TableDrivenPropertyChecks

class ArrowStreamSuite extends AnyFunSuite with TableDrivenPropertyChecks {
  import ArrowStreamSuite._

  test("a schema is parsed as Arrow does, on an interrupted thread too") {
    val columns = Seq(
      new Field("n", FieldType.notNullable(new ArrowType.Int(64, true)), null),
      new Field(
        "s",
        FieldType.nullable(ArrowType.Struct.INSTANCE),
        List(Field.nullable("t", ArrowType.Utf8.INSTANCE)).asJava
      )
    )
    val schema = new Schema(columns.asJava, Map("key" -> "value").asJava)
    val bytes = schema.serializeAsMessage()
    Thread.currentThread().interrupt()
    try assert(ArrowSchema.parse(bytes) == schema)
    finally assert(Thread.interrupted())
  }

  test("a stream of Arrow's own writer is read row for row") {
    val text = FieldType.nullable(ArrowType.Utf8.INSTANCE)
    val number = FieldType.nullable(new ArrowType.Int(64, true))
    val schema =
      new Schema(Seq(new Field("id", number, null), new Field("word", text, null)).asJava)
    val sizes = Seq(1, 3, 1000, 0, 7)
    val bytes = Using.resource(new RootAllocator()) { allocator =>
      Using.resource(VectorSchemaRoot.create(schema, allocator)) { root =>
        val out = new ByteArrayOutputStream
        val writer = new ArrowStreamWriter(root, null, Channels.newChannel(out))
        var next = 0
        writer.start()
        sizes.foreach { size =>
          root.allocateNew()
          (0 until size).foreach { i =>
            root.getVector(0).asInstanceOf[BigIntVector].setSafe(i, next.toLong)
            if (next % 5 != 0)
              root.getVector(1).asInstanceOf[VarCharVector].setSafe(i, s"w$next".getBytes)
            next += 1
          }
          root.setRowCount(size)
          writer.writeBatch()
        }
        writer.end()
        out.toByteArray
      }
    }
    val stream = new ArrowStream(channel(bytes), MaxBytes)
    assert(stream.schema() == schema)
    val batches = all(stream)
    assert(batches.map(_.rows) == sizes && batches.forall(_.metadata.isEmpty))
    val slices = batches.filter(_.rows > 0).map(b => Slice.whole(ArrowRows(b.rows, b.bytes)))
    val rows = new SliceRows(new SliceColumns(schema.serializeAsMessage(), slices.iterator))
    val decoded = rows.map(row => row.getLong(0) -> Option.when(!row.isNullAt(1))(row.getString(1))).toSeq
    assert(decoded == (0 until 1011).map(i => i.toLong -> Option.when(i % 5 != 0)(s"w$i")))
  }

  test("the metadata of a batch comes with it, and its bytes still decode") {
    val long = "x" * 100000
    val sent = ArrowBytes.batch(Seq(7, 8), "headwater.cursor" -> """{"at":"ümläut"}""", "other" -> long)
    val stream =
      reader(ArrowBytes.schema ++ sent ++ ArrowBytes.note("headwater.caught_up" -> "") ++ ArrowBytes.end)
    stream.schema()
    val batch = stream.next().get
    assert(batch.metadata == Map("headwater.cursor" -> """{"at":"ümläut"}""", "other" -> long))
    assert(batch.bytes.sameElements(sent), "the message is kept as it came")
    assert(longs(batch) == Seq(7, 8))
    val note = stream.next().get
    assert(note.rows == 0 && note.metadata == Map("headwater.caught_up" -> ""))
    assert(stream.next().isEmpty)
  }

  test(
    "a batch whose lengths or offsets are wrong is refused with its column, or every row of it can be read"
  ) {
    val random = new Random(7)
    val whole = ArrowSamples.batch(random)
    val schema = ArrowBytes.schema(ArrowSamples.schema)
    def rowsOf(batch: ArrowStream.Batch): Unit = {
      val slices = Iterator(Slice.whole(ArrowRows(batch.rows, batch.bytes)))
      new SliceRows(new SliceColumns(ArrowSamples.schema.serializeAsMessage(), slices))
        .foreach(row => ArrowSamples.touch(row))
    }
    def read(message: Array[Byte]): Try[Option[ArrowStream.Batch]] = {
      val stream = reader(schema ++ message)
      stream.schema()
      Try(stream.next())
    }
    rowsOf(read(whole).get.get)
    val outcomes = (1 to 20000).map { round =>
      val broken = whole.clone()
      (0 to random.nextInt(2)).foreach { _ =>
        val at = 8 + random.nextInt(broken.length - 8)
        broken(at) = Seq[Byte](0, 1, -1, 127, -128, random.nextInt().toByte)(random.nextInt(6))
      }
      withClue(s"round $round") {
        read(broken) match {
          case Success(batch) =>
            batch.filter(_.rows > 0).foreach(rowsOf)
            "read"
          case Failure(e: BridgeException) =>
            assert(e.getMessage.startsWith("Python sent an Arrow batch that is not valid: "), e)
            "invalid"
          case Failure(_: IOException) => "refused"
          case Failure(e) => fail(e)
        }
      }
    }
    assert(outcomes.toSet == Set("read", "invalid", "refused"))
  }

  test("reads of one byte at a time have the same result") {
    val bytes = ArrowBytes.schema ++ ArrowBytes.batch(1L to 50L, "k" -> "v") ++ ArrowBytes.end
    val drip = new ArrowStream(channel(bytes, most = 1), MaxBytes)
    assert(drip.schema() == Script.arrowSchema)
    val batches = all(drip)
    assert(batches.map(longs) == Seq(1L to 50L) && batches.map(_.metadata) == Seq(Map("k" -> "v")))
  }

  test("bytes after the end of the stream are not read") {
    val in = channel(ArrowBytes.schema ++ ArrowBytes.end ++ Array[Byte](1, 2, 3))
    val stream = new ArrowStream(in, MaxBytes)
    stream.schema()
    assert(stream.next().isEmpty)
    assert(in.read(ByteBuffer.allocate(10)) == 3)
  }

  test("a stream that ends at any byte yields the complete batches before it, then EOFException") {
    val parts =
      Seq(
        ArrowBytes.schema,
        ArrowBytes.batch(Seq(1, 2)),
        ArrowBytes.batch(Seq(3), "k" -> "v"),
        ArrowBytes.end
      )
    val ends = parts.map(_.length).scanLeft(0)(_ + _).tail
    val whole = parts.reduce(_ ++ _)
    (0 until whole.length).foreach { cut =>
      var read = 0
      val error = intercept[EOFException] {
        val stream = reader(whole.take(cut))
        stream.schema()
        read = 1
        while (stream.next().nonEmpty) read += 1
      }
      assert(read == ends.count(_ <= cut), s"cut at $cut")
      assert(error.getMessage == "the connection was closed in the middle")
    }
    assert(all({ val s = reader(whole); s.schema(); s }).length == 2, "and uncut there is no error")
  }

  test("invalid streams are refused with a reason, without large allocations") {
    val rows = ArrowBytes.batch(Seq(1))
    val cases = Table(
      ("what", "bytes", "message"),
      ("text", "GET / HTTP/1.1\r\n\r\n".getBytes, "not an Arrow stream"),
      ("the old form", Array[Byte](16, 0, 0, 0, 0, 0, 0, 0), "not an Arrow stream"),
      ("rows without a schema", rows, "must begin with its schema"),
      ("an end without a schema", ArrowBytes.end, "must begin with its schema"),
      ("a head of 2 GB", prefix(Int.MaxValue), "a head of 2147483647 bytes; at most 16777216"),
      ("a head just too long", prefix((16 << 20) + 1), "a head of 16777217 bytes"),
      ("a negative head", prefix(-1), "a head of -1 bytes"),
      ("the most negative head", prefix(Int.MinValue), "a head of -2147483648 bytes"),
      ("a body of 2 GB", headed(2L << 30), "an Arrow message of 2147483648 bytes; at most 1048576"),
      ("a body just too long", headed(MaxBytes + 1L), s"an Arrow message of ${MaxBytes + 1} bytes"),
      ("a body of Long.MaxValue", headed(Long.MaxValue), s"an Arrow message of ${Long.MaxValue} bytes"),
      ("a negative body", headed(-8), "an Arrow message of -8 bytes"),
      ("a second schema", ArrowBytes.schema ++ ArrowBytes.schema, "not messages of type 1"),
      ("a compressed batch", ArrowBytes.schema ++ ArrowBytes.compressed(Seq(1)), "compressed Arrow batches"),
      ("a dictionary", ArrowBytes.schema ++ ArrowBytes.dictionary(Seq(1)), "not messages of type 2"),
      ("a head of zeros", ArrowBytes.framed(new Array[Byte](64), 64), "must begin with its schema"),
      ("a head of one byte", ArrowBytes.framed(new Array[Byte](1), 1), "cannot be read"),
      (
        "a head that points out of itself",
        ArrowBytes.framed(Array.fill[Byte](64)(0x7f), 64),
        "cannot be read"
      ),
      ("a type within itself", ArrowBytes.framed(typeWithinItself, typeWithinItself.length), "cannot be read")
    )
    forAll(cases) { (_, bytes, message) =>
      val error = bounded(intercept[IOException](readAll(bytes)))
      assert(!error.isInstanceOf[EOFException] && error.getMessage.contains(message))
    }
  }

  test("the limit itself is accepted") {
    val batch = ArrowBytes.batch(1L to 100L)
    val body = batch.length - ArrowBytes.framed(headOf(batch), 0).length
    def read(max: Int) = Try {
      val stream = new ArrowStream(channel(ArrowBytes.schema ++ batch), max)
      stream.schema()
      longs(stream.next().get)
    }
    assert(read(body) == Success(1L to 100L))
    assert(read(body - 1).failed.get.getMessage == s"an Arrow message of $body bytes; at most ${body - 1}")
  }

  test("a flipped bit in any header is refused, or is another valid stream") {
    val nested = new Schema(
      Seq(
        new Field(
          "list",
          FieldType.notNullable(ArrowType.List.INSTANCE),
          Seq(new Field("item", FieldType.nullable(new ArrowType.Decimal(20, 3, 128)), null)).asJava
        ),
        new Field("time", FieldType.nullable(new ArrowType.Timestamp(TimeUnits, "UTC")), null)
      ).asJava,
      Map("k" -> "v").asJava
    )
    val rows = ArrowBytes.batch(Seq(1, 2), "headwater.cursor" -> "17")
    val streams = Seq(
      ArrowBytes.schema(nested) -> 0,
      (ArrowBytes.schema ++ rows) -> ArrowBytes.schema.length
    )
    streams.foreach { case (bytes, from) =>
      val head = 8 + headOf(bytes.drop(from)).length
      for (byte <- from until from + head; bit <- 0 until 8) {
        val flipped = bytes.clone()
        flipped(byte) = (flipped(byte) ^ (1 << bit)).toByte
        readOrRefused(flipped ++ ArrowBytes.end, s"bit $bit of byte $byte")
      }
    }
  }

  test("random bytes, with and without a valid prefix, are refused or an empty stream") {
    val random = new Random(20260101)
    (1 to 20000).foreach { round =>
      val noise = random.nextBytes(random.nextInt(300))
      val bytes = round % 4 match {
        case 0 => noise
        case 1 => ArrowBytes.framed(noise, noise.length)
        case 2 => ArrowBytes.schema ++ ArrowBytes.framed(noise, noise.length)
        case 3 => // a valid header with a part of it replaced
          val good = if (random.nextBoolean()) ArrowBytes.schema else ArrowBytes.batch(Seq(1), "k" -> "v")
          val at = 8 + random.nextInt(good.length - 8)
          ArrowBytes.schema
            .take(if (random.nextBoolean()) Int.MaxValue else 0) ++ good.patch(at, noise, noise.length)
      }
      readOrRefused(bytes, s"round $round")
    }
  }

  private def readOrRefused(bytes: Array[Byte], what: String): Unit =
    bounded(Try(readAll(bytes))) match {
      case Success(_) | Failure(_: IOException) =>
      case Failure(e: BridgeException) => assert(e.getMessage.contains("not valid"), what)
      case Failure(e) => fail(what, e)
    }
}

object ArrowStreamSuite {
  private val MaxBytes = 1 << 20
  private val TimeUnits = org.apache.arrow.vector.types.TimeUnit.MICROSECOND

  private def channel(bytes: Array[Byte], most: Int = Int.MaxValue): ReadableByteChannel =
    new ReadableByteChannel {
      private val left = ByteBuffer.wrap(bytes)
      override def read(into: ByteBuffer): Int =
        if (!left.hasRemaining) -1
        else {
          val count = math.min(most, math.min(left.remaining, into.remaining))
          into.put(left.slice(left.position(), count))
          left.position(left.position() + count)
          count
        }
      override def isOpen: Boolean = true
      override def close(): Unit = ()
    }

  private def reader(bytes: Array[Byte]) = new ArrowStream(channel(bytes), MaxBytes)

  private def all(stream: ArrowStream): Seq[ArrowStream.Batch] =
    Iterator.continually(stream.next()).takeWhile(_.nonEmpty).flatten.toSeq

  private def readAll(bytes: Array[Byte]): Seq[ArrowStream.Batch] = {
    val stream = reader(bytes)
    stream.schema()
    all(stream)
  }

  def longs(batch: ArrowStream.Batch): Seq[Long] = longs(ArrowRows(batch.rows, batch.bytes))

  def longs(rows: ArrowRows): Seq[Long] = {
    val columns = new SliceColumns(Script.arrowSchema.serializeAsMessage(), Iterator(Slice.whole(rows)))
    new SliceRows(columns).map(_.getLong(0)).toList
  }

  private def headOf(message: Array[Byte]): Array[Byte] = {
    val length = ByteBuffer.wrap(message).order(java.nio.ByteOrder.LITTLE_ENDIAN).getInt(4)
    message.slice(8, 8 + length)
  }

  private def prefix(headLength: Int): Array[Byte] = ArrowBytes.framed(Array.empty, headLength)

  private def headed(bodyLength: Long): Array[Byte] = {
    val head = ArrowBytes.headWithBody(bodyLength)
    ArrowBytes.framed(head, head.length)
  }

  /** A schema whose one field is its own child, for ever. */
  private lazy val typeWithinItself: Array[Byte] = {
    val builder = new FlatBufferBuilder
    Struct_.startStruct_(builder)
    val struct = Struct_.endStruct_(builder)
    val name = builder.createString("a")
    val children = FbField.createChildrenVector(builder, Array(name)) // its target is corrected below
    FbField.startField(builder)
    FbField.addName(builder, name)
    FbField.addTypeType(builder, Type.Struct_)
    FbField.addType(builder, struct)
    FbField.addChildren(builder, children)
    val field = FbField.endField(builder)
    val fields = FbSchema.createFieldsVector(builder, Array(field))
    FbSchema.startSchema(builder)
    FbSchema.addFields(builder, fields)
    val schema = FbSchema.endSchema(builder)
    Message.startMessage(builder)
    Message.addHeaderType(builder, MessageHeader.Schema)
    Message.addHeader(builder, schema)
    Message.addVersion(builder, MetadataVersion.V5)
    builder.finish(Message.endMessage(builder))
    val head = builder.sizedByteArray()
    // An offset counts from the end of the buffer; a pointer is the distance from itself to its target.
    val pointer = head.length - children + 4
    val target = head.length - field
    ByteBuffer.wrap(head).order(java.nio.ByteOrder.LITTLE_ENDIAN).putInt(pointer, target - pointer)
    head
  }

  private val threads = ManagementFactory.getThreadMXBean.asInstanceOf[ThreadMXBean]

  /** The memory that a message with a header of 16 MiB and a body of 1 MiB may take. */
  private def bounded[T](body: => T): T = {
    val before = threads.getCurrentThreadAllocatedBytes
    val result = body
    val took = threads.getCurrentThreadAllocatedBytes - before
    if (took > (40 << 20)) throw new AssertionError(s"it took $took bytes")
    result
  }
}
