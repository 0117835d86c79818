"""Changes of wikis, as the events of EventStreams have them."""

from __future__ import annotations

import random
import uuid
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from headwater.sim._words import LAST_NAMES, TITLES, TOPICS, WIKIS

__all__ = ["STREAMS", "change", "offset_of", "stream_of"]

STREAMS = ("recentchange", "page-create", "revision-create")

_PATTERN = "rrrrprrcrrrvrrrrprrrrvrr"
"""Which stream each of so many records in a row is of: r, p, v; c is a canary event of recentchange."""

_STREAM_OF = {"r": STREAMS[0], "c": STREAMS[0], "p": STREAMS[1], "v": STREAMS[2]}
_CYCLE = [_STREAM_OF[letter] for letter in _PATTERN]
_FIRST_OFFSET = {stream: 1_000_000 * number for number, stream in enumerate(STREAMS, 1)}
_COMMENTS = ("typo", "source added", "Überarbeitung", "誤字")
_TYPES = ("edit", "edit", "edit", "new", "log", "categorize")


def stream_of(n: int) -> str:
    """The stream that record n is of."""
    return _CYCLE[n % len(_CYCLE)]


def offset_of(stream: str, n: int) -> int:
    """How many records of a stream come before record n, counted from the stream's first offset.

    >>> [offset_of("page-create", n) for n in (0, 4, 5, 24, 29)]
    [2000000, 2000000, 2000001, 2000002, 2000003]
    """
    rounds, rest = divmod(n, len(_CYCLE))
    return _FIRST_OFFSET[stream] + rounds * _CYCLE.count(stream) + _CYCLE[:rest].count(stream)


def change(seed: int, n: int, stamp: int, prefix: str) -> dict[str, Any]:
    """Record n. A canary event has made-up fields, and `meta.domain` says what it is."""
    dice = random.Random(f"{seed}/{n}")  # noqa: S311
    stream = stream_of(n)
    domain, wiki = dice.choice(WIKIS)
    is_canary = _PATTERN[n % len(_PATTERN)] == "c"
    title = f"{dice.choice(TOPICS)[1]} ({dice.choice(TITLES)})"
    uri = f"https://{domain}/wiki/{quote(title.replace(' ', '_'))}"
    meta = {
        "uri": uri,
        "request_id": str(uuid.UUID(int=dice.getrandbits(128), version=4)),
        "id": str(uuid.UUID(int=dice.getrandbits(128), version=4)),
        "domain": "canary" if is_canary else domain,
        "stream": f"mediawiki.{stream}",
        "dt": _written(stamp, "milliseconds"),
        "topic": f"{prefix}{stream}",
        "partition": 0,
        "offset": offset_of(stream, n),
    }
    make = _recent_change if stream == STREAMS[0] else _revision
    return {"$schema": f"/mediawiki/{stream}/1.0.0", "meta": meta, **make(dice, wiki, title, stamp)}


def _recent_change(dice: random.Random, wiki: str, title: str, stamp: int) -> dict[str, Any]:
    size = dice.randrange(50, 100_000)
    return {
        "id": dice.randrange(10**8, 10**10),
        "type": dice.choice(_TYPES),
        "namespace": dice.choice((0, 0, 0, 1, 2, 14)),
        "title": title,
        "comment": f"/* {dice.choice(TOPICS)[1]} */ {dice.choice(_COMMENTS)}",
        "timestamp": stamp // 1000,
        "user": dice.choice(LAST_NAMES),
        "bot": dice.random() < 0.4,
        "minor": dice.random() < 0.3,
        "length": {"old": size, "new": max(0, size + dice.randrange(-200, 400))},
        "wiki": wiki,
    }


def _revision(dice: random.Random, wiki: str, title: str, stamp: int) -> dict[str, Any]:
    return {
        "database": wiki,
        "page_id": dice.randrange(1, 10**8),
        "page_title": title.replace(" ", "_"),
        "page_namespace": 0,
        "rev_id": dice.randrange(10**8, 10**10),
        "rev_timestamp": _written(stamp, "seconds"),
        "performer": {"user_text": dice.choice(LAST_NAMES), "user_is_bot": dice.random() < 0.4},
    }


def _written(stamp: int, unit: str) -> str:
    moment = datetime.fromtimestamp(stamp / 1000, timezone.utc)
    return moment.isoformat(timespec=unit).replace("+00:00", "Z")
