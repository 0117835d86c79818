package headwater.adapters

/** The providers of the built-in Python sources. Their formats are registered in the services file of the jar. */
private[headwater] object BuiltInProviders {
  val names: Seq[String] =
    Seq(new MeetupRsvpProvider, new NdjsonProvider, new SseProvider).map(_.shortName())
}

final class MeetupRsvpProvider extends NamedProvider("meetup_rsvp")

final class NdjsonProvider extends NamedProvider("ndjson")

final class SseProvider extends NamedProvider("sse")
