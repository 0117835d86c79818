package org.apache.spark.sql.headwater

import java.util.UUID
import java.util.concurrent.TimeUnit

import scala.concurrent.duration._
import scala.util.control.NonFatal

import headwater.core.{ArrivedRows, LiveRows}
import org.apache.spark.SparkEnv
import org.apache.spark.rpc.{
  RpcAddress,
  RpcCallContext,
  RpcEndpointRef,
  RpcEnv,
  RpcTimeout,
  ThreadSafeRpcEndpoint
}
import org.apache.spark.util.{ThreadUtils, Utils}

/** Serves the rows of a stream in real-time mode to tasks in other processes, over Spark's own RPC: it is authenticated and
  * encrypted where `spark.authenticate` and `spark.network.crypto.enabled` say so.
  */
final class LiveEndpoint(live: LiveRows) {
  private[this] val env = SparkEnv.get.rpcEnv
  private[this] val name = s"headwater-live-${UUID.randomUUID()}"
  private[this] val waiting = ThreadUtils.newDaemonCachedThreadPool("headwater-live")

  // A request and its response are of Java's own types: class loaders differ between processes, and within one.
  private[this] val ref: RpcEndpointRef = env.setupEndpoint(
    name,
    new ThreadSafeRpcEndpoint {
      override val rpcEnv: RpcEnv = env

      override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
        case Array(shard: Long, after: Long, timeoutMillis: Long) =>
          waiting.execute { () =>
            try {
              val arrived = live.await(shard.toInt, after, timeoutMillis.millis)
              context.reply(Utils.serialize(arrived))
            } catch { case e @ (NonFatal(_) | _: InterruptedException) => context.sendFailure(e) }
          }
      }
    }
  )

  def address: LiveEndpoint.Address = LiveEndpoint.Address(name, env.address.host, env.address.port)

  def stop(): Unit = {
    env.stop(ref)
    waiting.shutdownNow()
  }
}

object LiveEndpoint {

  /** Where the endpoint of a stream is. */
  final case class Address(name: String, host: String, port: Int) {

    /** In a task. */
    def connect(): LiveRows = new LiveRows {
      private[this] val driver = SparkEnv.get.rpcEnv.setupEndpointRef(RpcAddress(host, port), name)

      override def await(shard: Int, after: Long, timeout: FiniteDuration): ArrivedRows = {
        val request = Array(shard.toLong, after, timeout.toMillis)
        val response =
          driver.askSync[Array[Byte]](request, new RpcTimeout(timeout + ResponseTime, "headwater"))
        Utils.deserialize[ArrivedRows](response, Thread.currentThread().getContextClassLoader)
      }
    }
  }

  private val ResponseTime = FiniteDuration(60, TimeUnit.SECONDS)
}
