"""One answer, as long as it lasts."""

from __future__ import annotations

import selectors
from collections.abc import Iterator, Mapping
from typing import Any

import requests

from headwater.http._body import Chunked, Counted, Unframed, unpacked
from headwater.http._errors import BrokenError, HttpError, sorted_out

__all__ = ["Connection"]

_MOST = 1 << 21  # bytes at a time: in smaller pieces the calls cost more than the bytes


class Connection:
    """An answer and its body. A body that breaks off just ends: `complete` tells, once it is over.

    `Http.connections` makes them. `status`, `url` and `headers`, with names in lower case, are those of the
    answer; `received` tells whether any byte of the body has come, and `failure` why it broke off.

    >>> from headwater.http import Http
    >>> from headwater.sim import RsvpSim
    >>> with RsvpSim(seed=1, rate=0, count=1) as sim:
    ...     answers = Http(sim.url).connections()  # to be kept: without it, the connection is closed
    ...     connection = next(answers)
    ...     print(connection.status, connection.headers["content-type"], len(next(connection.lines())))
    200 application/json; charset=utf-8 1
    """

    def __init__(self, response: requests.Response, max_record_bytes: int) -> None:
        self.url = str(response.url)
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self.complete = False
        self.received = False
        self.failure: BrokenError | None = None
        self._most = max_record_bytes
        self._raw: Any = response.raw

    def chunks(self) -> Iterator[bytes]:
        """What has come since the last one, unpacked: never empty, and never waited for to become more."""
        try:
            yield from unpacked(self._read(), self.headers.get("content-encoding", "").strip().lower())
        except BrokenError as error:
            self.failure = error

    def lines(self) -> Iterator[list[bytes]]:
        """The lines that have come, without their line breaks (LF or CRLF) and without blank ones.

        A last line without a line break counts if the body is complete.
        """
        begun = bytearray()
        for chunk in self.chunks():
            end = chunk.rfind(b"\n")
            if end >= 0:
                yield from self._split(bytes(begun) + chunk[:end] if begun else chunk[:end])
                begun.clear()
            begun += chunk[end + 1 :]
            self.check_size(len(begun))
        if self.complete:
            yield from self._split(bytes(begun))

    def check_size(self, size: int) -> None:
        """Raises if a record of that many bytes is too long."""
        if size > self._most:
            raise HttpError(
                f"a record is longer than {self._most} bytes, which is what option 'max_record_bytes' allows"
            )

    def _split(self, block: bytes) -> Iterator[list[bytes]]:
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").removesuffix(b"\r")
        lines = [line for line in block.split(b"\n") if line and not line.isspace()]
        if lines:
            if len(block) > self._most:
                self.check_size(max(map(len, lines)))
            yield lines

    def _read(self) -> Iterator[bytes]:
        """The body as it comes. Not by `iter_content`, which waits, and is slow if chunks are small."""
        answer = self._raw._original_response  # http.client's, whose head was read, and nothing more
        body: Chunked | Counted | Unframed
        if self.status in (204, 304) or answer.fp is None:
            body = Counted(0)
        elif answer.chunked:
            body = Chunked()
        else:
            body = Unframed() if answer.length is None else Counted(answer.length)
        buffer = bytearray(_MOST)
        with selectors.DefaultSelector() as selector:
            if not body.whole:
                selector.register(answer.fileno(), selectors.EVENT_READ)
            while not body.whole and (size := self._arrived(answer.fp, buffer, selector)):
                if found := body.feed(buffer, size):
                    yield found
                if body.failure is not None:
                    raise body.failure
        self.complete = body.whole
        if not body.whole:
            self.failure = BrokenError("it was cut off")

    def _arrived(self, file: Any, buffer: bytearray, selector: selectors.BaseSelector) -> int:
        """All that is there: who is behind gets more at a time, and so keeps up. 0 at the end."""
        with memoryview(buffer) as view:
            size = more = self._receive(file, view)
            self.received = self.received or size > 0
            while more and size < _MOST and selector.select(0):
                try:
                    size += (more := self._receive(file, view[size:]))
                except BrokenError:
                    break  # the next read says so again; what has come goes first
            return size

    def _receive(self, file: Any, view: memoryview) -> int:
        """Waits for the first byte only. `readinto1` would read even if something is there."""
        try:
            if self.received:
                return int(file.raw.readinto(view))
            data = file.read1(len(view))  # what came with the head, all of it
            view[: len(data)] = data
            return len(data)
        except OSError as error:
            raise sorted_out(error, answered=True) from None
        except ValueError:
            raise BrokenError("it was closed") from None
