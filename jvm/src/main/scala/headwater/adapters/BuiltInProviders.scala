package headwater.adapters

/** The sources in Python that come with headwater: their formats are known when the jar is built. */
private[headwater] object BuiltInProviders {
  val names: Seq[String] =
    Seq(new MeetupRsvpProvider, new NdjsonProvider, new SseProvider).map(_.shortName())
}

final class MeetupRsvpProvider extends NamedProvider("meetup_rsvp")

final class NdjsonProvider extends NamedProvider("ndjson")

final class SseProvider extends NamedProvider("sse")
