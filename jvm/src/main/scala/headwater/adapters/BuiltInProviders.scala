package headwater.adapters

/** The providers of the built-in Python sources. Their formats are registered in the services file of the jar. */
private[headwater] object BuiltInProviders {
  val names: Seq[String] =
    Seq(
      new MeetupRsvpProvider,
      new MqttProvider,
      new NdjsonProvider,
      new PollProvider,
      new RedisProvider,
      new RedisGroupProvider,
      new SseProvider,
      new TailProvider,
      new WebhookProvider,
      new WebSocketProvider
    ).map(_.shortName())
}

final class MeetupRsvpProvider extends NamedProvider("meetup_rsvp")

final class MqttProvider extends NamedProvider("mqtt")

final class NdjsonProvider extends NamedProvider("ndjson")

final class PollProvider extends NamedProvider("poll")

final class RedisProvider extends NamedProvider("redis")

final class RedisGroupProvider extends NamedProvider("redis_group")

final class SseProvider extends NamedProvider("sse")

final class TailProvider extends NamedProvider("tail")

final class WebhookProvider extends NamedProvider("webhook")

final class WebSocketProvider extends NamedProvider("websocket")
