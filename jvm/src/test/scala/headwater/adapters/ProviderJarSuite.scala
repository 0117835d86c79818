package headwater.adapters

import java.lang.reflect.Modifier
import java.net.URLClassLoader
import java.nio.file.Files
import java.util.ServiceLoader

import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.spark.sql.sources.DataSourceRegister
import org.scalatest.funsuite.AnyFunSuite

class ProviderJarSuite extends AnyFunSuite {

  private def withJar(name: String)(body: URLClassLoader => Unit): Unit = {
    val jar = ProviderJar.write(name)
    try Using.resource(new URLClassLoader(Array(jar.toUri.toURL), getClass.getClassLoader))(body)
    finally Files.delete(jar)
  }

  // Java keywords, class names and the longest name are all valid.
  private val names = Seq("letters", "L", "class", "Object", "NamedProvider", "a_1_B", "x" * 64)

  test("the generated provider has the name, and a constructor without arguments") {
    names.foreach { name =>
      withJar(name) { loader =>
        val providerClass = loader.loadClass(ProviderJar.className(name))
        assert(providerClass.getClassLoader == loader, "it came from the jar")
        assert(Modifier.isPublic(providerClass.getModifiers) && Modifier.isFinal(providerClass.getModifiers))
        val provider = providerClass.getConstructor().newInstance().asInstanceOf[NamedProvider]
        assert(provider.shortName() == name)
      }
    }
  }

  test("Spark finds the generated provider among ours") {
    names.foreach { name =>
      withJar(name) { loader =>
        val formats =
          ServiceLoader.load(classOf[DataSourceRegister], loader).asScala.map(p => p.shortName() -> p).toMap
        assert(formats(name).getClass.getName == ProviderJar.className(name))
        assert(
          formats.contains("headwater") && formats.contains("random_alpha"),
          "the others are still there"
        )
      }
    }
  }

  test("several generated providers work in one class loader") {
    val jars = Seq("one", "two").map(ProviderJar.write)
    try
      Using.resource(new URLClassLoader(jars.map(_.toUri.toURL).toArray, getClass.getClassLoader)) { loader =>
        val formats = ServiceLoader.load(classOf[DataSourceRegister], loader).asScala.map(_.shortName()).toSeq
        assert(Seq("one", "two").forall(name => formats.count(_ == name) == 1))
      }
    finally jars.foreach(Files.delete(_))
  }

  test("spark.read fails with a hint to spark.readStream, with the format's name") {
    withJar("letters") { loader =>
      val provider =
        loader
          .loadClass(ProviderJar.className("letters"))
          .getConstructor()
          .newInstance()
          .asInstanceOf[NamedProvider]
      val error = intercept[UnsupportedOperationException](provider.createRelation(null, Map.empty))
      assert(error.getMessage.contains("""use spark.readStream.format("letters")"""))
    }
  }
}
