"""Compressed bodies, decompressed as they arrive and within limits."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from headwater.http.errors import HttpError

__all__ = ["Decompressor"]

_GZIP_MAGIC = b"\x1f\x8b"
_STEP_BYTES = 4096  # of one call of zlib, which copies what it leaves over: after each gzip member, the rest
_MAX_PIECE_BYTES = 1 << 20  # so that a small body cannot fill the memory

# Limits of a body, far beyond what servers send: JSON is rarely compressed by more than 50 : 1.
_MAX_RATIO, _RATIO_FROM_BYTES = 200, 32 << 20
_FREE_MEMBERS, _MIN_MEMBER_BYTES = 10_000, 16


class Decompressor:
    """Decompresses gzip, also several members in a row, zlib and, with `may_be_raw`, headerless deflate.

    urllib3 can do this too, but repeats a gzip member for ever if it ends exactly where a read does (2.8).

    >>> import gzip
    >>> decompressor = Decompressor()
    >>> list(decompressor.feed(gzip.compress(b"one") + gzip.compress(b"two") + b"?"))
    [b'onetwo']
    >>> decompressor.is_unfinished, decompressor.has_trailing_bytes
    (False, True)
    """

    def __init__(self, *, may_be_raw: bool = False) -> None:
        self.has_trailing_bytes = False  # what follows the compressed data is something else
        self._may_be_raw = may_be_raw
        self._stream: Any = None
        self._start = b""  # of the next gzip member, until it is known whether it is one
        self._members = self._compressed = self._decompressed = 0

    @property
    def is_unfinished(self) -> bool:
        """Whether the compressed data ends before its own end."""
        return self._stream is not None and not self._stream.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The content of these bytes, in pieces of 1 MiB at most. Raises an HttpError if it has none."""
        pieces: list[bytes] = []
        size = 0
        try:
            for start in range(0, len(data), _STEP_BYTES):
                for piece in self._feed(data[start : start + _STEP_BYTES]):
                    if size + len(piece) > _MAX_PIECE_BYTES:
                        yield b"".join(pieces)
                        pieces, size = [], 0
                    pieces.append(piece)
                    size += len(piece)
        except zlib.error:
            if pieces:
                yield b"".join(pieces)
            raise HttpError("the response claims to be compressed and cannot be decompressed") from None
        if pieces:
            yield b"".join(pieces)

    def finish(self) -> None:
        """Call it at the end of the body."""
        self.has_trailing_bytes |= bool(self._start)

    def _feed(self, data: bytes) -> Iterator[bytes]:
        self._compressed += len(data)
        piece = b""
        while data or len(piece) == _MAX_PIECE_BYTES:  # after a full piece there may be more
            if self._stream is None:
                is_raw = self._may_be_raw and data[0] & 15 != 8
                self._stream = zlib.decompressobj(-15 if is_raw else 47)  # 47: the header says gzip or zlib
            elif self._stream.eof:
                data, self._start = self._start + data, b""
                if self.has_trailing_bytes or not data:
                    return
                if data == _GZIP_MAGIC[:1]:
                    self._start = data
                    return
                if not data.startswith(_GZIP_MAGIC):
                    self.has_trailing_bytes = True
                    return
                self._stream = zlib.decompressobj(31)
                self._members += 1
            piece = self._stream.decompress(data, _MAX_PIECE_BYTES)
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            self._decompressed += len(piece)
            self._check_limits()
            if piece:
                yield piece

    def _check_limits(self) -> None:
        if self._decompressed > max(_RATIO_FROM_BYTES, _MAX_RATIO * self._compressed):
            raise HttpError(f"the response is compressed by more than {_MAX_RATIO} : 1")
        if self._members > _FREE_MEMBERS + self._decompressed // _MIN_MEMBER_BYTES:
            raise HttpError(
                f"the response consists of more than {_FREE_MEMBERS} gzip members "
                f"with fewer than {_MIN_MEMBER_BYTES} bytes each"
            )
