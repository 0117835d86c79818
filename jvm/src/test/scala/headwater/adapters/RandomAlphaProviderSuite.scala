package headwater.adapters

import java.sql.Timestamp
import java.time.Instant

import scala.util.Using

import headwater.InvalidOptionException
import headwater.alpha.RandomAlpha
import headwater.testing.Script
import org.apache.spark.sql.streaming.{StreamTest, Trigger}
import org.apache.spark.sql.types.{StringType, StructType, TimestampType}
import org.scalatest.prop.TableDrivenPropertyChecks

/** `random_alpha` as used from Scala. */
class RandomAlphaProviderSuite extends StreamTest with TableDrivenPropertyChecks {

  private def reader(options: (String, String)*) =
    spark.readStream.format("random_alpha").options(options.toMap)

  private def collect(options: (String, String)*): Seq[(Timestamp, String)] = {
    val table = s"t${System.nanoTime()}"
    val query = reader(options :+ ("availableNowWait" -> "1h"): _*)
      .load()
      .writeStream
      .trigger(Trigger.AvailableNow())
      .format("memory")
      .queryName(table)
      .start()
    assert(query.awaitTermination(60000))
    spark.table(table).collect().toSeq.map(row => (row.getTimestamp(0), row.getString(1)))
  }

  test("the schema is the original's") {
    val schema = new StructType().add("timestamp", TimestampType).add("value", StringType)
    assert(reader("len" -> "5").load().schema == schema)
  }

  test("rows have the requested length and their creation time") {
    val before = Instant.now()
    val rows = collect("len" -> "7", "rowsPerSecond" -> "0", "bufferRows" -> "20000")
    val after = Instant.now()
    assert(rows.length == 20000)
    assert(rows.forall(_._2.matches("[A-Za-z0-9]{7}")))
    assert(rows.forall { case (time, _) =>
      !time.toInstant.isBefore(before) && !time.toInstant.isAfter(after)
    })
    assert(rows.map(_._1.getTime) == rows.map(_._1.getTime).sorted)
    assert(rows.exists(_._1.getNanos / 1000 % 1000 != 0), "microseconds, not milliseconds")
  }

  test("streams with the same seed are equal, streams without a seed differ") {
    def values(options: (String, String)*) =
      collect(options ++ Seq("len" -> "9", "rowsPerSecond" -> "0", "bufferRows" -> "100"): _*).map(_._2)
    assert(values("seed" -> "-5") == values("seed" -> "-5"))
    assert(values() != values())
  }

  test("load refuses invalid options with the option, the value and what is allowed") {
    val cases = Table(
      ("options", "message"),
      (
        Seq[(String, String)](),
        "Source 'random_alpha' needs the option 'len': an integer from 1 to 65536."
      ),
      (
        Seq("len" -> "0"),
        "Option 'len' of source 'random_alpha' is '0', it must be an integer from 1 to 65536."
      ),
      (Seq("len" -> "65537"), "Option 'len' of source 'random_alpha' is '65537', it must be"),
      (Seq("len" -> "five"), "Option 'len' of source 'random_alpha' is 'five', it must be"),
      (
        Seq("len" -> "5", "rowsPerSecond" -> "-1"),
        "is '-1', it must be an integer from 0 to 1000000000."
      ),
      (
        Seq("len" -> "5", "seed" -> "1.5"),
        "Option 'seed' of source 'random_alpha' is '1.5', it must be an integer"
      ),
      (
        Seq("len" -> "5", "Sead" -> "1"),
        "Source 'random_alpha' has no option 'Sead'. Its options are: len, rowsPerS"
      ),
      (Seq("len" -> "5", "path" -> "x"), "has no option 'path'"),
      (
        Seq("len" -> "5", "durability" -> "disk"),
        "Option 'durability' of source 'random_alpha' is 'disk', it must be log"
      )
    )
    forAll(cases) { (options, message) =>
      assert(intercept[InvalidOptionException](reader(options: _*).load()).getMessage.contains(message))
    }
  }

  test("a user-defined schema is refused") {
    val error = intercept[InvalidOptionException](reader("len" -> "5").schema("a INT").load())
    assert(
      error.getMessage.contains(
        "has a fixed schema, timestamp TIMESTAMP,value STRING, and accepts no other"
      )
    )
    assert(error.getMessage.contains("""Remove .schema("a INT")"""))
  }

  test("spark.read says to use spark.readStream") {
    val error = intercept[UnsupportedOperationException] {
      spark.read.format("random_alpha").option("len", "5").load()
    }
    assert(error.getMessage.contains("""use spark.readStream.format("random_alpha")"""))
  }

  test("a seeded stream continues after a restart") {
    withTempDir { checkpoint =>
      val seen = new java.util.concurrent.ConcurrentLinkedQueue[String]
      (1 to 3).foreach { _ =>
        val query = reader(
          "len" -> "6",
          "seed" -> "11",
          "rowsPerSecond" -> "0",
          "bufferRows" -> "40",
          "availableNowWait" -> "1h"
        )
          .load()
          .writeStream
          .option("checkpointLocation", checkpoint.getCanonicalPath)
          .trigger(Trigger.AvailableNow())
          .foreachBatch { (frame: org.apache.spark.sql.DataFrame, _: Long) =>
            frame.collect().foreach(row => seen.add(row.getString(1)))
          }
          .start()
        assert(query.awaitTermination(60000))
      }
      val expected = (0L until 120L).map(value(11, _))
      assert(seen.toArray.toSeq == expected)
    }
  }

  test("two queries of one definition run side by side, each with all rows in order") {
    val words =
      reader("len" -> "6", "seed" -> "5", "rowsPerSecond" -> "2000", "maxRowsPerTrigger" -> "70").load()
    val tables = Seq("one", "two").map(name => s"$name${System.nanoTime()}")
    val queries = tables.map(table => words.writeStream.format("memory").queryName(table).start())
    tables.foreach(table => Script.await(s"too few rows in $table")(spark.table(table).count() > 400))
    queries.foreach(_.stop())
    tables.foreach { table =>
      val values = spark.table(table).collect().map(_.getString(1)).toSeq
      assert(values == values.indices.map(seq => value(seed = 5, seq)))
    }
  }

  private def value(seed: Long, seq: Long): String = {
    val letters = new Array[Byte](6)
    RandomAlpha.fill(seed, seq, letters, 0, 6)
    new String(letters)
  }

  test("the services file names every provider, so that Spark finds it by its short name") {
    val providers = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
    val names = Using.resource(scala.io.Source.fromResource(providers))(_.getLines().toSeq)
    assert(names.contains(classOf[RandomAlphaProvider].getName))
  }
}
