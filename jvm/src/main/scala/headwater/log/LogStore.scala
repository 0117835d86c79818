package headwater.log

import java.io.Closeable
import java.util.concurrent.atomic.AtomicReference

import scala.concurrent.duration.Deadline

import headwater.InvalidOffsetException
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
    val index = new Buffer(Long.MaxValue, settings.logBytes, scan.first, nanoTime)
    val rows = scan.rows.map { case (first, rows) => (first, () => index.restore(rows)) }
    val lost = scan.lost.map(lost => (lost.first, () => index.restore(lost)))
    (rows ++ lost).sortBy(_._1).foreach { case (_, restore) => restore() }
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

  /** In a temporary folder no cursor is durable. */
  def isDurable: Boolean = files.isDurable

  /** Sets the listener for durable cursors. */
  def onDurable(onCursors: Map[Int, String] => Unit): Unit = if (isDurable) listener.set(onCursors)
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
      def scan() = LogScan.of(files, existing, first)
      def check(scan: LogScan) = Recovery.check(files, existing, scan, known, settings)
      val scanned = scan()
      val checkedBefore = check(scanned) // before anything is changed
      SegmentHeader
        .cursorFault(scanned.cursors)
        .foreach(what => throw new DamagedException(s"the log in ${files.pathOf("")} cannot continue: $what"))
      val manifest = Manifest(
        settings.source,
        existing.fold(newRun)(_.run),
        existing.map(_.key).filter(_.nonEmpty).getOrElse(Key.random()),
        nextEpoch(files, scanned),
        first,
        scanned.next,
        settings.shards,
        settings.schema,
        settings.identity
      )
      scanned.segments.lastOption.foreach(segment => files.sync(segment.name))
      files.writeAtomically(manifest.name, manifest.json.getBytes("UTF-8"))
      // Without a lock, another driver may have written since. It no longer does once this manifest exists.
      val checked = if (files.canAppend) checkedBefore else check(scan())
      files.list().filter(name => Manifest.epochOf(name).exists(_ < manifest.epoch)).foreach(files.delete)
      checked.torn.foreach(files.delete)
      if (checked.rows.nonEmpty)
        logInfo(
          s"source '${settings.source}' goes on with the log in ${files.pathOf("")}: rows ${checked.first} to " +
            s"${checked.next - 1} are there, epoch ${manifest.epoch}"
        )
      new LogStore(files, manifest, checked, settings, lock, nanoTime)
    } catch {
      case e: Throwable =>
        lock.close()
        throw e
    }
  }

  /** The epoch after those of all files. Segments of other logs do not count. */
  private def nextEpoch(files: LogFolder, scan: LogScan): Long = {
    val newest = math.max(Manifest.newestEpoch(files), scan.epoch)
    if (newest >= SegmentHeader.MaxEpoch)
      throw new InvalidOffsetException(
        s"${files.pathOf("")} has a file of epoch $newest, and no log reaches it: remove that file if it is not of this log."
      )
    newest + 1
  }
}
