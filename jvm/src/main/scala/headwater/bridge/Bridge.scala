package headwater.bridge

import java.nio.channels.SocketChannel
import java.util.{Collections, LinkedHashMap, Map => JMap}
import java.util.concurrent.{CompletableFuture, ConcurrentHashMap}
import java.util.concurrent.TimeUnit.NANOSECONDS
import javax.annotation.concurrent.GuardedBy

import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.{Failure, Success, Try}

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.adapters.{BuiltInProviders, ProviderJar}
import headwater.core.{Arrivals, Json, RowSink, SeqOffset}
import headwater.{BridgeException, InvalidOptionException}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.datasources.DataSource
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.MutableURLClassLoader

/** The crossing between this JVM and the Python process: one [[BridgeServer]], the [[PythonConnection]] to it,
  * and the feeds that run in Python.
  */
private[headwater] final class Bridge(unix: Boolean) extends Logging {
  private[this] val running = new ConcurrentHashMap[String, () => ObjectNode]

  private[this] val descriptions = Collections.synchronizedMap(
    new LinkedHashMap[ObjectNode, JsonNode](16, 0.75f, true) {
      override def removeEldestEntry(eldest: JMap.Entry[ObjectNode, JsonNode]): Boolean =
        size > Bridge.MaxDescriptions
    }
  )

  @GuardedBy("this") private[this] var connection: Option[PythonConnection] = None

  val server = new BridgeServer(unix, connected)

  def isConnected: Boolean = synchronized(connection).exists(_.isAlive)

  /** Fails at once when no Python process is connected. */
  def request(kind: String, body: ObjectNode): CompletableFuture[JsonNode] =
    synchronized(connection).fold(Bridge.failedRequest)(_.request(kind, body))

  def feedStarted(feed: String, out: RowSink): Unit = feedStarted(
    feed,
    () => {
      val status = out.status
      Json.mapper
        .createObjectNode()
        .put("waitingRows", status.waitingRows)
        .put("waitingBytes", status.waitingBytes)
        .put("blockedMs", NANOSECONDS.toMillis(status.blockedNanos))
        .put("lagMs", NANOSECONDS.toMillis(status.lagNanos))
        .setAll[ObjectNode](
          Bridge.arrivals(status.arrivals).put("bytesPerSecond", status.arrivals.bytesPerSecond)
        )
    }
  )

  /** @param status returns the status of the feed, for `hw.feeds()` */
  def feedStarted(feed: String, status: () => ObjectNode): Unit = running.put(feed, status)

  def feedEnded(feed: String): Unit = running.remove(feed)

  def status: String = {
    val all = Json.mapper.createObjectNode()
    running.asScala.foreach { case (feed, status) => all.set[JsonNode](feed, status()) }
    Json.mapper.writeValueAsString(all)
  }

  /** Asks Python to describe a source, when `load()` of Spark wants its schema. */
  def describe(request: ObjectNode): CompletableFuture[JsonNode] = {
    val response = this.request("load", request)
    response.thenAccept(descriptions.put(request, _))
    response
  }

  /** The description that `load()` got, when the query starts: Python is asked once. If the source was defined again in
    * between, the feed is refused where its rows have another schema than the query.
    */
  def described(request: ObjectNode): CompletableFuture[JsonNode] =
    Option(descriptions.get(request)).fold(describe(request))(CompletableFuture.completedFuture)

  /** Asks Python to end a feed or a watch by the deadline. */
  def stop(feed: String, deadline: Deadline): CompletableFuture[JsonNode] = request(
    "stop",
    Json.mapper
      .createObjectNode()
      .put("feed", feed)
      .put("timeoutMs", math.max(0L, deadline.timeLeft.toMillis))
  )

  /** Confirms under the lock: Python may load a source as soon as it is confirmed, and the connection must be set
    * by then.
    */
  private def connected(channel: SocketChannel, confirm: () => Unit): Unit = {
    val previous = synchronized {
      val previous = connection
      descriptions.clear() // of another process
      confirm()
      connection = Some(new PythonConnection(channel))
      previous
    }
    previous.foreach(_.close())
  }
}

/** The methods that Python calls through py4j. */
object Bridge {
  private val MaxDescriptions = 1000

  /** How long a source waits for the end of this JVM before it fails because Python has ended. */
  private[bridge] val ExitTime = 5.seconds

  @GuardedBy("this") private[this] var bridge: Option[Bridge] = None
  @GuardedBy("this") private[this] var registered = BuiltInProviders.names.map(_ -> "").toMap

  /** The address to connect to and the secret to send, as JSON. The first call opens the socket.
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

  /** Makes `format(name)` work, in every thread. Returns an empty string, or the reason why only
    * `format("headwater")` works.
    *
    * @param session
    *   in which another format may have this name. The active session of a thread of py4j may be another one, or none
    * @throws InvalidOptionException
    *   when another format has this name
    */
  def register(name: String, session: SparkSession): String = {
    val active = SparkSession.getActiveSession
    SparkSession.setActiveSession(session)
    try register(name)
    finally active.fold(SparkSession.clearActiveSession())(SparkSession.setActiveSession)
  }

  private[bridge] def register(name: String): String = synchronized {
    registered.getOrElse(
      name, {
        require(SeqOffset.isName(name), s"not a source name: '$name'")
        rejectTakenName(name)
        val reason = addProvider(name)
        registered += name -> reason
        reason
      }
    )
  }

  /** The status of the feeds in Python, as JSON. */
  def status(): String = synchronized(bridge).fold("{}")(_.status)

  /** For `hw.feeds()`. */
  private[headwater] def arrivals(status: Arrivals.Status): ObjectNode = {
    val json = Json.mapper.createObjectNode().put("rowsPerSecond", status.rowsPerSecond)
    status.lastAt.foreach(json.put("lastRowAt", _))
    json
  }

  private[headwater] def current: Bridge = synchronized(bridge).getOrElse(throw Bridge.noPythonAttached)

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

  private def rejectTakenName(name: String): Unit = {
    def taken(by: String) =
      throw new InvalidOptionException(
        s"The name '$name' is taken: format(\"$name\") is $by. Give the source another name."
      )
    Try(DataSource.lookupDataSource(name, SQLConf.get)) match {
      case Success(ours) if ours.getName == ProviderJar.className(name) =>
      case Success(other) => taken(other.getName)
      case Failure(_: ClassNotFoundException) =>
      case Failure(error) =>
        taken(s"known to Spark (${error.getMessage})") // two other providers have the name, for instance
    }
  }

  private def failedRequest: CompletableFuture[JsonNode] = CompletableFuture.failedFuture(noPythonAttached)

  private def noPythonAttached = new BridgeException(
    "No Python process is attached to this Spark. A source that is written in Python runs in the Python process that drives " +
      "Spark: call hw.attach(spark) there. It cannot run in a Spark Connect session, nor in an application in Scala."
  )
}
