"""Ids that are times, as those of Wikimedia's EventStreams. No I/O.

Such an id is a JSON array with a `timestamp`, in milliseconds, for each topic. Several events share one, and
a server that is to go on after it leaves out those that it had not sent yet. So it is asked to go on one
millisecond earlier, and the events of that millisecond that have come are known, in the cursor too.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from headwater.sources._event_columns import Events

__all__ = ["Moments", "id_in"]


class Moments:
    """What has come of the last millisecond of each topic. Other ids pass, and cost nothing.

    >>> moments = Moments(None)
    >>> id = '[{"topic":"a","partition":0,"timestamp":71}]'
    >>> moments.fresh(Events.of([b"one"], ["message"], [id], [True])).records
    [b'one']
    >>> moments.rewound(id)
    '[{"topic":"a","partition":0,"timestamp":70}]'
    >>> again = Events.of([b"one", b"two"], ["message"] * 2, [id] * 2, [True] * 2)
    >>> Moments(moments.cursor(id)).fresh(again).records
    [b'two']
    """

    def __init__(self, since: Any) -> None:
        self._times = _times(id_in(since))
        self._seen: dict[str, list[str]] = dict(since["seen"]) if _has_moments(since) else {}
        self._own: list[str] = []  # the topics of the last event

    @property
    def are_known(self) -> bool:
        """It is known which events have come of the last time."""
        return bool(self._seen)

    def fresh(self, events: Events) -> Events:
        """Those that had not come before."""
        if not events.id or not _times(events.id[-1]):
            return events
        each = zip(events.id, events.records, strict=True)
        return events.chosen([self._is_new(_times(id), data) for id, data in each])

    def cursor(self, id: str | None) -> Any:
        return {"id": id, "seen": self._seen} if self._seen and _times(id) else id

    def rewound(self, id: str) -> str:
        """What to ask the server for, so that it goes on after this id and leaves nothing out."""
        if not self._seen or not _times(id):
            return id
        entries = json.loads(id)
        for entry in entries:
            if _is_time(entry):
                entry["timestamp"] -= 1
        return json.dumps(entries, separators=(",", ":"))

    def _is_new(self, times: dict[str, int], data: bytes) -> bool:
        digest = hashlib.blake2b(data, digest_size=8).hexdigest()
        if any(digest in self._seen.get(topic, ()) for topic in times):
            return False
        later = [topic for topic, time in times.items() if time > self._times.get(topic, -1)]
        for topic in later:
            self._seen[topic] = []
        self._own = later or self._own or list(times)  # the same times again: as the event before
        for topic in self._own:
            self._seen.setdefault(topic, []).append(digest)
        self._times |= {topic: times[topic] for topic in later}
        return True


def id_in(since: Any) -> str | None:
    """The id of a cursor, which may also have been written by hand, as JSON."""
    if _has_moments(since):
        since = since["id"]
    return since if since is None or isinstance(since, str) else json.dumps(since, separators=(",", ":"))


def _has_moments(since: Any) -> bool:
    return isinstance(since, dict) and since.keys() == {"id", "seen"}


def _times(id: str | None) -> dict[str, int]:
    """By topic and partition; nothing for ids of another kind."""
    if id is None or not id.startswith("[{"):
        return {}
    try:
        entries = json.loads(id)
        return {
            f"{each['topic']}/{each['partition']}": each["timestamp"] for each in entries if _is_time(each)
        }
    except (ValueError, TypeError, KeyError):
        return {}


def _is_time(entry: Any) -> bool:
    return isinstance(entry, dict) and type(entry.get("timestamp")) is int and entry["timestamp"] > 0
