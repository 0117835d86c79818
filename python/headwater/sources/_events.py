"""Server-sent events out of bytes, as the HTML standard has it. No I/O.

sseclient-py reads the fields. Here is what it leaves out: line breaks of all kinds, a byte order mark, ids
and `retry` of events without data, ids that are ignored, half an event at the end. Events that look alike, as
a busy server sends them, are taken apart column by column, several times as fast.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field
from itertools import compress

from sseclient import SSEClient

__all__ = ["EventStream", "Events"]

_IGNORED = re.compile(rb"^(?::.*|id:.*\0.*|retry(?!: ?[0-9]+$).*)\n", re.MULTILINE)  # comments first
_BLANK = re.compile(rb"\n{3,}")
_FIELDS = {b"data", b"event", b"id"}


@dataclass
class Events:
    """Events with data, as columns. `own`: which have an id of their own, and not that before them."""

    data: list[bytes] = field(default_factory=list)
    event: list[str] = field(default_factory=list)
    id: list[str | None] = field(default_factory=list)
    own: list[bool] = field(default_factory=list)

    def chosen(self, wanted: list[bool]) -> Events:
        if all(wanted):
            return self
        data, event, id = compress(self.data, wanted), compress(self.event, wanted), compress(self.id, wanted)
        return Events(list(data), list(event), list(id), list(compress(self.own, wanted)))


class EventStream:
    """One connection's bytes. What follows the last blank line waits in here, and is forgotten with it.

    >>> stream = EventStream()
    >>> stream.feed(b"id: 7\\ndata: one\\r"), stream.feed(b"\\ndata: two\\n\\ndata: half").data
    (Events(data=[], event=[], id=[], own=[]), [b'one\\ntwo'])
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
            return Events()
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
        """Events that have the same fields in the same order, at most one line each; None: they have not."""
        names = [line.partition(b":")[0] for line in block[: block.find(b"\n\n")].split(b"\n")]
        if b"data" not in names or b"\0" in block or len({*names} & _FIELDS) < len(names):
            return None
        step = len(names) + 1
        lines = block.split(b"\n")
        del lines[-1]
        if len(lines) % step or any(lines[step - 1 :: step]):
            return None
        columns = {name: lines[place::step] for place, name in enumerate(names)}
        data = _values(columns[b"data"], b"data")
        kinds = _texts(columns[b"event"], "event") if b"event" in names else ["message"] * len(data)
        ids: list[str | None] = (
            [*_texts(columns[b"id"], "id")] if b"id" in names else [self.last_id] * len(data)
        )
        if not (len(lines) == len(data) * step == len(kinds) * step == len(ids) * step):
            return None
        self.last_id = ids[-1]
        return Events(data, kinds, ids, [b"id" in names] * len(data))

    def _any(self, block: bytes) -> Events:
        """A line of data more for each event: sseclient-py says nothing of one without."""
        found = Events()
        for event in SSEClient(iter([block.replace(b"\n\n", b"\ndata:\n\n")])).events():
            if event.retry:
                self.retry = int(event.retry[:9]) / 1000
            if event.id is not None:
                self.last_id = event.id or None
            if event.data:
                found.data.append(event.data[:-1].encode())
                found.event.append(event.event)
                found.id.append(self.last_id)
                found.own.append(bool(event.id))
        return found


def _values(lines: list[bytes], name: bytes) -> list[bytes]:
    """What follows the name and a blank, or the name alone; nothing if the lines are not alike in that."""
    begin = name + b": " if lines[0].startswith(name + b": ") else name + b":"
    values = [line.removeprefix(begin) for line in lines]
    are_shorter = sum(map(len, lines)) - sum(map(len, values)) == len(lines) * len(begin)
    is_spaced = begin.endswith(b" ") or not any(value.startswith(b" ") for value in values)
    return values if are_shorter and is_spaced else []


def _texts(lines: list[bytes], name: str) -> list[str]:
    """The same as text, all at once, which is faster where they are short; nothing if one is empty."""
    joined = b"\n".join([b"", *lines]).decode()
    begin = f"\n{name}: " if joined.startswith(f"\n{name}: ") else f"\n{name}:"
    first, *values = joined.split(begin)
    is_spaced = begin.endswith(" ") or not any(value.startswith(" ") for value in values)
    return values if not first and is_spaced and "" not in values else []


def _in_utf8(block: bytes) -> bytes:
    try:
        block.decode()
    except UnicodeDecodeError:
        return block.decode("utf-8", "replace").encode()
    return block
