"""A response, whose body is read as it arrives."""

from __future__ import annotations

import json
import logging
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import requests
from urllib3.exceptions import HTTPError as Urllib3Error

from headwater.escaping import escape_unprintable
from headwater.http.address import origin, redact
from headwater.http.compressed import Decompressor
from headwater.http.errors import HttpError, RetryableError, classify

__all__ = ["Connection", "requested_pause"]

_LOG = logging.getLogger("headwater.http")

_MAX_READ_BYTES = 1 << 18  # fewer cost more per record to parse, more cost more to allocate
_MAX_CURSOR_BYTES = 8192  # servers accept headers and URLs of about this size
_FIRST_TIMESTAMP = 1e9  # a larger number is not seconds to wait, but since 1970
_MAX_EXCERPT = 80  # characters of a line in a message
_NOT_LINES = ("text/html", "application/xhtml+xml", "application/pdf", "application/zip")
_NOT_LINES_PREFIXES = ("audio/", "font/", "image/", "multipart/", "video/")


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

    unfinished = b""
    """The last line, if the response has ended within it. It is not a line of `lines()`."""

    def __init__(
        self,
        response: requests.Response,
        max_record_bytes: int,
        requested_url: str,
        is_closed: Callable[[], bool],
    ) -> None:
        self.url = str(response.url)
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self.complete = False
        self.received = False
        self.failure: RetryableError | None = None
        self._ends_with_connection = False
        self._max_record_bytes = max_record_bytes
        self._requested_url = requested_url  # before any redirects
        self._is_closed = is_closed
        self._raw: Any = response.raw

    def chunks(self) -> Iterator[bytes]:
        """What has arrived since the last chunk, decompressed. Never empty; does not wait for more bytes."""
        encoding = self.headers.get("content-encoding", "").strip().lower()
        if encoding in ("", "identity"):
            yield from self._read()
        elif encoding in ("gzip", "x-gzip", "deflate"):
            yield from self._decompress(Decompressor(may_be_raw=encoding == "deflate"))
        else:
            raise HttpError(
                f"the response is compressed as {encoding[:_MAX_EXCERPT]!r}, "
                "only gzip and deflate are supported"
            )

    def lines(self) -> Iterator[list[bytes]]:
        """The lines that have arrived, without line breaks (LF or CRLF) and without blank lines.

        A last line without a line break counts if it is a JSON object, array or string, which shows that it
        is complete. Otherwise the response has ended within a line: `complete` is false, and `unfinished` is
        that line. HTML and other content that does not consist of lines is an HttpError.
        """
        partial = bytearray()
        for chunk in self.chunks():
            self._check_content_type()
            end = chunk.rfind(b"\n")
            if end >= 0:
                yield from self._split(bytes(partial) + chunk[:end] if partial else chunk[:end])
                partial.clear()
            partial += chunk[end + 1 :]
            self.check_size(len(partial))
        last = bytes(partial).strip(b" \t\r\n")
        if self.complete and last:
            if _is_complete_json(last):
                yield [last]
            else:
                self.unfinished = last
                self._cut_off(f"the response ends within a line: {_excerpt(last)}")

    def body(self, max_bytes: int, seconds: float) -> bytes | None:
        """All of the body; None if it was cut off or has not arrived within that time.

        A JSON object or array shows itself where it ends, so it counts even if the server closes the
        connection without having said how long it is. HTML and the like is an HttpError, and so is a longer
        body.
        """
        data, end = bytearray(), time.monotonic() + seconds
        for chunk in self.chunks():
            self._check_content_type()
            data += chunk
            if len(data) > max_bytes:
                raise HttpError(f"the response is longer than {max_bytes} bytes")
            if time.monotonic() > end:
                self._cut_off(f"the response took longer than {seconds:g} s")
                return None
        body = bytes(data)
        if not self.complete and self._ends_with_connection and _is_complete_json(body.strip()):
            self.complete, self.failure = True, None
        return body if self.complete else None

    def requested_pause(self) -> float | None:
        """The seconds that the server asks to wait before the next request; None if it does not.

        It asks with `Retry-After`, `X-Poll-Interval`, or the number of requests that are left.
        """
        return requested_pause(self.headers, time.time)

    def check_size(self, size: int) -> None:
        """Raises an HttpError if a record of `size` bytes is too long."""
        if size > self._max_record_bytes:
            raise HttpError(
                f"a record is longer than {self._max_record_bytes} bytes, "
                "which is the limit of option 'max_record_bytes'"
            )

    def check_cursor(self, text: str, *, header: bool = False) -> None:
        """Raises an HttpError if a cursor of this response, as text, must not go into later requests.

        Call it before the cursor is used: once it is in a checkpoint, each start would fail. It may have
        8,192 bytes and, in a header, neither control characters nor blanks around it. It must come from the
        origin that it is sent to: otherwise a server could redirect elsewhere and be sent what is read there.
        """
        if origin(self.url) != origin(self._requested_url):
            raise HttpError(
                f"{redact(self._requested_url)} redirects to another origin, {redact(self.url)}, whose "
                "cursors would be sent to the first one. Use the second as option 'url'"
            )
        if reason := _why_not_sendable(text, header):
            raise HttpError(
                f"the response contains a cursor that {reason}: {_excerpt(text.encode(errors='replace'))}"
            )

    def _check_content_type(self) -> None:
        content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type in _NOT_LINES or content_type.startswith(_NOT_LINES_PREFIXES):
            raise HttpError(
                f"the content type of the response is {content_type[:_MAX_EXCERPT]!r}, which has no records "
                "in lines. Check the URL: it may lead to a page for people, such as a login",
                self.status,
            )

    def _split(self, block: bytes) -> Iterator[list[bytes]]:
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").removesuffix(b"\r")
        lines = [line for line in block.split(b"\n") if line and not line.isspace()]
        if lines:
            if len(block) > self._max_record_bytes:
                self.check_size(max(map(len, lines)))
            yield lines

    def _decompress(self, decompressor: Decompressor) -> Iterator[bytes]:
        for data in self._read():
            for piece in decompressor.feed(data):
                yield piece
                if self._is_closed():
                    self._cut_off("the connection was closed")
                    return
        decompressor.finish()
        if self.complete and decompressor.is_unfinished:
            self._cut_off("the response was cut off within its compressed data")
        elif decompressor.has_trailing_bytes:
            _LOG.warning("%s: bytes after the end of the compressed data are ignored", redact(self.url))

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
        self._ends_with_connection = raw.length_remaining is None and not raw.chunked
        # A body without a length and without chunks ends with its connection: it may have been cut off.
        self.complete = raw.length_remaining == 0 or (raw.length_remaining is None and raw.chunked)
        if not self.complete:
            self.failure = RetryableError("the response was cut off")

    def _cut_off(self, reason: str) -> None:
        self.complete = False
        self.failure = RetryableError(reason)


def _retryable(error: Exception) -> RetryableError:
    cause = classify(error, server_known=True)
    return cause if isinstance(cause, RetryableError) else RetryableError(str(cause))


def _is_complete_json(line: bytes) -> bool:
    """Of a value that says itself where it ends: `17` may be the beginning of `170`."""
    if not line.startswith((b"{", b"[", b'"')):
        return False
    try:
        json.loads(line.decode("utf-8", "replace"), parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def _why_not_sendable(text: str, header: bool) -> str | None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if size > _MAX_CURSOR_BYTES:
        return f"is longer than {_MAX_CURSOR_BYTES} bytes"
    if header and text != text.strip():
        return "begins or ends with a blank"
    if header and any(unicodedata.category(c) == "Cc" for c in text):
        return "has control characters"
    return None


def _excerpt(data: bytes) -> str:
    text = data[: 4 * _MAX_EXCERPT].decode("utf-8", "replace")
    return escape_unprintable(text[:_MAX_EXCERPT]) + ("…" if len(text) > _MAX_EXCERPT else "")


def requested_pause(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """The seconds to wait, as the headers of a response say it; None if they do not. Names in lower case.

    >>> requested_pause({"retry-after": "120"}), requested_pause({"retry-after": "soon"})
    (120.0, None)
    >>> requested_pause({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, lambda: 20.0)
    40.0
    >>> requested_pause({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1700000090"}, lambda: 1.7e9)
    90.0
    >>> requested_pause({"ratelimit-remaining": "5", "ratelimit-reset": "30"}), requested_pause({})
    (None, None)
    """
    value = headers.get("retry-after", headers.get("x-poll-interval", "")).strip()
    if value.isdecimal():
        return float(value)
    if value:
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - now())
        except (ValueError, TypeError, OverflowError):
            return None
    for prefix in ("ratelimit", "x-ratelimit", "x-rate-limit"):
        remaining, reset = headers.get(f"{prefix}-remaining", ""), headers.get(f"{prefix}-reset", "").strip()
        if remaining.strip() == "0" and reset.isdecimal() and len(reset) < 20:
            seconds = float(reset)
            return max(0.0, seconds - now()) if seconds > _FIRST_TIMESTAMP else seconds
    return None
