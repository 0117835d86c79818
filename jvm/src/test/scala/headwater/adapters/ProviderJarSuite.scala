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

  // Words of Java, names of classes, and one as long as can be: all are good names.
  private val names = Seq("letters", "L", "class", "Object", "NamedProvider", "a_1_B", "x" * 64)

  test("the provider that is made has the name asked for, and is what Spark can make without arguments") {
    names.foreach { name =>
      withJar(name) { loader =>
        val made = loader.loadClass(ProviderJar.className(name))
        assert(made.getClassLoader == loader, "it came from the jar")
        assert(Modifier.isPublic(made.getModifiers) && Modifier.isFinal(made.getModifiers))
        val provider = made.getConstructor().newInstance().asInstanceOf[NamedProvider]
        assert(provider.shortName() == name)
      }
    }
  }

  test("Spark's way of looking for formats finds it, among ours") {
    names.foreach { name =>
      withJar(name) { loader =>
        val found =
          ServiceLoader.load(classOf[DataSourceRegister], loader).asScala.map(p => p.shortName() -> p).toMap
        assert(found(name).getClass.getName == ProviderJar.className(name))
        assert(found.contains("headwater") && found.contains("random_alpha"), "the others are still there")
      }
    }
  }

  test("several names live side by side in one class loader") {
    val jars = Seq("one", "two").map(ProviderJar.write)
    try
      Using.resource(new URLClassLoader(jars.map(_.toUri.toURL).toArray, getClass.getClassLoader)) { loader =>
        val found = ServiceLoader.load(classOf[DataSourceRegister], loader).asScala.map(_.shortName()).toSeq
        assert(Seq("one", "two").forall(name => found.count(_ == name) == 1))
      }
    finally jars.foreach(Files.delete(_))
  }

  test("it tells spark.read to be spark.readStream, by its own name") {
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
