"""A response, whose body is read as it arrives."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import requests
from urllib3.exceptions import HTTPError as Urllib3Error

from headwater.http.errors import HttpError, RetryableError, classify

__all__ = ["Connection"]

_MAX_READ_BYTES = 1 << 18  # fewer cost more per record to parse, more cost more to allocate
_MAX_INFLATED_BYTES = 1 << 20  # at a time, so that a small body cannot fill the memory


class Connection:
    """A response and its body. If the body is cut off, reading ends without an error; `complete` is false.

    `Http.connections` creates them. `status`, `url` and `headers`, with names in lower case, are those of the
    response. `received` says whether any byte of the body has arrived, `failure` why the body was cut off.

    >>> from headwater.http import Http
    >>> from headwater.sim import RsvpSim
    >>> with RsvpSim(seed=1, rate=0, count=1) as sim:
    ...     connections = Http(sim.url).connections()  # keep it: the connection is closed with its iterator
    ...     connection = next(connections)
    ...     print(connection.status, connection.headers["content-type"], len(next(connection.lines())))
    200 application/json; charset=utf-8 1
    """

    def __init__(self, response: requests.Response, max_record_bytes: int) -> None:
        self.url = str(response.url)
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self.complete = False
        self.received = False
        self.failure: RetryableError | None = None
        self._max_record_bytes = max_record_bytes
        self._raw: Any = response.raw

    def chunks(self) -> Iterator[bytes]:
        """What has arrived since the last chunk, decompressed. Never empty; does not wait for more bytes."""
        encoding = self.headers.get("content-encoding", "").strip().lower()
        if encoding in ("", "identity"):
            yield from self._read()
        elif encoding in ("gzip", "x-gzip", "deflate"):
            yield from _inflate(self._read(), may_be_raw=encoding == "deflate")
        else:
            raise HttpError(
                f"the response is compressed as {encoding!r}, only gzip and deflate are supported"
            )

    def lines(self) -> Iterator[list[bytes]]:
        """The lines that have arrived, without line breaks (LF or CRLF) and without blank lines.

        A last line without a line break counts if the body is complete.
        """
        partial = bytearray()
        for chunk in self.chunks():
            end = chunk.rfind(b"\n")
            if end >= 0:
                yield from self._split(bytes(partial) + chunk[:end] if partial else chunk[:end])
                partial.clear()
            partial += chunk[end + 1 :]
            self.check_size(len(partial))
        if self.complete:
            yield from self._split(bytes(partial))

    def check_size(self, size: int) -> None:
        """Raises an HttpError if a record of `size` bytes is too long."""
        if size > self._max_record_bytes:
            raise HttpError(
                f"a record is longer than {self._max_record_bytes} bytes, "
                "which is the limit of option 'max_record_bytes'"
            )

    def _split(self, block: bytes) -> Iterator[list[bytes]]:
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").removesuffix(b"\r")
        lines = [line for line in block.split(b"\n") if line and not line.isspace()]
        if lines:
            if len(block) > self._max_record_bytes:
                self.check_size(max(map(len, lines)))
            yield lines

    def _read(self) -> Iterator[bytes]:
        """The body, still compressed, in pieces as they arrive. Sets `complete`, or `failure`."""
        raw = self._raw
        try:
            while raw.length_remaining != 0:
                data = raw.read1(_MAX_READ_BYTES, decode_content=False)
                if not data:
                    break
                self.received = True
                yield data
        except (Urllib3Error, OSError) as error:
            self.failure = _retryable(error)
            return
        except ValueError:  # from a socket that was closed meanwhile
            self.failure = RetryableError("the connection was closed")
            return
        # A body without a length and without chunks ends with its connection: it may have been cut off.
        self.complete = raw.length_remaining == 0 or (raw.length_remaining is None and raw.chunked)
        if not self.complete:
            self.failure = RetryableError("the response was cut off")


def _retryable(error: Exception) -> RetryableError:
    cause = classify(error, server_known=True)
    return cause if isinstance(cause, RetryableError) else RetryableError(str(cause))


def _inflate(chunks: Iterable[bytes], *, may_be_raw: bool) -> Iterator[bytes]:
    """Decompresses gzip, zlib and, with `may_be_raw`, deflate without a header; also several in a row.

    urllib3 can do this too, but repeats a gzip member for ever if it ends exactly where a read does (2.8).
    """
    stream = None
    for chunk in chunks:
        piece = b""
        while chunk or len(piece) == _MAX_INFLATED_BYTES:  # after a full piece there may be more
            if stream is None or stream.eof:
                if not chunk:
                    break
                is_raw = may_be_raw and chunk[0] & 15 != 8
                stream = zlib.decompressobj(-15 if is_raw else 47)  # 47: the header says gzip or zlib
            try:
                piece = stream.decompress(chunk, _MAX_INFLATED_BYTES)
            except zlib.error:
                raise HttpError("the response claims to be compressed and cannot be decompressed") from None
            chunk = stream.unused_data if stream.eof else stream.unconsumed_tail
            if piece:
                yield piece
