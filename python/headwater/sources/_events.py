"""Server-sent events out of bytes, as the HTML standard has it. No I/O.

sseclient-py reads the fields. Here is what it leaves out: line breaks of all kinds, a byte order mark, ids
and `retry` of events without data, ids that are ignored, half an event at the end. Events that look alike, as
a busy server sends them, are taken apart column by column, several times as fast.
"""

from __future__ import annotations

import codecs
import re

from sseclient import SSEClient

from headwater.sources._event_columns import Events, alike

__all__ = ["EventStream", "Events"]

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
        events = alike(block, self.last_id)
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
