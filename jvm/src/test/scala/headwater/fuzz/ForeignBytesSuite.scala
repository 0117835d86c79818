package headwater.fuzz

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.{Channels, SocketChannel}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}
import java.util.Comparator
import java.util.concurrent.{ExecutionException, LinkedBlockingQueue, TimeUnit}

import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.{Random, Using}

import headwater.{BridgeException, InvalidOffsetException}
import headwater.bridge.{ArrowStream, BridgeServer, PythonConnection}
import headwater.core.{ArrowRows, ArrowSchema, Json, SeqOffset, Slice, StoredRows, VectorOffset}
import headwater.log.{LocalFiles, LogScan, Manifest, SegmentFile, StoredSlices}
import headwater.task.{SliceColumns, SliceRows}
import headwater.testing.{ArrowBytes, NoThreadLeft, Script, TestConnection}
import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite

/** Feeds mutated bytes to every parser of the JVM that reads bytes which somebody else has written. The parsers of Python
  * are fuzzed by tests/fuzz.
  *
  * `FUZZ_SECONDS` is the time for all tests together, and `FUZZ_SEED` repeats a run.
  */
class ForeignBytesSuite extends AnyFunSuite with NoThreadLeft {
  import ForeignBytesSuite._

  private val seed = sys.env.get("FUZZ_SEED").filter(_.nonEmpty).fold(Random.nextLong(1L << 32))(_.toLong)
  private val seconds = sys.env.get("FUZZ_SECONDS").filter(_.nonEmpty).fold(6.0)(_.toDouble)

  private def fuzz(name: String)(round: Random => Unit): Unit = test(name) {
    val end = (seconds / TestCount).seconds.fromNow
    var number = 0
    while (number == 0 || end.hasTimeLeft()) {
      try round(new Random(seed * 1000003 + number))
      catch { case e: Throwable => fail(s"round $number with FUZZ_SEED=$seed", e) }
      number += 1
    }
    info(s"$number rounds with FUZZ_SEED=$seed")
  }

  fuzz("a mutated offset is refused with an InvalidOffsetException, or is one in its canonical spelling") {
    random =>
      val text = new String(mutate(random, pick(random, Offsets).getBytes(UTF_8)), UTF_8)
      Seq[String => String](SeqOffset.parse(_).json, VectorOffset.parse(_).json).foreach { parse =>
        try assert(parse(text) == text)
        catch { case e: InvalidOffsetException => assert(e.getMessage.length < 2000) }
      }
  }

  fuzz("a log with a mutated file gives its own rows, or is refused") { random =>
    val golden = pick(random, Goldens)
    withCopy(golden) { folder =>
      val name = pick(random, list(folder).filter(isOfLog))
      Files.write(folder.resolve(name), mutate(random, Files.readAllBytes(folder.resolve(name))))
      val files = new LocalFiles(folder, durable = false)
      val written = Manifest.read(new LocalFiles(golden, durable = false))
      try {
        val manifest = Manifest.read(files)
        // Format 1 has no checksum on the manifest.
        assert(golden.endsWith("log-v1") || manifest.isEmpty || manifest == written)
        LogScan.of(files, manifest, 0).rows.foreach { case (first, rows) =>
          val seqs = first until first + rows.count
          assert(letters(rows, schemaOf(golden)).forall { case (n, letter) =>
            seqs.contains(n) && letter == ('a' + n).toChar.toString
          })
        }
        LogScan.report(files, None)
      } catch { case _: IOException | _: InvalidOffsetException => }
    }
  }

  fuzz("a mutated Arrow stream gives batches that can be decoded, or is refused") { random =>
    val bytes = mutate(random, pick(random, ArrowStreams))
    try {
      val stream = new ArrowStream(
        Channels.newChannel(new java.io.ByteArrayInputStream(bytes)),
        maxBytes = 1 << 20
      )
      val isSchema = stream.schema() == Script.arrowSchema
      val batches = Iterator.continually(stream.next()).takeWhile(_.nonEmpty).flatten
      batches.filter(batch => isSchema && batch.rows > 0).foreach { batch =>
        val slices = Iterator(Slice.whole(ArrowRows(batch.rows, batch.bytes)))
        val schema = Script.arrowSchema.serializeAsMessage()
        new SliceRows(new SliceColumns(schema, slices)).foreach(row => if (!row.isNullAt(0)) row.getLong(0))
      }
    } catch { case _: IOException | _: BridgeException => }
  }

  fuzz("a client that sends anything but the secret is disconnected, and one that has it still gets in") {
    random =>
      val controls = new LinkedBlockingQueue[SocketChannel]
      val server = new BridgeServer(
        unix = random.nextBoolean(),
        (channel, confirm) => { confirm(); controls.add(channel) },
        handshakeMillis = 30000
      )
      try {
        val strangers = Seq.fill(3)(TestConnection.to(server))
        strangers.foreach { stranger =>
          val line = s"headwater ${BridgeServer.ProtocolVersion} ${"0" * 64} control\n".getBytes(UTF_8)
          try stranger.send(mutate(random, line))
          catch { case _: IOException => } // disconnected already
        }
        Using.resource(TestConnection.authenticated(server, "control"))(_ =>
          controls.poll(20, TimeUnit.SECONDS).close()
        )
        strangers.foreach(_.close())
        assert(controls.isEmpty)
      } finally server.close()
  }

  fuzz("a mutated message of Python completes its request, or ends the connection") { random =>
    val server = java.nio.channels.ServerSocketChannel
      .open()
      .bind(new java.net.InetSocketAddress(java.net.InetAddress.getLoopbackAddress, 0))
    val python = SocketChannel.open(server.getLocalAddress)
    val connection = new PythonConnection(server.accept())
    try {
      val answer = connection.request("load", Json.mapper.createObjectNode().put("source", "letters"))
      val body = mutate(random, pick(random, Messages).getBytes(UTF_8))
      val length = if (random.nextInt(8) == 0) random.nextInt() else body.length
      python.write(ByteBuffer.allocate(4 + body.length).putInt(length).put(body).flip())
      python.shutdownOutput()
      try answer.get(60, TimeUnit.SECONDS)
      catch { case _: ExecutionException => }
    } finally {
      connection.close()
      python.close()
      server.close()
    }
  }
}

object ForeignBytesSuite {
  private val TestCount = 5

  private val Offsets = Seq(
    """{"v":1,"source":"random_alpha","run":"00c0ffee00c0ffee","seq":41}""",
    """{"v":1,"source":"letters","run":"0123456789abcdef","seq":7,"durability":"log"}""",
    """{"v":1,"source":"shards","partitions":"number","next":{"0":17,"1":4}}""",
    """{"v":1,"source":"shards","partitions":"text","next":{"a":17,"b c":4}}"""
  )

  private val Messages = Seq(
    """{"id":1,"answer":{"name":"letters","resumable":true}}""",
    """{"id":1,"error":{"message":"no","kind":"option"}}"""
  )

  private val ArrowStreams = Seq(
    ArrowBytes.schema ++ ArrowBytes.batch(Seq(1, 2, 3), "headwater.cursor" -> "17") ++ ArrowBytes.end,
    ArrowBytes.schema ++ ArrowBytes.batch(1L to 100L) ++ ArrowBytes.note(
      "headwater.caught_up" -> ""
    ) ++ ArrowBytes.end
  )

  /** Logs whose row n has the number n and the n-th letter. */
  private val Goldens: Seq[Path] = {
    val folder = Seq("tests", "../tests").map(Paths.get(_, "golden")).find(Files.isDirectory(_)).get
    Seq("log-v1", "log-v2", "log-v1-and-v2").map(folder.resolve)
  }

  private def letters(rows: StoredRows, schema: ArrowSchema): Seq[(Long, String)] = {
    val slices = new StoredSlices(Iterator(Slice.whole(rows)), () => new Configuration(false), (_, _) => ())
    Using.resource(slices)(_ =>
      new SliceRows(new SliceColumns(schema.bytes, slices))
        .map(row => row.getInt(0).toLong -> row.getUTF8String(1).toString)
        .toVector
    )
  }

  private def schemaOf(golden: Path): ArrowSchema = {
    val segment = golden.resolve(list(golden).find(_.endsWith(".segment")).get)
    Using.resource(new SegmentFile(segment.toString, LocalFiles.open(segment)))(_.header.arrowSchema)
  }

  private def isOfLog(name: String): Boolean = name.endsWith(".segment") || name.startsWith("manifest-")

  private def list(folder: Path): Seq[String] =
    Using.resource(Files.list(folder))(_.iterator.asScala.map(_.getFileName.toString).toSeq.sorted)

  private def withCopy(golden: Path)(body: Path => Unit): Unit = {
    val folder = Files.createTempDirectory("headwater-fuzz")
    try {
      list(golden).foreach(name => Files.copy(golden.resolve(name), folder.resolve(name)))
      body(folder)
    } finally
      Using.resource(Files.walk(folder))(
        _.sorted(Comparator.reverseOrder[Path]).iterator.asScala.foreach(Files.delete)
      )
  }

  private def pick[T](random: Random, values: Seq[T]): T = values(random.nextInt(values.length))

  private val Tokens: Seq[Array[Byte]] =
    Seq(
      "\u0000",
      "\n",
      "\"",
      "\\",
      "{",
      "}",
      "[",
      "]",
      ",",
      ":",
      "-1",
      "1e999",
      "null",
      "hwfr",
      "hwf2",
      "9" * 40
    )
      .map(_.getBytes(UTF_8)) ++ Seq(Array.fill[Byte](8)(-1), Array.fill[Byte](4)(0x7f), new Array[Byte](16))

  /** One to four edits; now and then none. */
  private def mutate(random: Random, sample: Array[Byte]): Array[Byte] =
    (0 until random.nextInt(5)).foldLeft(sample)((bytes, _) => edit(random, bytes))

  private def edit(random: Random, bytes: Array[Byte]): Array[Byte] = {
    val at = random.nextInt(bytes.length + 1)
    random.nextInt(6) match {
      case 0 => bytes.take(at)
      case 1 => bytes.take(at) ++ bytes.drop(at + 1 + random.nextInt(20))
      case 2 => bytes.take(at) ++ bytes.slice(at, at + random.nextInt(60)) ++ bytes.drop(at)
      case 3 => bytes.patch(at, pick(random, Tokens).toSeq, random.nextInt(20))
      case 4 =>
        bytes.take(at) ++ Array.fill(1 + random.nextInt(200))(pick(random, Tokens)).flatten ++ bytes.drop(at)
      case _ if at < bytes.length => bytes.updated(at, (bytes(at) ^ (1 << random.nextInt(8))).toByte)
      case _ => bytes
    }
  }
}
