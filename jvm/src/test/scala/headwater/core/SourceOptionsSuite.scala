package headwater.core

import headwater.InvalidOptionException
import headwater.adapters.ReadLimits
import headwater.adapters.PythonProvider
import org.apache.spark.sql.connector.read.streaming.ReadLimit
import org.scalatest.funsuite.AnyFunSuite
import org.scalatest.prop.TableDrivenPropertyChecks

class SourceOptionsSuite extends AnyFunSuite with TableDrivenPropertyChecks {

  private def options(written: (String, String)*) =
    new SourceOptions("letters", written.toMap, "len" +: OptionTable.feed)

  private def buffered(written: (String, String)*) =
    BufferedOptions.read(options(written: _*), Durability.Memory)

  test("names match ignoring case and underscores") {
    Seq("maxRowsPerTrigger", "max_rows_per_trigger", "MAXROWSPERTRIGGER", "maxrowspertrigger").foreach {
      name =>
        assert(buffered(name -> "7").limits.maxRowsPerTrigger == Some(7L))
    }
  }

  test("the defaults are those of the documentation") {
    assert(
      buffered() == BufferedOptions(
        bufferBytes = 64 << 20,
        bufferRows = Long.MaxValue,
        limits = Limits(None, None, None, maxTriggerDelay = 900000000000L),
        availableNowWait = 10000000000L,
        failOnDataLoss = true,
        durability = Durability.Memory,
        logBytes = 4L << 30,
        logCompression = "none",
        logRetainBatches = None,
        logRetainBytes = 1L << 30
      )
    )
  }

  test("log options need durability=log, and buffer options durability=memory") {
    assert(buffered("durability" -> "LOG", "logBytes" -> "1k", "logRetainBatches" -> "0").logBytes == 1024)
    val wrong = Seq(Seq("durability" -> "log", "bufferRows" -> "3"), Seq("logCompression" -> "lz4"))
    wrong.foreach { written =>
      val error = intercept[InvalidOptionException](buffered(written: _*))
      assert(error.getMessage.contains(s"Option '${written.last._1}' means nothing with durability"))
    }
  }

  test("sizes and durations have units") {
    val read = buffered("bufferBytes" -> "2g", "maxTriggerDelay" -> "250ms", "availableNowWait" -> "3 m")
    assert(
      read.bufferBytes == 2L << 30 && read.limits.maxTriggerDelay == 250000000L && read.availableNowWait == 180000000000L
    )
  }

  test("an invalid value is refused with the option, the value and what is allowed") {
    val cases = Table(
      ("option", "value", "allowed"),
      ("bufferBytes", "0", "it must be a size of at least 1 byte, such as 500k, 64m or 2g"),
      ("bufferBytes", "-1", "it must be a size"),
      ("bufferBytes", "64 parsecs", "it must be a size"),
      ("bufferRows", "0", "it must be an integer, 1 or more"),
      ("maxRowsPerTrigger", "ten", "it must be an integer, 1 or more"),
      ("maxRowsPerTrigger", "1.5", "it must be an integer, 1 or more"),
      ("maxRowsPerTrigger", "9223372036854775808", "it must be an integer, 1 or more"),
      ("maxBytesPerTrigger", "", "it must be a size"),
      ("minRowsPerTrigger", "-3", "it must be an integer, 1 or more"),
      ("maxTriggerDelay", "soon", "it must be a duration with its unit, such as 250ms, 10s, 15m or 2h"),
      ("maxTriggerDelay", "10", "it must be a duration with its unit"),
      ("maxTriggerDelay", "500us", "it must be a duration with its unit"),
      ("maxTriggerDelay", "999999999999999999d", "it must be a duration with its unit"),
      ("availableNowWait", "-1s", "it must be a duration"),
      ("failOnDataLoss", "maybe", "it must be true or false"),
      ("durability", "disk", "it must be log or memory")
    )
    forAll(cases) { (option, value, allowed) =>
      val error = intercept[InvalidOptionException](buffered(option -> value))
      assert(error.getMessage.startsWith(s"Option '$option' of source 'letters' is '$value', $allowed"))
    }
  }

  test("an unknown option is refused with the list of options") {
    val error = intercept[InvalidOptionException](options("length" -> "3"))
    assert(
      error.getMessage.startsWith(
        "Source 'letters' has no option 'length'. Its options are: len, durability, "
      )
    )
  }

  test("an option under two names is refused") {
    val error = intercept[InvalidOptionException](options("buffer_rows" -> "3", "bufferRows" -> "4"))
    assert(
      error.getMessage == "Source 'letters' got one option under two names: 'bufferRows', 'buffer_rows'."
    )
  }

  test("a missing required option is named, with what is allowed") {
    val error = intercept[InvalidOptionException](options().required("len")(SourceOptions.integer(1, 9)))
    assert(error.getMessage == "Source 'letters' needs the option 'len': an integer from 1 to 9.")
  }

  test("minRowsPerTrigger above maxRowsPerTrigger is refused") {
    val error =
      intercept[InvalidOptionException](buffered("minRowsPerTrigger" -> "5", "maxRowsPerTrigger" -> "4"))
    assert(
      error.getMessage.contains(
        "'minRowsPerTrigger' is '5', it must not be above 'maxRowsPerTrigger', which is '4'"
      )
    )
  }

  test("limits survive the conversion to Spark's ReadLimit and back") {
    assert(ReadLimits.of(buffered().limits) == ReadLimit.allAvailable())
    assert(ReadLimits.admission(ReadLimits.of(buffered().limits)) == Admission())
    assert(ReadLimits.of(buffered("maxRowsPerTrigger" -> "5").limits) == ReadLimit.maxRows(5))
    val all = buffered(
      "maxRowsPerTrigger" -> Long.MaxValue.toString,
      "maxBytesPerTrigger" -> "1k",
      "minRowsPerTrigger" -> "2",
      "maxTriggerDelay" -> "3s"
    )
    assert(ReadLimits.admission(ReadLimits.of(all.limits)) == Admission(Long.MaxValue, 1024, 2, 3000000000L))
  }

  private def partitioned(written: (String, String)*) =
    PartitionedOptions.read(new SourceOptions("shards", written.toMap, PythonProvider.Names))

  test("startFrom accepts earliest, latest, a time, and offsets") {
    assert(partitioned().startFrom == StartFrom.Earliest)
    assert(partitioned("startFrom" -> "Latest").startFrom == StartFrom.Latest)
    val time = java.time.Instant.parse("2026-01-31T11:00:00Z")
    assert(partitioned("startFrom" -> "2026-01-31T12:00:00+01:00").startFrom == StartFrom.At(time))
    assert(
      partitioned("startFrom" -> """{"0": 17, "a": 0}""").startFrom == StartFrom.Offsets(
        Map("0" -> 17, "a" -> 0)
      )
    )
    val wrong = Seq(
      "newest",
      "2026-01-31T12:00:00",
      "{\"0\": -1}",
      "{\"0\": 1.5}",
      "{\"0\"",
      "{\"0\":1,\"0\":2}",
      "[1]",
      ""
    )
    wrong.foreach { value =>
      val error = intercept[InvalidOptionException](partitioned("startFrom" -> value))
      assert(error.getMessage.contains(s"is '$value', it must be earliest, latest, a time with its zone"))
    }
  }

  test("buffer options are refused for partitioned sources, and partition options for feeds") {
    val buffer = intercept[InvalidOptionException](partitioned("bufferRows" -> "3"))
    assert(buffer.getMessage.contains("Option 'bufferRows' means nothing for a source with partitions"))
    val fed = new SourceOptions("letters", Map("start_from" -> "latest"), PythonProvider.Names)
    val start = intercept[InvalidOptionException](PartitionedOptions.rejectForFeeds(fed))
    assert(start.getMessage.contains("Option 'startFrom' is for sources with partitions only"))
  }
}
