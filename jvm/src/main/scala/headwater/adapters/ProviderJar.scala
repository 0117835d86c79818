package headwater.adapters

import java.io.ByteArrayOutputStream
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.util.jar.{JarEntry, JarOutputStream}

import scala.util.Using

import headwater.core.ProcessFolder
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.xbean.asm9.{ClassWriter, Opcodes}

/** A jar with a generated provider for one name. Spark finds a format by the name of each provider on the class
  * path, and creates providers without arguments: each name needs a class of its own.
  */
private[headwater] object ProviderJar {

  def write(name: String): Path = {
    val file = Files.createTempFile(ProcessFolder.path, s"$name-", ".jar")
    file.toFile.deleteOnExit()
    Files.write(file, jar(name))
  }

  def className(name: String): String = s"headwater.named.$name"

  private def jar(name: String): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    Using.resource(new JarOutputStream(bytes)) { out =>
      def entry(path: String, content: Array[Byte]): Unit = {
        out.putNextEntry(new JarEntry(path))
        out.write(content)
        out.closeEntry()
      }
      entry(className(name).replace('.', '/') + ".class", provider(name))
      entry(s"META-INF/services/${classOf[DataSourceRegister].getName}", className(name).getBytes(UTF_8))
    }
    bytes.toByteArray
  }

  /** `public final class NAME extends NamedProvider { public NAME() { super("NAME"); } }` */
  private def provider(name: String): Array[Byte] = {
    import Opcodes._
    val parent = classOf[NamedProvider].getName.replace('.', '/')
    val classFile = new ClassWriter(0)
    classFile.visit(
      V17,
      ACC_PUBLIC | ACC_FINAL | ACC_SUPER,
      className(name).replace('.', '/'),
      null,
      parent,
      Array.empty
    )
    val constructor = classFile.visitMethod(ACC_PUBLIC, "<init>", "()V", null, Array.empty)
    constructor.visitCode()
    constructor.visitVarInsn(ALOAD, 0)
    constructor.visitLdcInsn(name)
    constructor.visitMethodInsn(INVOKESPECIAL, parent, "<init>", "(Ljava/lang/String;)V", false)
    constructor.visitInsn(RETURN)
    constructor.visitMaxs(2, 1)
    constructor.visitEnd()
    classFile.visitEnd()
    classFile.toByteArray
  }
}
