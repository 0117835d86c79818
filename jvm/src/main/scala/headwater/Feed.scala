package headwater

/** A source at work: it makes rows until it has no more, or until it is told to end. */
trait Feed {

  /** Called once, on a thread of its own. To return is to say that there are no more rows; to throw fails the query,
    * once Spark has read what was given before.
    *
    * @param give
    *   takes the rows of one Arrow batch. It blocks while the buffer is full, and returns false when the feed has to
    *   end.
    */
  def run(give: ArrowRows => Boolean): Unit

  /** Called from another thread, once, to make [[run]] return soon: close what it may be blocked on. The thread is
    * interrupted afterwards.
    */
  def close(): Unit
}
