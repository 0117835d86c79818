package headwater.log

/** Something in a log that is not as it was written, or that does not count.
  *
  * @param file
  *   its name in the folder of the log, or its path in the checkpoint
  * @param at
  *   the position in the file
  * @param lost
  *   the first and the last of the rows that are lost with it; without a last one where that is not known
  */
private[headwater] final case class Finding(
    kind: Finding.Kind,
    file: String,
    at: Long,
    what: String,
    lost: Option[(Long, Option[Long])] = None
)

private[headwater] object Finding {

  /** Only damage loses rows. */
  sealed abstract class Kind(val name: String, val label: String)

  case object Damage extends Kind("damage", "damage")

  /** A write that was interrupted: nobody was offered its rows. */
  case object Torn extends Kind("torn", "torn tail")

  case object Ignored extends Kind("ignored", "ignored")

  def span(first: Long, last: Long): String = if (first == last) s"row $first" else s"rows $first to $last"
}

/** Collects the findings of a scan. At a place without a valid frame, only the next row number shows whether rows are
  * missing there: until then such a fault stays open.
  *
  * @param first
  *   the seq with which the log is expected to begin
  */
private[log] final class Findings(first: Long) {
  import Finding._
  import Findings.Fault

  private[this] val settled = Vector.newBuilder[Finding]
  private[this] var open = Vector.empty[Fault]
  private[this] var reached = first
  private[this] var following = first

  def result: Vector[Finding] = settled.result()

  /** The seq after the last row that was read, or the seq with which a later segment begins. */
  def end: Long = reached

  /** The seq that comes next in the files, whether or not its rows count. */
  def next: Long = following

  /** The log begins here: earlier rows were dropped. */
  def beginWith(seq: Long): Unit = {
    following = seq
    reached = math.max(reached, seq)
  }

  /** The rows continue with `seq`.
    *
    * @param what
    *   the subject of the message if another number was expected
    */
  def continueWith(seq: Long, file: String, at: Long, what: String): Unit = {
    val lost = Option.when(seq > reached)((reached, Option(seq - 1)))
    if (open.nonEmpty) settle(lost, isComplete = seq <= reached)
    else if (seq != following) damage(file, at, s"$what $seq where $following comes next", lost)
    following = seq
    reached = math.max(reached, seq)
  }

  /** Rows up to `seq` were read.
    *
    * @param counts
    *   whether they are rows of the log, and not a repetition
    */
  def advanceTo(seq: Long, counts: Boolean): Unit = {
    following = seq
    if (counts) reached = seq
  }

  /** No valid frame is here. It is damage if that is certain, or if the next row number shows that rows are missing. */
  def fault(file: String, at: Long, what: String, isCertain: Boolean): Unit = {
    open :+= Fault(file, at, what, isCertain)
    following = reached
  }

  def damage(file: String, at: Long, what: String, lost: Option[(Long, Option[Long])] = None): Unit =
    settled += Finding(Damage, file, at, what, lost)

  def ignored(file: String, at: Long, what: String): Unit = settled += Finding(Ignored, file, at, what)

  /** The end of the log: nothing shows that rows are missing. */
  def finish(): Unit = settle(Some((reached, None)), isComplete = true)

  private def settle(lost: Option[(Long, Option[Long])], isComplete: Boolean): Unit = {
    open.foreach { fault =>
      if (fault.isCertain || !isComplete) damage(fault.file, fault.at, fault.what, lost)
      else settled += Finding(Torn, fault.file, fault.at, fault.what)
    }
    open = Vector.empty
  }
}

private[log] object Findings {
  private final case class Fault(file: String, at: Long, what: String, isCertain: Boolean)
}
