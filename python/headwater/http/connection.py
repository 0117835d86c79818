"""A response and its body, decoded as the bytes arrive."""

from __future__ import annotations

import selectors
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import requests

from headwater.http.errors import BrokenError, HttpError, sorted_out

__all__ = ["Chunked", "Connection", "Counted", "Unframed", "unpacked"]

_PIECE = 1 << 20  # bytes: how much is unpacked at a time, so that a bomb does not fill the memory
_LONGEST_LINE = 16384  # bytes: sizes of chunks, trailers


class Unframed:
    """A body that goes on until the connection ends, so that nobody knows whether it is whole."""

    whole = False
    failure: BrokenError | None = None

    def feed(self, data: bytes | bytearray, size: int) -> bytes:
        return bytes(memoryview(data)[:size])


class Counted:
    """A body of a length that was said before."""

    failure: BrokenError | None = None

    def __init__(self, length: int) -> None:
        self._left = length
        self.whole = not length

    def feed(self, data: bytes | bytearray, size: int) -> bytes:
        taken = bytes(memoryview(data)[: min(size, self._left)])
        self._left -= len(taken)
        self.whole = not self._left
        return taken


class Chunked:
    """A body in chunks. One read from the network often has many: they are joined here, at little cost each.

    >>> body = Chunked()
    >>> body.feed(b"3\\r\\nabc\\r\\n2;x=y\\r\\nd", 16), body.feed(b"e\\r\\n0\\r\\n\\r\\n", 8), body.whole
    (b'abcd', b'e', True)
    """

    def __init__(self) -> None:
        self.whole = False
        self.failure: BrokenError | None = None
        self._left = 0  # of the chunk that is being read, with its line break
        self._line = b""  # the beginning of a line
        self._trailer = False

    def feed(self, data: bytes | bytearray, size: int) -> bytes:
        """What is in there, in its first `size` bytes; up to a mistake, which is `failure` then."""
        found: list[memoryview] = []
        with memoryview(data)[:size] as view:
            try:
                self._feed(data, view, found)
            except BrokenError as error:
                self.failure = error
            return b"".join(found)

    def _feed(self, data: bytes | bytearray, view: memoryview, found: list[memoryview]) -> None:
        at = 0
        if self._left:
            at = self._take(view, 0, found)
        while at < len(view) and not self.whole:
            end = data.find(b"\n", at, len(view))
            self._line += view[at : end + 1 or None]
            if len(self._line) > _LONGEST_LINE:
                raise BrokenError("the size of a chunk goes on and on")
            if end < 0:
                break
            line, self._line = self._line.strip(), b""
            at = end + 1
            if self._trailer:
                self.whole = not line
            elif size := self._size(line):
                self._left = size + 2
                at = self._take(view, at, found)
            else:
                self._trailer = True

    def _take(self, view: memoryview, at: int, found: list[memoryview]) -> int:
        end = at + self._left
        if self._left > 2:
            found.append(view[at : end - 2])
        if end <= len(view) and view[end - 1] != 10:
            raise BrokenError("a chunk is longer than its size")
        self._left = max(0, end - len(view))
        return min(end, len(view))

    @staticmethod
    def _size(line: bytes) -> int:
        digits = line.partition(b";")[0].strip()
        if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
            raise BrokenError("the size of a chunk is no number")
        return int(digits, 16)


def unpacked(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """The chunks without gzip or deflate, which may be several, one after the other."""
    if encoding in ("", "identity"):
        return iter(chunks)
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise HttpError(f"the answer is compressed as {encoding!r}; gzip and deflate are known")
    return _inflated(chunks, raw_too=encoding == "deflate")


def _inflated(chunks: Iterable[bytes], raw_too: bool) -> Iterator[bytes]:
    stream = None
    for chunk in chunks:
        piece = b""
        while chunk or len(piece) == _PIECE:  # a full piece: there may be more behind it
            if stream is None or stream.eof:
                if not chunk:
                    break
                bare = raw_too and chunk[0] & 15 != 8
                stream = zlib.decompressobj(-15 if bare else 47)  # 47: zlib or gzip, by its head
            try:
                piece = stream.decompress(chunk, _PIECE)
            except zlib.error:
                raise HttpError("the answer says that it is compressed and cannot be unpacked") from None
            chunk = stream.unused_data if stream.eof else stream.unconsumed_tail
            if piece:
                yield piece


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
