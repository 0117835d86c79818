"""The built-in sources. Call one with its options and pass the result to `headwater.stream`."""

from headwater.sources.meetup_rsvp import meetup_rsvp
from headwater.sources.mqtt import mqtt
from headwater.sources.ndjson import ndjson
from headwater.sources.poll import poll
from headwater.sources.random_alpha import random_alpha
from headwater.sources.redis import redis, redis_group
from headwater.sources.sse import sse
from headwater.sources.tail import tail
from headwater.sources.webhook import webhook
from headwater.sources.websocket import websocket

__all__ = [
    "meetup_rsvp",
    "mqtt",
    "ndjson",
    "poll",
    "random_alpha",
    "redis",
    "redis_group",
    "sse",
    "tail",
    "webhook",
    "websocket",
]
