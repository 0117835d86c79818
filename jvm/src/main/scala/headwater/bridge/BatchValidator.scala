package headwater.bridge

import java.nio.ByteBuffer

import scala.jdk.CollectionConverters._

import headwater.BridgeException
import org.apache.arrow.flatbuf.RecordBatch
import org.apache.arrow.vector.{BufferLayout, TypeLayout}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, Schema}

/** Checks record batches before their rows become durable: a task that cannot read them would fail again after every
  * restart. All lengths and offsets must lie within the batch. Values are not looked at; Python validates strings.
  */
private[bridge] final class BatchValidator(schema: Schema) {
  import BatchValidator._

  private[this] val columns = schema.getFields.asScala.map(new Column(_)).toArray

  /** @param body
    *   the body of the message, little-endian
    * @throws BridgeException
    *   names the column
    */
  def check(batch: RecordBatch, body: ByteBuffer): Unit = {
    val walk = new Walk(batch, body)
    columns.foreach(walk.check(_, batch.length, isExact = true))
    walk.end()
  }
}

private object BatchValidator {

  private final class Column(field: Field) {
    val name: String = field.getName
    val buffers: Array[BufferLayout] =
      TypeLayout.getTypeLayout(field.getType).getBufferLayouts.asScala.toArray
    val isStruct: Boolean = field.getType.isInstanceOf[ArrowType.Struct]
    val valuesPerRow: Int = field.getType match {
      case list: ArrowType.FixedSizeList => list.getListSize
      case _ => 1
    }
    val children: Array[Column] = field.getChildren.asScala.map(new Column(_)).toArray
  }

  /** Nodes and buffers are in the order of their columns, each before its children. */
  private final class Walk(batch: RecordBatch, body: ByteBuffer) {
    private[this] var node = 0
    private[this] var buffer = 0

    def check(column: Column, length: Long, isExact: Boolean): Unit = {
      if (node >= batch.nodesLength) fail(column, "it is missing")
      val (count, nulls) = (batch.nodes(node).length, batch.nodes(node).nullCount)
      node += 1
      if (count < length || count > Int.MaxValue || isExact && count > length)
        fail(column, s"it has $count values for $length rows")
      if (nulls < 0 || nulls > count) fail(column, s"it has $nulls nulls among $count values")
      var end = -1L // the last offset, where there are offsets
      column.buffers.foreach { layout =>
        val (start, size) = nextBuffer(column)
        val width = layout.getTypeBitWidth
        layout.getType match {
          case BufferLayout.BufferType.VALIDITY => if (nulls > 0) require(column, size, (count + 7) / 8)
          case BufferLayout.BufferType.OFFSET => end = lastOffset(column, start, size, count.toInt, width / 8)
          case BufferLayout.BufferType.DATA if end >= 0 => require(column, size, end)
          case _ => require(column, size, (count * width + 7) / 8)
        }
      }
      val childLength = if (end >= 0) end else count * column.valuesPerRow
      column.children.foreach(check(_, childLength, isExact = false))
    }

    def end(): Unit =
      if (node != batch.nodesLength || buffer != batch.buffersLength)
        throw invalid("it has more columns than its schema")

    private def nextBuffer(column: Column): (Int, Long) = {
      if (buffer >= batch.buffersLength) fail(column, "a buffer is missing")
      val (start, size) = (batch.buffers(buffer).offset, batch.buffers(buffer).length)
      buffer += 1
      if (start < 0 || size < 0 || start > body.limit() || size > body.limit() - start)
        fail(column, "a buffer lies outside of the batch")
      (start.toInt, size)
    }

    private def lastOffset(column: Column, start: Int, size: Long, count: Int, width: Int): Long =
      if (count == 0) 0L
      else {
        require(column, size, (count + 1L) * width)
        def offset(i: Int): Long =
          if (width == 4) body.getInt(start + 4 * i).toLong else body.getLong(start + 8 * i)
        var previous = offset(0)
        if (previous < 0) fail(column, s"its first offset is $previous")
        var i = 1
        while (i <= count) {
          val next = offset(i)
          if (next < previous) fail(column, s"its offsets go backwards, from $previous to $next")
          previous = next
          i += 1
        }
        previous
      }

    private def require(column: Column, size: Long, needed: Long): Unit =
      if (size < needed) fail(column, s"a buffer of $size bytes is too short, $needed are needed")

    private def fail(column: Column, what: String): Nothing = throw invalid(s"column '${column.name}': $what")
  }

  private def invalid(what: String) = new BridgeException(
    s"Python sent an Arrow batch that is not valid: $what"
  )
}
