package headwater.bridge

import java.nio.channels.SocketChannel
import java.util.concurrent.{CompletableFuture, ConcurrentHashMap}
import java.util.concurrent.TimeUnit.NANOSECONDS
import javax.annotation.concurrent.GuardedBy

import scala.jdk.CollectionConverters._
import scala.util.{Failure, Success, Try}

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.adapters.{BuiltInProviders, ProviderJar}
import headwater.core.{Json, RowSink, SeqOffset}
import headwater.{BridgeException, InvalidOptionException}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.Column
import org.apache.spark.sql.execution.datasources.DataSource
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.MutableURLClassLoader

/** The crossing between this JVM and the Python process that drives it: one [[BridgeServer]], the [[PythonConnection]] that has
  * connected to it, and the feeds that run there.
  */
private[headwater] final class Bridge(unix: Boolean) extends Logging {
  private[this] val running = new ConcurrentHashMap[String, () => ObjectNode]
  private[this] val readers = new ConcurrentHashMap[String, Column]

  @GuardedBy("this") private[this] var peer: Option[PythonConnection] = None

  val server = new BridgeServer(unix, connected)

  def isConnected: Boolean = synchronized(peer).exists(_.isAlive)

  /** Fails at once where no Python is connected. */
  def ask(what: String, body: ObjectNode): CompletableFuture[JsonNode] =
    synchronized(peer).fold(Bridge.nobody)(_.ask(what, body))

  def started(feed: String, out: RowSink): Unit = started(
    feed,
    () => {
      val status = out.status
      Json.mapper
        .createObjectNode()
        .put("waitingRows", status.waitingRows)
        .put("waitingBytes", status.waitingBytes)
        .put("blockedMs", NANOSECONDS.toMillis(status.blockedNanos))
    }
  )

  /** @param status what is told of it, to whoever asks */
  def started(feed: String, status: () => ObjectNode): Unit = running.put(feed, status)

  def ended(feed: String): Unit = running.remove(feed)

  def status: String = {
    val all = Json.mapper.createObjectNode()
    running.asScala.foreach { case (feed, status) => all.set[JsonNode](feed, status()) }
    Json.mapper.writeValueAsString(all)
  }

  def handedOver(feed: String, reader: Column): Unit = readers.put(feed, reader)

  /** What Python has handed over for a source with partitions: the function that reads them in tasks. */
  def takeReader(feed: String): Column = Option(readers.remove(feed)).getOrElse {
    throw new BridgeException(s"Python has not handed over what reads the partitions of $feed")
  }

  /** Under one lock: Python may ask for a source as soon as it is welcome, and must be there by then. */
  private def connected(channel: SocketChannel, welcome: () => Unit): Unit = {
    val before = synchronized {
      val before = peer
      welcome()
      peer = Some(new PythonConnection(channel))
      before
    }
    before.foreach(_.close())
  }
}

/** What Python calls, through py4j. */
object Bridge {
  @GuardedBy("this") private[this] var bridge: Option[Bridge] = None
  @GuardedBy("this") private[this] var named = BuiltInProviders.names.map(_ -> "").toMap

  /** Where to connect, and what to say there, as JSON. The socket is opened by the first call.
    *
    * @param unix
    *   whether Python can connect to a Unix domain socket
    */
  def open(unix: Boolean): String = {
    val server = synchronized {
      if (bridge.isEmpty) bridge = Some(new Bridge(unix))
      bridge.get.server
    }
    Json.mapper.writeValueAsString(
      Json.mapper.createObjectNode().put("address", server.address).put("secret", server.secret)
    )
  }

  def isConnected: Boolean = synchronized(bridge).exists(_.isConnected)

  /** Makes `format(name)` work, in every thread. The answer is empty, or says why only `format("headwater")` will do.
    *
    * @throws InvalidOptionException
    *   when the name is another format's
    */
  def register(name: String): String = synchronized {
    named.getOrElse(
      name, {
        require(SeqOffset.isName(name), s"not a source name: '$name'")
        refuseClash(name)
        val why = addProvider(name)
        named += name -> why
        why
      }
    )
  }

  /** Gives the function that tasks will run to read the partitions of a source, over a column `task`. */
  def reader(feed: String, column: Column): Unit = current.handedOver(feed, column)

  /** What waits in the buffers of the feeds in Python, as JSON. */
  def status(): String = synchronized(bridge).fold("{}")(_.status)

  private[headwater] def current: Bridge = synchronized(bridge).getOrElse(throw Bridge.noPython)

  private def addProvider(name: String): String = {
    val loaders = Seq(getClass.getClassLoader, Thread.currentThread().getContextClassLoader)
    loaders.collectFirst { case open: MutableURLClassLoader => open } match {
      case Some(loader) =>
        loader.addURL(ProviderJar.write(name).toUri.toURL)
        ""
      case None =>
        s"headwater's jar was loaded by ${loaders.head}, to which nothing can be added; start Spark with the jar in " +
          s"spark.jars for format(\"$name\"). What works: format(\"headwater\").option(\"source\", \"$name\"), and hw.stream"
    }
  }

  private def refuseClash(name: String): Unit = {
    def taken(by: String) =
      throw new InvalidOptionException(
        s"The name '$name' is taken: format(\"$name\") is $by. Give the source another name."
      )
    Try(DataSource.lookupDataSource(name, SQLConf.get)) match {
      case Success(ours) if ours.getName == ProviderJar.className(name) =>
      case Success(other) => taken(other.getName)
      case Failure(_: ClassNotFoundException) =>
      case Failure(error) => taken(s"known to Spark (${error.getMessage})") // by two others, for instance
    }
  }

  private def nobody: CompletableFuture[JsonNode] = CompletableFuture.failedFuture(noPython)

  private def noPython = new BridgeException(
    "No Python process is attached to this Spark. A source that is written in Python runs in the Python process that drives " +
      "Spark: call hw.attach(spark) there. It cannot run in a Spark Connect session, nor in an application in Scala."
  )
}
