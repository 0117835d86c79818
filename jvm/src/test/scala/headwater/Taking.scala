package headwater

/** An outlet for tests that call a feed themselves. */
object Taking {
  def apply(take: ArrowRows => Boolean): Outlet = new Outlet {
    override def give(parcel: Parcel): Boolean = parcel.rows.forall(take)
    override def caughtUp(): Unit = ()
    override def status: Buffer.Status = Buffer.Status(0, 0, -1, 0, 0, 0)
  }
}
