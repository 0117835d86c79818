package headwater.bridge

import java.net.URL
import java.util.concurrent.atomic.AtomicLong

import headwater.InvalidOptionException
import headwater.adapters.ProviderJar
import org.apache.spark.sql.execution.datasources.DataSource
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.MutableURLClassLoader
import org.scalatest.funsuite.AnyFunSuite

/** The registration of formats. [[PythonFeedSuite]] and `PythonProviderSuite` test the rest of [[Bridge]]. */
class BridgeSuite extends AnyFunSuite {

  private val numbers = new AtomicLong
  private def newName(): String = s"named_${numbers.incrementAndGet()}"

  /** As in a Spark with our jar in `spark.jars`. Here the context class loader can be extended. */
  private def withOpenLoader[T](body: MutableURLClassLoader => T): T = {
    val before = Thread.currentThread().getContextClassLoader
    val open = new MutableURLClassLoader(Array.empty[URL], getClass.getClassLoader)
    Thread.currentThread().setContextClassLoader(open)
    try body(open)
    finally {
      Thread.currentThread().setContextClassLoader(before)
      open.close()
    }
  }

  test("a registered name is a format that Spark finds") {
    withOpenLoader { _ =>
      val name = newName()
      assert(Bridge.register(name) == "")
      assert(DataSource.lookupDataSource(name, SQLConf.get).getName == ProviderJar.className(name))
    }
  }

  test("registering a name again adds nothing, and returns the same") {
    withOpenLoader { loader =>
      val name = newName()
      assert(Seq.fill(3)(Bridge.register(name)) == Seq("", "", ""))
      assert(loader.getURLs.length == 1)
      Bridge.register(newName())
      assert(loader.getURLs.length == 2)
    }
  }

  test("if the class loader cannot be extended, register returns the reason and an alternative") {
    val name = newName()
    val before = Thread.currentThread().getContextClassLoader
    Thread.currentThread().setContextClassLoader(getClass.getClassLoader)
    try {
      val why = Bridge.register(name)
      assert(why.contains(s"loaded by ${getClass.getClassLoader}, to which nothing can be added"))
      assert(why.contains("start Spark with the jar in spark.jars"))
      assert(why.contains(s"""format("headwater").option("source", "$name")"""))
      assert(Bridge.register(name) == why)
    } finally Thread.currentThread().setContextClassLoader(before)
  }

  test("an invalid name is refused before anything is written") {
    val bad =
      Seq(
        "",
        " ",
        "../x",
        "a/b",
        "a.b",
        "a b",
        "a\u0000",
        "1a",
        "_a",
        "ä",
        "a-b",
        "a;b",
        "a\n",
        "x" * 65,
        "x" * 300
      )
    withOpenLoader { loader =>
      bad.foreach { name =>
        val error = intercept[IllegalArgumentException](Bridge.register(name))
        assert(error.getMessage.contains("not a source name"))
      }
      assert(loader.getURLs.isEmpty)
    }
  }

  test("the name of another format is refused in any case, naming its class") {
    withOpenLoader { loader =>
      Seq(
        "parquet" -> "ParquetDataSource",
        "rate" -> "RateStreamProvider",
        "JSON" -> "JsonDataSource",
        "random_alpha" -> "headwater.adapters.RandomAlphaProvider",
        "Random_Alpha" -> "headwater.adapters.RandomAlphaProvider",
        "headwater" -> "headwater.adapters.HeadwaterProvider"
      ).foreach { case (name, owner) =>
        val error = intercept[InvalidOptionException](Bridge.register(name))
        assert(error.getMessage.startsWith(s"""The name '$name' is taken: format("$name") is """))
        assert(error.getMessage.contains(owner) && error.getMessage.contains("another name"))
      }
      assert(loader.getURLs.isEmpty)
    }
  }

  test("a name that differs from another only in case is refused: Spark ignores case") {
    withOpenLoader { _ =>
      val name = newName()
      Bridge.register(name)
      val error = intercept[InvalidOptionException](Bridge.register(name.toUpperCase))
      assert(error.getMessage.contains(ProviderJar.className(name)))
    }
  }
}
