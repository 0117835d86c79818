"""Server-sent events: bytes → columns, and which events are repeats. No I/O.

`EventStream` parses the bytes of one connection. After a reconnect a server may send some events again, so
the parsed events pass a repeat filter (`REPEAT_FILTERS`, chosen by the option `ids`) and `TimestampIds`.
"""

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
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sseclient import SSEClient

__all__ = ["REPEAT_FILTERS", "EventStream", "Events", "TimestampIds", "cursor_id", "parse_uniform"]

_LOG = logging.getLogger("headwater.sources.sse")


@dataclass(frozen=True)
class Events:
    """Events with data, as columns.

    `has_id` says which events carry an id themselves; the others have the last id before them.

    >>> events = Events.from_lists([b"one", b"two"], ["message"] * 2, ["7", None], [True, False])
    >>> events.filter([False, True]).records
    [b'two']
    """

    data: pa.StringArray
    event: pa.StringArray
    id: list[str | None]
    has_id: list[bool]

    @classmethod
    def from_lists(
        cls, data: list[bytes], event: list[str], id: list[str | None], has_id: list[bool]
    ) -> Events:
        return cls(pa.array(data, pa.binary()).cast(pa.string()), pa.array(event, pa.string()), id, has_id)

    @property
    def records(self) -> list[bytes]:
        """The data of each event."""
        records: list[bytes] = self.data.view(pa.binary()).to_pylist()
        return records

    @property
    def longest(self) -> int:
        """The size of the largest event's data, in bytes."""
        return pc.max(pc.binary_length(self.data)).as_py() or 0

    @property
    def longest_id(self) -> str | None:
        """The longest id that an event carries itself."""
        return max(compress(self.id, self.has_id), key=lambda id: len(id or ""), default=None)

    def filter(self, mask: list[bool]) -> Events:
        if all(mask):
            return self
        array = pa.array(mask, pa.bool_())
        ids, has_id = compress(self.id, mask), compress(self.has_id, mask)
        return Events(self.data.filter(array), self.event.filter(array), list(ids), list(has_id))


# Bytes → events

_IGNORED = re.compile(rb"^(?::.*|id:.*\0.*|retry(?!: ?[0-9]+$).*)\n", re.MULTILINE)  # comments and bad fields
_BLANK_LINES = re.compile(rb"\n{3,}")
_NO_EVENTS = Events.from_lists([], [], [], [])


class EventStream:
    """Parses the bytes of one connection. The beginning of an event is buffered until its blank line arrives.

    >>> stream = EventStream()
    >>> stream.feed(b"id: 7\\ndata: one\\r").records, stream.feed(b"\\ndata: two\\n\\ndata: half").records
    ([], [b'one\\ntwo'])
    >>> stream.last_id
    '7'
    """

    def __init__(self, last_id: str | None = None) -> None:
        self.last_id = last_id  # None also after an empty id, which resets it
        self.retry: float | None = None  # seconds, as last set by the server
        self._buffer = bytearray()
        self._first_bytes: bytes | None = b""  # until it is known whether there is a byte order mark
        self._after_cr = False

    @property
    def buffered_bytes(self) -> int:
        """The size of the event whose end has not arrived."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> Events:
        """The events that these bytes complete."""
        text = self._normalize_line_breaks(self._strip_byte_order_mark(chunk))
        end = text.rfind(b"\n\n") + 2
        if end < 2:
            end = int(text.startswith(b"\n") and (not self._buffer or self._buffer.endswith(b"\n")))
        if not end:
            self._buffer += text
            return _NO_EVENTS
        block = b"".join((self._buffer, memoryview(text)[:end])) if self._buffer else text[:end]
        self._buffer = bytearray(text[end:])
        return self._parse(block)

    def _strip_byte_order_mark(self, chunk: bytes) -> bytes:
        if self._first_bytes is None:
            return chunk
        chunk = self._first_bytes + chunk
        if len(chunk) < 3 and codecs.BOM_UTF8.startswith(chunk):
            self._first_bytes = chunk
            return b""
        self._first_bytes = None
        return chunk.removeprefix(codecs.BOM_UTF8)

    def _normalize_line_breaks(self, chunk: bytes) -> bytes:
        """Replaces CR and CRLF by LF. A CR ends its line at once; an LF that arrives after it is dropped."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" not in chunk:
            return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _parse(self, block: bytes) -> Events:
        if not block.isascii():
            block = _replace_invalid_utf8(block)
        if (events := self._parse_uniform(block)) is not None:
            return events
        block = _BLANK_LINES.sub(b"\n\n", _IGNORED.sub(b"", block)).lstrip(b"\n")
        return self._parse_uniform(block) or self._parse_any(block)

    def _parse_uniform(self, block: bytes) -> Events | None:
        events = parse_uniform(block, self.last_id)
        if events is not None:
            self.last_id = events.id[-1]
        return events

    def _parse_any(self, block: bytes) -> Events:
        """Adds an empty line of data to each event: sseclient-py skips events without data, and their ids."""
        data, kinds, ids, has_id = [], [], [], []
        block = b"\n\n".join(map(_fold, block.split(b"\n\n")))
        # As Latin-1, every byte is a character, also the one that stands for folded line breaks.
        client = SSEClient(iter([block.replace(b"\n\n", b"\ndata:\n\n")]), char_enc="latin-1")
        for event in client.events():
            if event.retry:
                self.retry = int(event.retry[:9]) / 1000
            if event.id is not None:
                self.last_id = _decode(event.id) or None
            if event.data:
                data.append(event.data[:-1].encode("latin-1").replace(_FOLDED, b"\n"))
                kinds.append(_decode(event.event))
                ids.append(self.last_id)
                has_id.append(bool(event.id))
        return Events.from_lists(data, kinds, ids, has_id)


_MAX_LINES = 50
_FOLDED = b"\xff"  # not a byte of UTF-8


def _fold(event: bytes) -> bytes:
    """The same event in few lines: sseclient-py needs quadratic time for the lines of an event.

    Lines of data become one, and of the other fields only the last one counts.

    >>> _fold(b"data: a\\nid: 1\\n" * 50 + b"data: b").count(b"\\n")
    1
    """
    if event.count(b"\n") < _MAX_LINES:
        return event
    values: list[bytes] = []
    fields: dict[bytes, bytes] = {}
    for line in event.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            values.append(value.removeprefix(b" "))
        elif name in (b"event", b"id", b"retry"):
            fields[name] = line
    return b"\n".join([*fields.values(), *([b"data: " + _FOLDED.join(values)] if values else [])])


def _decode(latin: str) -> str:
    return latin.encode("latin-1").decode()


def _replace_invalid_utf8(block: bytes) -> bytes:
    try:
        block.decode()
    except UnicodeDecodeError:
        return block.decode("utf-8", "replace").encode()
    return block


# Uniform events, column by column: what a busy server sends

_UNIFORM_FIELDS = {b"data", b"event", b"id"}
_MESSAGE = pa.scalar("message", pa.string())
_TO_END = 2**31 - 1


def parse_uniform(block: bytes, last_id: str | None) -> Events | None:
    """Parses events that all have the same fields in the same order, one line each; None if they do not.

    The block is UTF-8. Events without an id get `last_id`.
    """
    names = [line.partition(b":")[0] for line in block[: block.find(b"\n\n")].split(b"\n")]
    if b"data" not in names or len({*names} & _UNIFORM_FIELDS) < len(names):
        return None
    step = len(names) + 1
    lines = list(BytesIO(block))  # several times as fast as split
    if len(lines) % step or {*lines[step - 1 :: step]} != {b"\n"}:
        return None
    columns = {name: lines[index::step] for index, name in enumerate(names)}
    count = len(columns[b"data"])
    data = _parse_values(columns[b"data"], b"data")
    kinds = _parse_values(columns[b"event"], b"event") if b"event" in names else pa.repeat(_MESSAGE, count)
    ids = _parse_ids(columns[b"id"]) if b"id" in names else [last_id] * count
    if data is None or kinds is None or ids is None:
        return None
    return Events(data, kinds, ids, [b"id" in names] * count)


def _parse_values(lines: list[bytes], name: bytes) -> pa.StringArray | None:
    """What follows `name: ` or `name:` in each line; None if the lines do not begin alike.

    The Arrow array first contains each value together with the beginning of the next line. That suffix is the
    same for all values, so that one call can check it and another cut it off.
    """
    prefix = name + b": " if lines[0].startswith(name + b": ") else name + b":"
    joined = b"".join([*lines, prefix])
    offsets = array("i", accumulate(map(len, lines), initial=len(prefix)))
    with_suffix = pa.StringArray.from_buffers(len(lines), pa.py_buffer(offsets), pa.py_buffer(joined))
    suffix = b"\n" + prefix
    if not joined.startswith(prefix) or pc.ends_with(with_suffix, suffix).true_count < len(lines):
        return None
    values = pc.binary_replace_slice(with_suffix, -len(suffix), _TO_END, b"")
    if not prefix.endswith(b" ") and pc.starts_with(values, b" ").true_count:
        return None
    if name == b"event" and prefix + b"\n" in lines:  # an event without a name is a "message"
        return None
    return values


def _parse_ids(lines: list[bytes]) -> list[str | None] | None:
    """The same for ids; None also if an id must be ignored, or resets the last one."""
    joined = b"".join([b"\n", *lines])[:-1].decode()
    prefix = "\nid: " if joined.startswith("\nid: ") else "\nid:"
    before, *values = joined.split(prefix)
    if before or len(values) != len(lines) or "" in values or "\0" in joined:
        return None
    if not prefix.endswith(" ") and "\nid: " in joined:
        return None
    return [*values]


# Repeats. Each filter is created with the id to resume after, or None.

_MAX_KEPT_EVENTS = 20_000
_MAX_KEPT_BYTES = 32 << 20
_MAX_DIGITS = 100


class AnyIds:
    """Drops events with the id and the data of an earlier one. Remembers the last 10,000 events with ids.

    Hashing all data takes longer than reading it. So the data itself is kept, up to a limit, and hashed only
    when one of its ids comes again.
    """

    def __init__(self, last_id: str | None) -> None:
        self._resumed_at = last_id  # a server may begin with the event that it should resume after
        self._newer: dict[str | None, Events | set[int]] = {}  # by id: its events, or hashes of its data
        self._older: dict[str | None, Events | set[int]] = {}
        self._newer_events = self._newer_bytes = 0

    def drop_repeats(self, events: Events) -> Events:
        if not any(events.has_id):
            return events
        if self._resumed_at is None and all(events.has_id):
            by_id: dict[str | None, Events | set[int]] = dict.fromkeys(events.id, events)
            are_new = self._newer.keys().isdisjoint(by_id) and self._older.keys().isdisjoint(by_id)
            if are_new and len(by_id) == len(events.id):
                self._newer_bytes += events.data.nbytes + events.event.nbytes
                self._newer.update(by_id if self._newer_bytes <= _MAX_KEPT_BYTES // 2 else _hashes(events))
                self._forget_oldest(len(by_id))
                return events
        each = zip(events.id, events.has_id, map(hash, events.records), strict=True)
        return events.filter([not has_id or self._is_new(id, hash_) for id, has_id, hash_ in each])

    def _is_new(self, id: str | None, hash_: int) -> bool:
        if self._resumed_at == id:
            return False
        self._resumed_at = None
        known = self._known_hashes(id)
        if hash_ in known:
            return False
        known.add(hash_)
        self._newer[id] = known
        self._forget_oldest(1)
        return True

    def _known_hashes(self, id: str | None) -> set[int]:
        memory = self._newer if id in self._newer else self._older
        known = memory.get(id)
        if isinstance(known, Events):
            memory.update(_hashes(known))
            known = memory[id]
        return known if isinstance(known, set) else set()

    def _forget_oldest(self, added: int) -> None:
        self._newer_events += added
        if self._newer_events >= _MAX_KEPT_EVENTS // 2:
            self._older, self._newer, self._newer_events, self._newer_bytes = self._newer, {}, 0, 0


def _hashes(events: Events) -> dict[str | None, set[int]]:
    return {id: {hash(data)} for id, data in zip(events.id, events.records, strict=True)}


class SequenceIds:
    """Ids are consecutive integers. Drops events with an id that is not new, and logs gaps."""

    def __init__(self, last_id: str | None) -> None:
        self._last = None if last_id is None else _parse_number(last_id)

    def drop_repeats(self, events: Events) -> Events:
        each = zip(events.id, events.has_id, strict=True)
        numbers = [_parse_number(id) if has_id else None for id, has_id in each]
        last = self._last
        if numbers and last is not None and numbers == list(range(last + 1, last + 1 + len(numbers))):
            self._last = numbers[-1]
            return events
        return events.filter([number is None or self._is_new(number) for number in numbers])

    def _is_new(self, number: int) -> bool:
        last = self._last
        if last is not None and number <= last:
            _LOG.info("event %d is dropped: event %d has already arrived", number, last)
            return False
        if last is not None and number > last + 1:
            _LOG.warning("events %d to %d are missing: %d follows %d", last + 1, number - 1, number, last)
        self._last = number
        return True


def _parse_number(id: str | None) -> int:
    if id is None or not (id.isascii() and id.isdigit()) or len(id) > _MAX_DIGITS:
        excerpt = None if id is None else id[:_MAX_DIGITS]
        raise ValueError(f"the id of an event is {excerpt!r}; with ids=sequence it must be an integer")
    return int(id)


class FreeIds:
    """Ids mean nothing: no event is a repeat."""

    def __init__(self, last_id: str | None) -> None: ...

    def drop_repeats(self, events: Events) -> Events:
        return events


REPEAT_FILTERS: dict[str, type[AnyIds] | type[SequenceIds] | type[FreeIds]] = {
    "any": AnyIds,
    "sequence": SequenceIds,
    "free": FreeIds,
}


_MAX_SEEN = 1000


class TimestampIds:
    """Makes ids that contain timestamps, as Wikimedia's do, safe to resume after. Other ids pass unchanged.

    Events of the same millisecond share such an id, and a server that resumes after it leaves out those that
    were not yet sent. So the server is asked for the millisecond before, and the events of the last one that
    have arrived, remembered by hash and part of the cursor, are dropped. So that cursors stay small, at most
    1,000 events are remembered; of a millisecond with more, some would be repeated.

    >>> ids = TimestampIds(None)
    >>> id = '[{"topic":"a","partition":0,"timestamp":71}]'
    >>> ids.drop_repeats(Events.from_lists([b"one"], ["message"], [id], [True])).records
    [b'one']
    >>> ids.rewind(id)
    '[{"topic":"a","partition":0,"timestamp":70}]'
    >>> again = Events.from_lists([b"one", b"two"], ["message"] * 2, [id] * 2, [True] * 2)
    >>> TimestampIds(ids.cursor(id)).drop_repeats(again).records
    [b'two']
    """

    def __init__(self, since: Any) -> None:
        self._times = _parse_times(cursor_id(since))  # by topic
        seen = since["seen"] if _has_seen(since) else {}
        self._seen = {topic: dict.fromkeys(hashes) for topic, hashes in seen.items()}  # by topic, in order
        self._last_topics: list[str] = []  # those of the last event

    @property
    def are_known(self) -> bool:
        """Whether it is known which events of the last millisecond have arrived."""
        return bool(self._seen)

    def drop_repeats(self, events: Events) -> Events:
        if not events.id or not _parse_times(events.id[-1]):
            return events
        each = zip(events.id, events.records, strict=True)
        return events.filter([self._is_new(_parse_times(id), data) for id, data in each])

    def cursor(self, id: str | None) -> Any:
        """The cursor to save after the event with this id."""
        if not self._seen or not _parse_times(id):
            return id
        return {"id": id, "seen": {topic: list(hashes) for topic, hashes in self._seen.items()}}

    def rewind(self, id: str) -> str:
        """The id to send, so that the server resumes after this one and leaves nothing out."""
        if not self._seen or not _parse_times(id):
            return id
        entries = json.loads(id)
        for entry in entries:
            if _has_time(entry):
                entry["timestamp"] -= 1
        return json.dumps(entries, separators=(",", ":"))

    def _is_new(self, times: dict[str, int], data: bytes) -> bool:
        digest = hashlib.blake2b(data, digest_size=8).hexdigest()
        if any(digest in self._seen.get(topic, ()) for topic in times):
            return False
        later = [topic for topic, time in times.items() if time > self._times.get(topic, -1)]
        for topic in later:
            self._seen[topic] = {}
        # Without a later time the event has the id of the one before, and so belongs to the same topics.
        self._last_topics = later or self._last_topics or list(times)
        for topic in self._last_topics:
            seen = self._seen.setdefault(topic, {})
            seen[digest] = None
            if len(seen) > max(1, _MAX_SEEN // len(self._seen)):
                del seen[next(iter(seen))]
        self._times |= {topic: times[topic] for topic in later}
        for topic in self._times.keys() - times.keys():  # a server would not resume these with this id
            del self._times[topic]
            self._seen.pop(topic, None)
        return True


def cursor_id(since: Any) -> str | None:
    """The id in a cursor, which a user may also have written by hand, as JSON."""
    if _has_seen(since):
        since = since["id"]
    return since if since is None or isinstance(since, str) else json.dumps(since, separators=(",", ":"))


def _has_seen(since: Any) -> bool:
    return isinstance(since, dict) and since.keys() == {"id", "seen"}


def _parse_times(id: str | None) -> dict[str, int]:
    """The timestamps in an id, by topic and partition; empty for other ids."""
    if id is None or not id.startswith("[{"):
        return {}
    try:
        return {
            f"{entry['topic']}/{entry['partition']}": entry["timestamp"]
            for entry in json.loads(id)
            if _has_time(entry)
        }
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def _has_time(entry: Any) -> bool:
    return (
        isinstance(entry, dict) and type(entry.get("timestamp")) is int and 0 < entry["timestamp"] < 1 << 63
    )
