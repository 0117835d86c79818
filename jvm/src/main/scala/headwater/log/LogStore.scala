package headwater.log

import java.io.Closeable
import java.util.concurrent.atomic.AtomicReference

import scala.concurrent.duration.Deadline

import headwater.buffer.Buffer
import headwater.core.{ArrowSchema, Durability, RowGroup, SeqOffset, Store}
import org.apache.spark.internal.Logging

/** Rows in a log in the source's folder of the checkpoint. They survive the process: after a restart the same
  * window returns the same rows, and a resumable source continues after its last durable cursor.
  */
private[headwater] final class LogStore private (
    files: LogFiles,
    manifest: Manifest,
    scan: LogScan,
    settings: LogStore.Settings,
    lock: Closeable,
    nanoTime: () => Long
) extends Store
    with Logging {
  private[this] val listener = new AtomicReference[Map[Int, String] => Unit](_ => ())

  override val buffer: Buffer = {
    val first = scan.rows.headOption.fold(scan.next)(_._1)
    val index = new Buffer(Long.MaxValue, settings.logBytes, first, nanoTime)
    scan.rows.foreach { case (_, rows) => index.restore(rows) }
    index
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
      lock
    )

  override def run: String = manifest.run
  override def durability: Durability = Durability.Log
  override def next: Long = scan.next
  override def cursors: Map[Int, String] = scan.cursors
  override def append(rowGroup: RowGroup): Boolean = writer.append(rowGroup)
  override def isFlushed: Boolean = writer.isFlushed
  override def failure: Option[Throwable] = writer.failure

  override def commit(end: Long): Unit = {
    buffer.commit(end)
    writer.commit(end)
  }

  override def metrics: Map[String, Long] = {
    val sizes = writer.status
    Map("logBytes" -> sizes.total, "retainedBytes" -> sizes.retained)
  }

  override def close(deadline: Deadline, availableNow: Boolean): Unit = {
    if (!writer.close(deadline))
      logWarning(s"the log in ${files.pathOf("")} was not closed in time")
    val waiting = buffer.clear()
    if (waiting > 0)
      logInfo(s"$waiting rows that no batch had taken wait in ${files.pathOf("")} for the next start")
  }

  /** Sets the listener for durable cursors. In a temporary folder no cursor is durable. */
  def onDurable(onCursors: Map[Int, String] => Unit): Unit = if (files.isDurable) listener.set(onCursors)
}

private[headwater] object LogStore extends Logging {

  /** @param identity the options of the source that must not change */
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

  /** Opens the existing log, or creates a new one.
    *
    * @param known
    *   the position that Spark has for this source, if any
    * @param newRun
    *   the run of a new log
    */
  def open(
      files: LogFiles,
      settings: Settings,
      known: Option[SeqOffset],
      newRun: String,
      nanoTime: () => Long
  ): LogStore = {
    val lock = files.lock()
    try {
      val existing = Manifest.read(files)
      existing.foreach(Identity.check(_, settings))
      val first = existing.fold(known.fold(0L)(_.seq + 1))(_.first)
      val manifest = Manifest(
        settings.source,
        existing.fold(newRun)(_.run),
        math.max(Manifest.newestEpoch(files), LogScan.newestEpoch(files)) + 1,
        first,
        settings.shards,
        settings.schema,
        settings.identity
      )
      def scanAndCheck() = Recovery.check(files, existing, LogScan.of(files, first), known, settings)
      val scanned = scanAndCheck() // before anything is changed
      scanned.segments.lastOption.foreach(segment => files.sync(segment.name))
      files.writeAtomically(manifest.name, manifest.json.getBytes("UTF-8"))
      // Without a lock, another driver may have written since. It no longer does once this manifest exists.
      val checked = if (files.canAppend) scanned else scanAndCheck()
      files.list().filter(name => Manifest.epochOf(name).exists(_ < manifest.epoch)).foreach(files.delete)
      checked.torn.foreach(files.delete)
      if (checked.rows.nonEmpty)
        logInfo(
          s"source '${settings.source}' goes on with the log in ${files.pathOf("")}: rows ${checked.rows.head._1} to " +
            s"${checked.next - 1} are there, epoch ${manifest.epoch}"
        )
      new LogStore(files, manifest, checked, settings, lock, nanoTime)
    } catch {
      case e: Throwable =>
        lock.close()
        throw e
    }
  }
}
