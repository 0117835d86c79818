"""The body of an answer as its bytes come: chunked transfer and compression undone, nothing waited for."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from headwater.http._errors import BrokenError, HttpError

__all__ = ["Chunked", "Counted", "Unframed", "unpacked"]

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
