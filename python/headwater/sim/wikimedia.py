"""Wikimedia's EventStreams: server-sent events whose ids contain a position in each topic."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from headwater.sim.faults import Fault
from headwater.sim.server import RefusedError, Reply, Request, Sim
from headwater.sim.words import LAST_NAMES, TITLES, TOPICS, WIKIS

__all__ = ["WikimediaSim", "first_offset"]

_STREAMS = ("recentchange", "page-create", "revision-create")
_ACTIVE, _STANDBY = "eqiad.mediawiki.", "codfw.mediawiki."  # prefixes of topics, one per data centre


class WikimediaSim(Sim):
    """Serves `GET /v2/stream/{streams}`: new events, those from `since` on, or those after `Last-Event-ID`.

    An id is a JSON array with an entry for each topic. With `ids="offset"` an entry contains the offset to
    resume at, and a reader loses nothing. With `ids="timestamp"` it contains the millisecond to resume at, as
    in the public service: events of the same millisecond share their id, and a reader that resumes after the
    first of them misses the others. The topics of the standby data centre have no events, and the offset -1.

    `more` are `start`, `host`, `port` and `keep_alive_seconds` of `RsvpSim`.

    >>> with WikimediaSim(seed=1, rate=0, count=3) as sim:
    ...     print(sim.url.partition("/v2")[2], sim.record(2)["meta"]["stream"])
    /stream/recentchange mediawiki.recentchange
    """

    path: ClassVar[str] = "/v2/stream/recentchange"

    def __init__(
        self,
        seed: int = 0,
        rate: float = 50,
        count: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        ids: Literal["offset", "timestamp"] = "offset",
        **more: Any,
    ) -> None:
        if ids not in ("offset", "timestamp"):
            raise ValueError(f"ids is {ids!r}, it must be 'offset' or 'timestamp'")
        self._ids = ids
        super().__init__(seed, rate, count, faults, **more)

    def answer(self, request: Request) -> Reply:
        """The events that a request is for, by its path, `since` and `Last-Event-ID`."""
        if "user-agent" not in request.headers:
            raise RefusedError(403, "a request must have a User-Agent")
        streams = _parse_streams(request.path)
        first = dict.fromkeys(streams, self._first(request))
        if "last-event-id" in request.headers:
            first |= self._first_after(request.headers["last-event-id"])

        def encode(n: int) -> bytes:
            stream = _stream_of(n)
            return self._event(n, streams) if stream in streams and n >= first[stream] else b""

        return Reply(
            content_type="text/event-stream; charset=utf-8",
            start=min(first[stream] for stream in streams),
            encode=encode,
            bad=b'event: message\ndata: {"$schema":"/mediawiki/recentchange/1.0.0","meta":\n\n',
            greeting=b":ok\n\n",
            keep_alive=b"3\r\n:\n\n\r\n",
        )

    def record(self, n: int) -> dict[str, Any]:
        """Record n, which is the data of its event: the same for the same seed, except for its time."""
        return _change(self.seed, n, self.timeline.stamp(n))

    def _event(self, n: int, streams: Sequence[str]) -> bytes:
        data = json.dumps(self.record(n), ensure_ascii=False, separators=(",", ":"))
        id = json.dumps(list(self._id_entries(n, streams)), separators=(",", ":"))
        return f"event: message\nid: {id}\ndata: {data}\n\n".encode()

    def _id_entries(self, n: int, streams: Sequence[str]) -> Iterator[dict[str, Any]]:
        for stream in streams:
            if self._ids == "offset":
                position = {"offset": first_offset(stream, n + 1)}
            else:
                position = {"timestamp": self.timeline.stamp(n) + 1}
            yield {"topic": _ACTIVE + stream, "partition": 0, **position}
            yield {"topic": _STANDBY + stream, "partition": 0, "offset": -1}

    def _first(self, request: Request) -> int:
        """The first record by `since`, for all streams."""
        since = request.query.get("since")
        if since is None:
            return self.timeline.live
        try:
            stamp = int(since) if since.isdigit() else _parse_time(since)
        except ValueError:
            raise RefusedError(
                400, f"since is '{since}', it must be a time in ISO 8601 or in milliseconds"
            ) from None
        return self.timeline.first_from(stamp)

    def _first_after(self, last_event_id: str) -> dict[str, int]:
        """The first record of each stream in an id."""
        try:
            return {
                entry["topic"].removeprefix(_ACTIVE): self._first_of_entry(entry)
                for entry in json.loads(last_event_id)
                if entry["topic"].startswith(_ACTIVE)
            }
        except (ValueError, TypeError, KeyError, AttributeError):
            raise RefusedError(
                400, "Last-Event-ID is not a JSON array of topic, partition and offset"
            ) from None

    def _first_of_entry(self, entry: dict[str, Any]) -> int:
        if "timestamp" in entry:
            return self.timeline.first_from(int(entry["timestamp"]))
        if entry["offset"] == -1:
            return self.timeline.live
        stream, offset = entry["topic"].removeprefix(_ACTIVE), int(entry["offset"])
        if offset <= first_offset(stream, 0):
            return 0
        n, step = 0, 1 << 40
        while step:  # bisection: offsets grow with n
            n += step if first_offset(stream, n + step) < offset else 0
            step >>= 1
        return n + 1


def _parse_streams(path: str) -> list[str]:
    parent, _, names = path.rpartition("/")
    streams = list(dict.fromkeys(name.removeprefix("mediawiki.") for name in names.split(",")))
    if parent != "/v2/stream" or not {*streams} <= {*_STREAMS}:
        raise RefusedError(
            404, f"there is no stream at {path}; there are /v2/stream/ and some of {','.join(_STREAMS)}"
        )
    return streams


def _parse_time(text: str) -> int:
    """Milliseconds since 1970, in UTC unless the text says otherwise."""
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return int((time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp() * 1000)


# Records

_PATTERN = "rrrrprrcrrrvrrrrprrrrvrr"
"""The streams of as many records in a row: r, p and v; c is a canary event of recentchange."""

_STREAM_OF_LETTER = {"r": _STREAMS[0], "c": _STREAMS[0], "p": _STREAMS[1], "v": _STREAMS[2]}
_CYCLE = [_STREAM_OF_LETTER[letter] for letter in _PATTERN]
_START_OFFSETS = {stream: 1_000_000 * number for number, stream in enumerate(_STREAMS, 1)}
_COMMENTS = ("typo", "source added", "Überarbeitung", "誤字")
_TYPES = ("edit", "edit", "edit", "new", "log", "categorize")


def _stream_of(n: int) -> str:
    return _CYCLE[n % len(_CYCLE)]


def first_offset(stream: str, n: int) -> int:
    """The offset in a stream of its first record from record n on.

    >>> [first_offset("page-create", n) for n in (0, 4, 5, 24, 29)]
    [2000000, 2000000, 2000001, 2000002, 2000003]
    """
    cycles, rest = divmod(n, len(_CYCLE))
    return _START_OFFSETS[stream] + cycles * _CYCLE.count(stream) + _CYCLE[:rest].count(stream)


def _change(seed: int, n: int, stamp: int) -> dict[str, Any]:
    """Record n. A canary event has made-up fields and the `meta.domain` canary."""
    dice = random.Random(f"{seed}/{n}")  # noqa: S311
    stream = _stream_of(n)
    domain, wiki = dice.choice(WIKIS)
    is_canary = _PATTERN[n % len(_PATTERN)] == "c"
    title = f"{dice.choice(TOPICS)[1]} ({dice.choice(TITLES)})"
    meta = {
        "uri": f"https://{domain}/wiki/{quote(title.replace(' ', '_'))}",
        "request_id": str(uuid.UUID(int=dice.getrandbits(128), version=4)),
        "id": str(uuid.UUID(int=dice.getrandbits(128), version=4)),
        "domain": "canary" if is_canary else domain,
        "stream": f"mediawiki.{stream}",
        "dt": _format_time(stamp, "milliseconds"),
        "topic": f"{_ACTIVE}{stream}",
        "partition": 0,
        "offset": first_offset(stream, n),
    }
    fields = _recent_change if stream == "recentchange" else _revision
    return {"$schema": f"/mediawiki/{stream}/1.0.0", "meta": meta, **fields(dice, wiki, title, stamp)}


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
        "rev_timestamp": _format_time(stamp, "seconds"),
        "performer": {"user_text": dice.choice(LAST_NAMES), "user_is_bot": dice.random() < 0.4},
    }


def _format_time(stamp: int, precision: str) -> str:
    time = datetime.fromtimestamp(stamp / 1000, timezone.utc)
    return time.isoformat(timespec=precision).replace("+00:00", "Z")
