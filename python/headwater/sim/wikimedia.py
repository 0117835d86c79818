"""Wikimedia's EventStreams: Server-Sent Events whose ids say where each topic stands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, ClassVar, Literal

from headwater.sim.faults import STREAMS, Fault, change, offset_of, stream_of
from headwater.sim.server import RefusedError, Reply, Request, Sim

__all__ = ["WikimediaSim"]

_ACTIVE, _STANDBY = "eqiad.mediawiki.", "codfw.mediawiki."


class WikimediaSim(Sim):
    """`GET /v2/stream/{streams}`, from now on, from `since` on, or after `Last-Event-ID`.

    An id is a JSON array with an entry for each topic: with `ids="offset"` the offset to go on at, so that a
    reader loses nothing; with `ids="timestamp"` the millisecond to go on at, as the public service does it:
    then events of one millisecond share their id, and who goes on after the first of them misses the others.
    The topics of the data centre that stands by have no events, and an offset of -1.

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
        streams = _streams(request.path)
        first = dict.fromkeys(streams, self._first(request))
        if "last-event-id" in request.headers:
            first |= self._after(request.headers["last-event-id"])

        def encode(n: int) -> bytes:
            is_wanted = stream_of(n) in streams and n >= first[stream_of(n)]
            return self._event(n, streams) if is_wanted else b""

        return Reply(
            content_type="text/event-stream; charset=utf-8",
            start=min(first[stream] for stream in streams),
            encode=encode,
            bad=b'event: message\ndata: {"$schema":"/mediawiki/recentchange/1.0.0","meta":\n\n',
            greeting=b":ok\n\n",
            keep_alive=b":\n\n",
        )

    def record(self, n: int) -> dict[str, Any]:
        """Record n, which is the data of its event: the same for the same seed, but for its time."""
        return change(self.seed, n, self.timeline.stamp(n), _ACTIVE)

    def _event(self, n: int, streams: Sequence[str]) -> bytes:
        data = json.dumps(self.record(n), ensure_ascii=False, separators=(",", ":"))
        id = json.dumps(list(self._id(n, streams)), separators=(",", ":"))
        return f"event: message\nid: {id}\ndata: {data}\n\n".encode()

    def _id(self, n: int, streams: Sequence[str]) -> Iterator[dict[str, Any]]:
        for stream in streams:
            if self._ids == "offset":
                at = {"offset": offset_of(stream, n + 1)}
            else:
                at = {"timestamp": self.timeline.stamp(n) + 1}
            yield {"topic": _ACTIVE + stream, "partition": 0, **at}
            yield {"topic": _STANDBY + stream, "partition": 0, "offset": -1}

    def _first(self, request: Request) -> int:
        since = request.query.get("since")
        if since is None:
            return self.timeline.live
        try:
            moment = int(since) if since.isdigit() else _milliseconds(since)
        except ValueError:
            raise RefusedError(
                400, f"since is '{since}', it must be a time in ISO 8601 or in milliseconds"
            ) from None
        return self.timeline.first_from(moment)

    def _after(self, last_event_id: str) -> dict[str, int]:
        """For each stream the record to begin with."""
        try:
            entries = json.loads(last_event_id)
            return {
                entry["topic"].removeprefix(_ACTIVE): self._entry(entry)
                for entry in entries
                if entry["topic"].startswith(_ACTIVE)
            }
        except (ValueError, TypeError, KeyError, AttributeError):
            raise RefusedError(400, "Last-Event-ID is no JSON array of topic, partition and offset") from None

    def _entry(self, entry: dict[str, Any]) -> int:
        if "timestamp" in entry:
            return self.timeline.first_from(int(entry["timestamp"]))
        if entry["offset"] == -1:
            return self.timeline.live
        stream, offset, n = entry["topic"].removeprefix(_ACTIVE), int(entry["offset"]), 0
        step = 1 << 40
        while step:  # the offset only grows: by halves to the last n below which there are fewer
            n += step if offset_of(stream, n + step) < offset else 0
            step >>= 1
        return n + 1 if offset > offset_of(stream, 0) else 0


def _streams(path: str) -> list[str]:
    before, _, names = path.rpartition("/")
    streams = list(dict.fromkeys(name.removeprefix("mediawiki.") for name in names.split(",")))
    unknown = [name for name in streams if name not in STREAMS]
    if before != "/v2/stream" or unknown:
        raise RefusedError(
            404, f"there is no stream at {path}; there are /v2/stream/ and some of {','.join(STREAMS)}"
        )
    return streams


def _milliseconds(text: str) -> int:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return int((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp() * 1000)
