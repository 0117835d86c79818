"""Server-sent events: from bytes to columns, with ids that detect repeats and gaps. No I/O."""

from __future__ import annotations

import codecs
import hashlib
import json
import logging
import re
from array import array
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate, compress
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from sseclient import SSEClient

__all__ = ["IDS", "EventIds", "EventStream", "Events", "TimestampIds", "id_in", "parse_uniform"]

_FIELDS = {b"data", b"event", b"id"}
_MESSAGE = pa.scalar("message", pa.string())
_FAR = 2**31 - 1  # behind the end of any value


@dataclass(frozen=True)
class Events:
    """Events with data, as columns: of Arrow, or lists where each value will be looked at.

    `own` says which have an id of their own, and not that before them.

    >>> events = Events.of([b"one", b"two"], ["message"] * 2, ["7", None], [True, False])
    >>> events.chosen([False, True]).records
    [b'two']
    """

    data: pa.StringArray
    event: pa.StringArray
    id: list[str | None]
    own: list[bool]

    @classmethod
    def of(cls, data: list[bytes], event: list[str], id: list[str | None], own: list[bool]) -> Events:
        return cls(pa.array(data, pa.binary()).cast(pa.string()), pa.array(event, pa.string()), id, own)

    @property
    def records(self) -> list[bytes]:
        """The data, each by itself."""
        found: list[bytes] = self.data.view(pa.binary()).to_pylist()
        return found

    @property
    def longest(self) -> int:
        """How many bytes of data one of them has."""
        return pc.max(pc.binary_length(self.data)).as_py() or 0

    def chosen(self, wanted: list[bool]) -> Events:
        if all(wanted):
            return self
        mask = pa.array(wanted, pa.bool_())
        id, own = compress(self.id, wanted), compress(self.own, wanted)
        return Events(self.data.filter(mask), self.event.filter(mask), list(id), list(own))


def parse_uniform(block: bytes, last_id: str | None) -> Events | None:
    """Events that have the same fields in the same order, at most one line each; None: they have not.

    The block is in UTF-8. `last_id` is what those without an id have.
    """
    names = [line.partition(b":")[0] for line in block[: block.find(b"\n\n")].split(b"\n")]
    if b"data" not in names or len({*names} & _FIELDS) < len(names):
        return None
    step = len(names) + 1
    lines = list(BytesIO(block))  # several times as fast as split
    if len(lines) % step or {*lines[step - 1 :: step]} != {b"\n"}:
        return None
    columns = {name: lines[place::step] for place, name in enumerate(names)}
    count = len(columns[b"data"])
    data = _values(columns[b"data"], b"data")
    kinds = _values(columns[b"event"], b"event") if b"event" in names else pa.repeat(_MESSAGE, count)
    ids = _ids(columns[b"id"]) if b"id" in names else [last_id] * count
    if data is None or kinds is None or ids is None:
        return None
    return Events(data, kinds, ids, [b"id" in names] * count)


def _values(lines: list[bytes], name: bytes) -> pa.StringArray | None:
    """What follows the name and a blank, or the name alone; None: the lines are not alike in that.

    A value is first looked at with what lies between it and the next one, which is the same for all.
    """
    begin = name + b": " if lines[0].startswith(name + b": ") else name + b":"
    joined = b"".join([*lines, begin])
    offsets = array("i", accumulate(map(len, lines), initial=len(begin)))
    with_next = pa.StringArray.from_buffers(len(lines), pa.py_buffer(offsets), pa.py_buffer(joined))
    between = b"\n" + begin
    if not joined.startswith(begin) or pc.ends_with(with_next, between).true_count < len(lines):
        return None
    values = pc.binary_replace_slice(with_next, -len(between), _FAR, b"")
    is_spaced = begin.endswith(b" ") or not pc.starts_with(values, b" ").true_count
    is_said = name == b"data" or begin + b"\n" not in lines  # an event without a name is a message
    return values if is_spaced and is_said else None


def _ids(lines: list[bytes]) -> list[str | None] | None:
    """The same for ids; None also if there is one that is ignored, or that takes the last one back."""
    joined = b"".join([b"\n", *lines])[:-1].decode()
    begin = "\nid: " if joined.startswith("\nid: ") else "\nid:"
    first, *values = joined.split(begin)
    is_spaced = begin.endswith(" ") or "\nid: " not in joined
    is_plain = not first and is_spaced and "" not in values and "\0" not in joined
    return [*values] if is_plain and len(values) == len(lines) else None


_IGNORED = re.compile(rb"^(?::.*|id:.*\0.*|retry(?!: ?[0-9]+$).*)\n", re.MULTILINE)  # comments first
_BLANK = re.compile(rb"\n{3,}")
_NONE = Events.of([], [], [], [])


class EventStream:
    """One connection's bytes. What follows the last blank line waits in here, and is forgotten with it.

    >>> stream = EventStream()
    >>> stream.feed(b"id: 7\\ndata: one\\r").records, stream.feed(b"\\ndata: two\\n\\ndata: half").records
    ([], [b'one\\ntwo'])
    >>> stream.last_id
    '7'
    """

    def __init__(self, last_id: str | None = None) -> None:
        self.last_id = last_id  # None also where an empty id has taken it back
        self.retry: float | None = None  # seconds: the last one that was said
        self._tail = bytearray()
        self._head: bytes | None = b""  # until it is known whether there is a byte order mark
        self._after_cr = False

    def feed(self, chunk: bytes) -> Events:
        """The events that these bytes complete."""
        text = self._plain(self._without_mark(chunk))
        end = text.rfind(b"\n\n") + 2
        if end < 2:
            end = int(text.startswith(b"\n") and (not self._tail or self._tail.endswith(b"\n")))
        if not end:
            self._tail += text
            return _NONE
        block = b"".join((self._tail, memoryview(text)[:end])) if self._tail else text[:end]
        self._tail = bytearray(text[end:])
        return self._parsed(block)

    @property
    def waiting(self) -> int:
        """How many bytes of an event have come."""
        return len(self._tail)

    def _without_mark(self, chunk: bytes) -> bytes:
        if self._head is None:
            return chunk
        chunk = self._head + chunk
        if len(chunk) < 3 and codecs.BOM_UTF8.startswith(chunk):
            self._head = chunk
            return b""
        self._head = None
        return chunk.removeprefix(codecs.BOM_UTF8)

    def _plain(self, chunk: bytes) -> bytes:
        """With LF for every line break. A CR ends its line at once, and an LF behind it counts no more."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" not in chunk:
            return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _parsed(self, block: bytes) -> Events:
        if not block.isascii():
            block = _in_utf8(block)
        if (events := self._alike(block)) is not None:
            return events
        block = _BLANK.sub(b"\n\n", _IGNORED.sub(b"", block)).lstrip(b"\n")
        return self._alike(block) or self._any(block)

    def _alike(self, block: bytes) -> Events | None:
        events = parse_uniform(block, self.last_id)
        if events is not None:
            self.last_id = events.id[-1]
        return events

    def _any(self, block: bytes) -> Events:
        """A line of data more for each event: sseclient-py says nothing of one without."""
        data, kinds, ids, own = [], [], [], []
        for event in SSEClient(iter([block.replace(b"\n\n", b"\ndata:\n\n")])).events():
            if event.retry:
                self.retry = int(event.retry[:9]) / 1000
            if event.id is not None:
                self.last_id = event.id or None
            if event.data:
                data.append(event.data[:-1].encode())
                kinds.append(event.event)
                ids.append(self.last_id)
                own.append(bool(event.id))
        return Events.of(data, kinds, ids, own)


def _in_utf8(block: bytes) -> bytes:
    try:
        block.decode()
    except UnicodeDecodeError:
        return block.decode("utf-8", "replace").encode()
    return block


_LOG = logging.getLogger("headwater.sources.sse")
_MOST_KEPT = 20_000
_MOST_BYTES = 32 << 20  # of data that is kept as it is
_Known = Events | tuple[int, ...]  # the events among which an id is, or hashes of its data: one or more


class EventIds(Protocol):
    """Made with the id to go on after, None if there is none."""

    def fresh(self, events: Events) -> Events:
        """Those that were not here before."""
        ...


class _Free:
    """Ids that mean nothing."""

    def __init__(self, last: str | None) -> None: ...

    def fresh(self, events: Events) -> Events:
        return events


class _Any:
    """An event with id and data of an earlier one is a repeat. The last 10,000 ids at least are known.

    To hash all data takes longer than to read it. So data is kept, if it is not too much, and hashed when one
    of its ids comes again.
    """

    def __init__(self, last: str | None) -> None:
        self._resumed_at = last  # a server may begin with the very event that it is to go on after
        self._newer: dict[str | None, _Known] = {}
        self._older: dict[str | None, _Known] = {}
        self._bytes = 0  # in the newer ones

    def fresh(self, events: Events) -> Events:
        if not any(events.own):
            return events
        if self._resumed_at is None and all(events.own):
            made: dict[str | None, _Known] = dict.fromkeys(events.id, events)
            are_new = self._newer.keys().isdisjoint(made) and self._older.keys().isdisjoint(made)
            if are_new and len(made) == len(events.id):
                self._keep(made, events)
                return events
        each = zip(events.id, events.own, map(hash, events.records), strict=True)
        return events.chosen([not own or self._is_new(id, found) for id, own, found in each])

    def _keep(self, made: dict[str | None, _Known], events: Events) -> None:
        self._bytes += events.data.nbytes + events.event.nbytes
        self._newer.update(made if self._bytes <= _MOST_BYTES // 2 else _hashes(events))
        self._forget()

    def _is_new(self, id: str | None, found: int) -> bool:
        if self._resumed_at == id:
            return False
        self._resumed_at = None
        known = self._hashes_of(id)
        if found in known:
            return False
        self._newer[id] = (*known, found)
        self._forget()
        return True

    def _hashes_of(self, id: str | None) -> tuple[int, ...]:
        place = self._newer if id in self._newer else self._older
        if isinstance(known := place.get(id, ()), Events):
            place.update(hashes := _hashes(known))
            return hashes[id]
        return known

    def _forget(self) -> None:
        if len(self._newer) >= _MOST_KEPT // 2:
            self._older, self._newer, self._bytes = self._newer, {}, 0


def _hashes(events: Events) -> dict[str | None, tuple[int, ...]]:
    return {id: (hash(data),) for id, data in zip(events.id, events.records, strict=True)}


class _Sequence:
    """Ids are whole numbers, each one more than the one before: less is a repeat, more is a gap."""

    def __init__(self, last: str | None) -> None:
        self._last = None if last is None else _number(last)

    def fresh(self, events: Events) -> Events:
        each = zip(events.id, events.own, strict=True)
        numbers = [_number(id) if own else None for id, own in each]
        last = self._last
        if numbers and last is not None and numbers == list(range(last + 1, last + 1 + len(numbers))):
            self._last = numbers[-1]
            return events
        return events.chosen([number is None or self._is_new(number) for number in numbers])

    def _is_new(self, number: int) -> bool:
        last = self._last
        if last is not None and number <= last:
            _LOG.info("event %d is dropped: %d was here already", number, last)
            return False
        if last is not None and number > last + 1:
            _LOG.warning("events %d to %d are missing: %d follows %d", last + 1, number - 1, number, last)
        self._last = number
        return True


def _number(id: str | None) -> int:
    if id is None or not (id.isascii() and id.isdigit()):
        raise ValueError(f"the id of an event is {id!r}; with ids=sequence it must be a whole number")
    return int(id)


IDS: dict[str, type[_Any] | type[_Sequence] | type[_Free]] = {
    "any": _Any,
    "sequence": _Sequence,
    "free": _Free,
}


class TimestampIds:
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
