package headwater

/** A store that is a buffer and nothing else. */
object InBuffer {
  def apply(only: Buffer): Store = new Store {
    override def run: String = "0123456789abcdef"
    override def durability: Durability = Durability.Memory
    override def buffer: Buffer = only
    override def next: Long = only.latest + 1
    override def cursors: Map[Int, String] = Map.empty
    override def give(parcel: Parcel): Boolean = parcel.rows.forall(only.append)
    override def commit(end: Long): Unit = only.commit(end)
    override def isSettled: Boolean = true
    override def failure: Option[Throwable] = None
    override def metrics: Map[String, Long] = Map.empty
    override def close(availableNow: Boolean): Unit = ()
  }
}
