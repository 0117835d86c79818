package org.apache.spark.sql.headwater.bench

import java.sql.Timestamp
import java.util.SplittableRandom
import java.util.concurrent.TimeUnit
import javax.annotation.concurrent.GuardedBy

import scala.collection.mutable.ListBuffer

import org.apache.spark.sql.{DataFrame, SQLContext}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.DateTimeUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.read.streaming.{Offset => AnyOffset}
import org.apache.spark.sql.execution.streaming.{Offset, Source}
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.types.UTF8String

/** The approach that `random_alpha` had at first, to measure against: a thread appends one row at a time, under a lock, to
  * a list; a batch is a slice of that list, parallelized; a commit cuts the list's head off.
  *
  * Two things differ, so that what is measured is the approach. The string is made without detours, and the thread waits
  * while `maxWaiting` rows are in the list that no batch has taken, where the list would fill the heap.
  *
  * @param sleepMillis
  *   the pause after each row; 0 for none
  */
private[bench] final class OriginalAlpha(
    sqlContext: SQLContext,
    override val schema: StructType,
    length: Int,
    sleepMillis: Long,
    maxWaiting: Int
) extends Source {
  import OriginalAlpha._

  @GuardedBy("this") private[this] val rows = ListBuffer.empty[(Timestamp, String)]
  // The rows of the list begin after `committed`; a batch was made of those up to `taken`.
  @GuardedBy("this") private[this] var committed = 0L
  @GuardedBy("this") private[this] var taken = 0L
  @GuardedBy("this") private[this] var stopped = false

  private[this] val thread = new Thread(() => generate(), "original-alpha")
  thread.setDaemon(true)
  thread.start()

  override def getOffset: Option[Offset] = synchronized {
    Some(committed + rows.size).filter(_ > 0).map(Count(_))
  }

  override def getBatch(start: Option[Offset], end: Offset): DataFrame = {
    val slice = synchronized {
      taken = count(end)
      notifyAll()
      rows.slice((start.fold(0L)(count) - committed).toInt, (count(end) - committed).toInt)
    }
    val internal = sqlContext.sparkContext.parallelize(slice.toList).map { case (timestamp, value) =>
      InternalRow(DateTimeUtils.fromJavaTimestamp(timestamp), UTF8String.fromString(value))
    }
    sqlContext.sparkSession
      .asInstanceOf[SparkSession]
      .internalCreateDataFrame(internal, schema, isStreaming = true)
  }

  override def commit(end: Offset): Unit = synchronized {
    rows.dropInPlace((count(end) - committed).toInt)
    committed = count(end)
  }

  override def stop(): Unit = {
    synchronized {
      stopped = true
      notifyAll()
    }
    thread.interrupt()
    thread.join(TimeUnit.SECONDS.toMillis(5))
  }

  private def generate(): Unit = {
    val random = new SplittableRandom
    try
      while (append((new Timestamp(System.currentTimeMillis()), word(random))))
        if (sleepMillis > 0) Thread.sleep(sleepMillis)
    catch { case _: InterruptedException => () } // stop()
  }

  private def append(row: (Timestamp, String)): Boolean = synchronized {
    while (!stopped && committed + rows.size - taken >= maxWaiting) wait()
    rows += row
    !stopped
  }

  private def word(random: SplittableRandom): String = {
    val letters = new Array[Char](length)
    letters.indices.foreach(i => letters(i) = Alphabet(random.nextInt(Alphabet.length)))
    new String(letters)
  }
}

private object OriginalAlpha {
  private val Alphabet = (('A' to 'Z') ++ ('a' to 'z') ++ ('0' to '9')).toArray

  /** How many rows the stream has given. */
  private final case class Count(value: Long) extends Offset {
    override val json: String = value.toString
  }

  private def count(offset: AnyOffset): Long = offset.json.toLong
}
