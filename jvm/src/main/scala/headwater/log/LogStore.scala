package headwater.log

import java.io.Closeable
import java.util.concurrent.atomic.AtomicReference

import headwater.buffer.Buffer
import headwater.core.{ArrowSchema, Durability, RowGroup, SeqOffset, Store}
import org.apache.spark.internal.Logging

/** Rows in the log that lies in the folder that Spark gives a source. They survive the process: after a restart the same
  * window gives the same rows, and a resumable source goes on after the last durable cursor.
  */
private[headwater] final class LogStore private (
    files: LogFiles,
    manifest: Manifest,
    scan: LogScan,
    settings: LogStore.Settings,
    held: Closeable,
    nanoTime: () => Long
) extends Store
    with Logging {
  private[this] val listener = new AtomicReference[Map[Int, String] => Unit](_ => ())

  override val buffer: Buffer = {
    val first = scan.rows.headOption.fold(scan.next)(_._1)
    val made = new Buffer(Long.MaxValue, settings.logBytes, first, nanoTime)
    scan.rows.foreach { case (_, rows) => made.restore(rows) }
    made
  }

  private[this] val writer =
    new SegmentLog(
      files,
      manifest,
      scan,
      settings.arrowSchema,
      settings.segments,
      buffer,
      listener.get()(_),
      held
    )

  override def run: String = manifest.run
  override def durability: Durability = Durability.Log
  override def next: Long = scan.next
  override def cursors: Map[Int, String] = scan.cursors
  override def give(parcel: RowGroup): Boolean = writer.give(parcel)
  override def isSettled: Boolean = writer.isSettled
  override def failure: Option[Throwable] = writer.failure

  override def commit(end: Long): Unit = {
    buffer.commit(end)
    writer.commit(end)
  }

  override def metrics: Map[String, Long] = {
    val sizes = writer.status
    Map("logBytes" -> sizes.total, "retainedBytes" -> sizes.retained)
  }

  override def close(availableNow: Boolean): Unit = {
    if (!writer.close(LogStore.CloseMillis))
      logWarning(s"the log in ${files.pathOf("")} was not closed within ${LogStore.CloseMillis} ms")
    val waiting = buffer.clear()
    if (waiting > 0)
      logInfo(s"$waiting rows that no batch had taken wait in ${files.pathOf("")} for the next start")
  }

  /** Who is told of durable cursors. In a temporary folder none is. */
  def onDurable(told: Map[Int, String] => Unit): Unit = if (files.isDurable) listener.set(told)
}

private[headwater] object LogStore extends Logging {
  private val CloseMillis = 1000L

  /** @param identity options of the source that must stay as they are */
  final case class Settings(
      source: String,
      schema: String,
      arrowSchema: ArrowSchema,
      shards: Int,
      isResumable: Boolean,
      identity: Map[String, String],
      logBytes: Long,
      segments: SegmentLog.Settings,
      failOnDataLoss: Boolean
  )

  /** Opens what is there, or begins a new log.
    *
    * @param known
    *   the position that Spark has for this source, if any
    * @param newRun
    *   names a new log
    */
  def open(
      files: LogFiles,
      settings: Settings,
      known: Option[SeqOffset],
      newRun: String,
      nanoTime: () => Long
  ): LogStore = {
    val held = files.lock()
    try {
      val found = Manifest.read(files)
      found.foreach(Identity.check(_, settings))
      val first = found.fold(known.fold(0L)(_.seq + 1))(_.first)
      val manifest = Manifest(
        settings.source,
        found.fold(newRun)(_.run),
        math.max(Manifest.newestEpoch(files), LogScan.newestEpoch(files)) + 1,
        first,
        settings.shards,
        settings.schema,
        settings.identity
      )
      def look() = Recovery.check(files, found, LogScan.of(files, first), known, settings)
      val seen = look() // before anything is changed
      seen.segments.lastOption.foreach(segment => files.sync(segment.name))
      files.writeWhole(manifest.name, manifest.json.getBytes("UTF-8"))
      // Where no lock keeps others away, one may have written since. With this manifest there, it no longer does.
      val checked = if (files.canAppend) seen else look()
      files.list().filter(name => Manifest.epochOf(name).exists(_ < manifest.epoch)).foreach(files.delete)
      checked.torn.foreach(files.delete)
      if (checked.rows.nonEmpty)
        logInfo(
          s"source '${settings.source}' goes on with the log in ${files.pathOf("")}: rows ${checked.rows.head._1} to " +
            s"${checked.next - 1} are there, epoch ${manifest.epoch}"
        )
      new LogStore(files, manifest, checked, settings, held, nanoTime)
    } catch {
      case e: Throwable =>
        held.close()
        throw e
    }
  }
}
