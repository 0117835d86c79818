package headwater.partition

import java.nio.file.{Files, Path}

import headwater.InvalidOffsetException
import headwater.core.{PartitionKeyType, Positions}
import headwater.log.LocalFiles
import org.scalatest.funsuite.AnyFunSuite

class StartPositionsSuite extends AnyFunSuite {

  private def in[T](
      folder: Path,
      source: String = "shards",
      identity: Map[String, String] = Map("url" -> "u")
  )(
      body: StartPositions => T
  ): T = {
    val starts = new StartPositions(new LocalFiles(folder, durable = true), source, identity)
    try body(starts)
    finally starts.close()
  }

  private def folder = Files.createTempDirectory("headwater-starts")
  private def numbers(at: (String, Long)*) = Positions(PartitionKeyType.Numbers, at)
  private def texts(folder: Path) = {
    val listed = Files.list(folder)
    try
      listed.toArray
        .map(_.asInstanceOf[Path])
        .filter(_.toString.endsWith(".json"))
        .sorted
        .map(Files.readString)
        .toSeq
    finally listed.close()
  }

  test("positions survive a restart, also those of partitions that were added later") {
    val place = folder
    in(place) { starts =>
      assert(starts.all.isEmpty && starts.keyType.isEmpty)
      starts.add(numbers("0" -> 5, "1" -> 0))
      starts.add(numbers("2" -> 7))
    }
    in(place) { starts =>
      assert(starts.all == Map("0" -> 5L, "1" -> 0L, "2" -> 7L))
      assert(starts.keyType.contains(PartitionKeyType.Numbers))
      starts.add(numbers("3" -> 1))
    }
    in(place)(starts => assert(starts.all.size == 4))
    assert(
      texts(place).head ==
        """{"v":1,"source":"shards","identity":{"url":"u"},"partitions":"int","starts":{"0":5,"1":0}}"""
    )
  }

  test("a torn last file, then a new partition, then a restart") {
    Seq("", "{", """{"v":1,"source":"shar""").foreach { torn =>
      val place = folder
      in(place)(_.add(numbers("0" -> 5)))
      Files.writeString(place.resolve("start-00000002.json"), torn)
      in(place) { starts =>
        assert(starts.all == Map("0" -> 5L))
        starts.add(numbers("1" -> 7))
      }
      in(place)(starts => assert(starts.all == Map("0" -> 5L, "1" -> 7L)))
      assert(texts(place).length == 2)
    }
  }

  test("what is not a regular file is refused by name, and nothing waits for it") {
    val place = folder
    in(place)(_.add(numbers("0" -> 5)))
    Files.createSymbolicLink(place.resolve("start-00000002.json"), Path.of("/dev/zero"))
    val error = intercept[java.io.IOException](in(place)(_.all))
    assert(error.getMessage.contains("start-00000002.json: Not a regular file"))
  }

  test("a stored position is never changed") {
    val place = folder
    in(place) { starts =>
      starts.add(numbers("0" -> 5))
      starts.add(numbers("0" -> 9, "1" -> 1))
      assert(starts.all == Map("0" -> 5L, "1" -> 1L))
    }
    in(place)(starts => assert(starts.all == Map("0" -> 5L, "1" -> 1L)))
  }

  test("an incomplete last file is ignored; an incomplete earlier one is an error") {
    val place = folder
    in(place) { starts =>
      starts.add(numbers("0" -> 5))
      starts.add(numbers("1" -> 6))
    }
    val last = place.resolve("start-00000002.json")
    val whole = Files.readString(last)
    (0 until whole.length).foreach { cut =>
      Files.writeString(last, whole.take(cut))
      in(place)(starts => assert(starts.all == Map("0" -> 5L), cut))
    }
    Files.writeString(last, whole)
    Files.writeString(place.resolve("start-00000001.json"), "{\"v\":1,")
    val error = intercept[InvalidOffsetException](in(place)(_ => ()))
    assert(error.getMessage.contains("start-00000001.json is damaged"))
  }

  test("another source, identity, version or partition key type is refused") {
    val place = folder
    in(place)(_.add(numbers("0" -> 5)))
    val name = intercept[InvalidOffsetException](in(place, source = "others")(_ => ()))
    assert(name.getMessage.contains("it was 'shards' and is 'others' now"))
    val option = intercept[InvalidOffsetException](in(place, identity = Map("url" -> "v"))(_ => ()))
    assert(option.getMessage.contains("its option 'url' was 'u' and is 'v' now"))
    val keyType =
      intercept[InvalidOffsetException](in(place)(_.add(Positions(PartitionKeyType.Names, Seq("a" -> 1L)))))
    assert(keyType.getMessage.contains("were called by an integer"))
    val first = place.resolve("start-00000001.json")
    Files.writeString(first, Files.readString(first).replace("\"v\":1", "\"v\":2"))
    val version = intercept[InvalidOffsetException](in(place)(_ => ()))
    assert(version.getMessage.contains("it has version 2, this headwater"))
  }

  test("one query at a time may use a checkpoint") {
    val place = folder
    in(place) { _ =>
      val error = intercept[java.io.IOException](in(place)(_ => ()))
      assert(error.getMessage.contains("one query at a time may use a checkpoint"))
    }
    in(place)(_ => ())
  }
}
