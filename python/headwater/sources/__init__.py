"""The built-in sources. Call one with its options and pass the result to `headwater.stream`."""

from headwater.sources.meetup_rsvp import meetup_rsvp
from headwater.sources.ndjson import ndjson
from headwater.sources.random_alpha import random_alpha
from headwater.sources.sse import sse

__all__ = ["meetup_rsvp", "ndjson", "random_alpha", "sse"]
