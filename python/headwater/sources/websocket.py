"""Messages of WebSocket servers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import headwater as hw
from headwater.backoff import Backoff
from headwater.decode import decoder
from headwater.http.address import address_kind, parse_headers, redact, with_params

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["websocket"]

_LOG = logging.getLogger("headwater.sources.websocket")

_MAX_WAITING_BYTES, _MAX_WAITING_MESSAGES = 16 << 20, 10_000  # of messages that are not yet rows
_MIN_SECONDS_PER_BLOCK = 0.02  # a block of messages costs more than a message
_MAX_PAUSE_SECONDS, _MAX_RETRY_AFTER_SECONDS = 60.0, 600.0
_CLOSE_SECONDS = 1.0
_RETRYABLE_STATUSES = (408, 425, 429)  # and all from 500 on
_TOO_BIG = 1009
_MAX_CURSOR_CHARACTERS = 8192
_MAX_SEEN = 1000


class WebSocket(hw.Source, name="websocket", identity=("url",), schemes=("wss", "ws")):
    """Messages of one or more WebSocket servers, text or binary. Reconnects by itself.

    `url` is one URL, or several separated by blanks, which are read side by side. `subscribe` are messages to
    send after each connect. `cursor` is the path of a field of JSON messages, such as `meta.offset`, and
    `resume` says where its last value goes after a reconnect or a restart: `query:NAME` for a parameter of
    the query, or `message:TEXT` for a message, in which `{cursor}` stands for the value as JSON. `sequence`
    is the path of a field that counts messages: a gap is logged and shown as the feed's last error, and a
    number that comes again on a connection is a repeat and dropped.

    `decode` turns a message into columns: `text`, `binary`, `json` with a schema, or a function
    `module:name`. Columns for URL and time of arrival follow with `text` and `binary`, and with `metadata`.
    `headers` are lines of `Name: value`, or a JSON object.

    >>> print(websocket("wss://example.org/feed", headers="Authorization: Bearer abc", subscribe=["all"]))
    websocket(url='wss://example.org/feed', subscribe=***, headers=***)
    """

    def __init__(
        self,
        url: str,
        subscribe: list[hw.Secret] | None = None,
        headers: hw.Secret | None = None,
        decode: str = "text",
        schema: str | None = None,
        metadata: bool = False,
        cursor: str | None = None,
        resume: str | None = None,
        sequence: str | None = None,
        compression: bool = True,
        heartbeat: timedelta = timedelta(seconds=20),
        allow_plain: bool = False,
        ca_file: str | None = None,
        retry: timedelta = timedelta(seconds=1),
        max_retries: int | None = None,
        max_message_bytes: int = 16 << 20,
        connect_timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        _websockets()  # only to report now that it is missing
        self._urls = [_validate_url(one, allow_plain) for one in url.split()]
        if not self._urls:
            raise ValueError("option 'url' is empty, it must be one or more of wss://host/path")
        parse_headers(headers)  # only to report mistakes now; a secret is read anew for each connection
        for name, duration in (("heartbeat", heartbeat), ("connect_timeout", connect_timeout)):
            if duration <= timedelta(0):
                raise ValueError(f"option '{name}' is {duration}, it must be longer than 0")
        if max_retries is not None and max_retries < 0:
            raise ValueError(f"option 'max_retries' is {max_retries}, it must be 0 or more")
        if max_message_bytes < 1:
            raise ValueError(f"option 'max_message_bytes' is {max_message_bytes}, it must be 1 or more")
        if (cursor is None) != (resume is None):
            missing = "cursor" if cursor is None else "resume"
            raise ValueError(f"options 'cursor' and 'resume' go together, and {missing!r} is missing")
        self._subscribe = subscribe or []
        self._headers = headers
        self._cursor_path = None if cursor is None else _parse_path(cursor, "cursor")
        self._sequence_path = None if sequence is None else _parse_path(sequence, "sequence")
        self._resume = None if resume is None else _parse_resume(resume)
        self._max_retries = max_retries
        self._backoff = Backoff(retry.total_seconds(), _MAX_PAUSE_SECONDS)
        self._ca_file = ca_file
        seconds = heartbeat.total_seconds()
        self._settings: dict[str, Any] = {
            "compression": "deflate" if compression else None,
            "ping_interval": seconds,
            "ping_timeout": seconds,
            "open_timeout": connect_timeout.total_seconds(),
            "close_timeout": _CLOSE_SECONDS,
            "max_size": max_message_bytes,
            "user_agent_header": "headwater",
        }
        self._extra_columns = {"url": "STRING", "arrived": "TIMESTAMP"}
        if not (metadata or decode in ("text", "binary")):
            self._extra_columns = {}
        beside = ", ".join(f"{name} {type}" for name, type in self._extra_columns.items())
        self._decoder = decoder(decode, schema, beside=beside or None)

    @property
    def schema(self) -> StructType:
        """The columns, which depend on `decode`, `schema` and `metadata`."""
        return self._decoder.schema

    async def read(self, since: Any) -> AsyncIterator[Any]:
        """Yields all messages that have arrived, with the cursors after them. Never ends."""
        shard = hw.shard()
        positions = _parse_since(since, len(self._urls))
        upstreams = [
            _Upstream(number, url, positions[number], self._cursor_path, self._sequence_path)
            for number, url in enumerate(self._urls)
        ]
        inbox = _Inbox()
        links = _Links()
        tasks = [
            asyncio.create_task(self._follow(upstream, inbox, links))
            for upstream in upstreams[shard.index :: shard.count]
        ]
        try:
            while tasks:
                messages = await inbox.take()
                new = [message for message in messages if upstreams[message[0]].is_new(message)]
                for upstream in upstreams:
                    upstream.advance([message[1] for message in new if message[0] == upstream.number])
                if new:
                    cursor = None
                    if self._cursor_path is not None:
                        cursor = {"cursors": [upstream.position for upstream in upstreams]}
                    yield hw.At(cursor, self._rows(new))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, upstream: _Upstream, inbox: _Inbox, links: _Links) -> None:
        """Reads one URL, one connection after another."""
        failures, has_connected = 0, False
        try:
            while True:
                failure: Exception
                received = 0
                try:
                    async with _connector()(
                        self._target(upstream), **self._connect_settings(upstream)
                    ) as link:
                        has_connected = True
                        await self._send_first_messages(link, upstream)
                        links.up(upstream.url)
                        inbox.put((upstream.number, None, 0))
                        while True:
                            message = await link.recv(decode=False)
                            received += 1
                            inbox.put((upstream.number, message, time.time_ns() // 1000))
                            if inbox.is_full:
                                await inbox.until_taken()
                except Exception as error:
                    failure = _classify(error, upstream.url, has_connected)
                if not isinstance(failure, _RetryableError):
                    raise failure
                failures = 1 if received else failures + 1
                name = redact(upstream.url)
                if self._max_retries is not None and failures > self._max_retries:
                    raise ConnectionError(f"{name}: {failure}; gave up after max_retries={self._max_retries}")
                seconds = failure.retry_after
                if seconds is None:
                    seconds = self._backoff.delay(failures)
                links.down(upstream.url, f"{name}: {failure}")
                _LOG.warning("%s: %s; retrying in %.1f s", name, failure, seconds)
                await inbox.until_taken()  # so that the cursor is that of the last message
                await asyncio.sleep(seconds)
        except Exception as error:
            inbox.fail(error)

    def _target(self, upstream: _Upstream) -> str:
        if self._resume is None or self._resume[0] != "query" or upstream.after is None:
            return upstream.url
        after = upstream.after
        return with_params(upstream.url, {self._resume[1]: after if isinstance(after, str) else _json(after)})

    def _connect_settings(self, upstream: _Upstream) -> dict[str, Any]:
        settings = {**self._settings, "additional_headers": parse_headers(self._headers)}
        if upstream.url.startswith("wss:"):
            settings["ssl"] = ssl.create_default_context(cafile=self._ca_file)
        return settings

    async def _send_first_messages(self, link: Any, upstream: _Upstream) -> None:
        for message in self._subscribe:
            await link.send(message.reveal())
        if self._resume is not None and self._resume[0] == "message" and upstream.after is not None:
            await link.send(self._resume[1].replace("{cursor}", _json(upstream.after)))

    def _rows(self, messages: list[_Message]) -> Any:
        extra: dict[str, Any] = {}
        if self._extra_columns:
            import pyarrow as pa

            names = [redact(url) for url in self._urls]
            extra["url"] = names[0] if len(names) == 1 else [names[number] for number, _, _ in messages]
            extra["arrived"] = pa.array([arrived for _, _, arrived in messages], pa.timestamp("us", "UTC"))
        return self._decoder.rows([data for _, data, _ in messages if data is not None], **extra)


_Message = tuple[int, bytes | None, int]
"""The number of the URL, the message, and its time of arrival in microseconds; None for a new connection."""


def _validate_url(url: str, allow_plain: bool) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"option 'url' is not a URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "option 'url' contains a user or password, which logs would show: use option 'headers'"
        )
    if parts.scheme not in ("ws", "wss") or not parts.hostname or port == 0 or not url.isprintable():
        raise ValueError(
            f"option 'url' is {redact(url)!r}, it must be wss://host/path, or ws:// where allowed"
        )
    if parts.scheme == "ws" and not allow_plain and address_kind(parts.hostname) != "loopback":
        raise ValueError(
            f"option 'url' is {redact(url)!r}: plain ws can be read and changed in transit. Use wss, or set "
            "allow_plain=true"
        )
    return url


def _parse_path(path: str, option: str) -> list[str]:
    names = path.split(".")
    if not all(names):
        raise ValueError(
            f"option '{option}' is {path!r}, it must be field names separated by dots, such as meta.offset"
        )
    return names


def _parse_resume(resume: str) -> tuple[str, str]:
    place, _, text = resume.partition(":")
    if place not in ("query", "message") or not text or (place == "message" and "{cursor}" not in text):
        raise ValueError(
            f"option 'resume' is {resume!r}, it must be query:NAME, or message:TEXT with {{cursor}} in TEXT"
        )
    return place, text


def _parse_since(since: Any, urls: int) -> list[Any]:
    """The position of each URL. A user may have written a bare cursor, for all of them."""
    if isinstance(since, dict) and since.keys() == {"cursors"}:
        positions = since["cursors"]
        if len(positions) != urls:
            raise ValueError(f"the cursor has {len(positions)} positions, and option 'url' has {urls} URLs")
        return list(positions)
    return [None if since is None else {"after": since, "seen": []}] * urls


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


# Positions: which messages are new, and the cursor after them


class _Upstream:
    """The position in one URL: the last cursor, and hashes of the messages that had it.

    A server resumes at a cursor or after it, and several messages may share one. So after a reconnect the
    messages before the cursor are dropped, and those with that very cursor that have arrived before.

    >>> upstream = _Upstream(0, "wss://example.org", None, ["t"], None)
    >>> upstream.advance([b'{"t": 1}', b'{"t": 2, "a": 1}'])
    >>> upstream.is_new((0, None, 0)), upstream.is_new((0, b'{"t": 2, "a": 1}', 0))
    (False, False)
    >>> upstream.is_new((0, b'{"t": 2, "a": 2}', 0)), upstream.is_new((0, b'{"t": 3}', 0))
    (True, True)
    """

    def __init__(
        self,
        number: int,
        url: str,
        position: Any,
        cursor_path: list[str] | None,
        sequence_path: list[str] | None,
    ) -> None:
        self.number = number
        self.url = url
        self._cursor_path = cursor_path
        self._sequence_path = sequence_path
        self.after = None if position is None else position["after"]
        self._seen: dict[str, None] = {} if position is None else dict.fromkeys(position["seen"])
        self._may_repeat = False
        self._last_sequence: int | None = None
        self._is_first = True  # of a connection, as far as the sequence goes

    @property
    def position(self) -> Any:
        return None if self.after is None else {"after": self.after, "seen": list(self._seen)}

    def is_new(self, message: _Message) -> bool:
        data = message[1]
        if data is None:
            self._may_repeat = self.after is not None
            self._is_first = True
            return False
        if self._may_repeat and self._cursor_path is not None and self._is_repeat(data):
            return False
        return self._sequence_path is None or self._is_next(_field(data, self._sequence_path))

    def advance(self, messages: list[bytes | None]) -> None:
        """The position after these messages, of which only those with the last cursor matter."""
        if self._cursor_path is None:
            return
        last: Any = None
        with_last: list[str] = []
        for data in reversed(messages):
            if data is None or (cursor := _field(data, self._cursor_path)) is None:
                continue
            if last is None:
                last = _validate_cursor(cursor)
            if cursor != last or len(with_last) >= _MAX_SEEN:
                break
            with_last.append(_digest(data))
        if last is not None:
            seen = self._seen if last == self.after else {}
            self._seen = dict.fromkeys([*seen, *reversed(with_last)][-_MAX_SEEN:])
            self.after = last

    def _is_repeat(self, data: bytes) -> bool:
        assert self._cursor_path is not None
        cursor = _field(data, self._cursor_path)
        if cursor is None:
            return False
        if cursor == self.after:
            return _digest(data) in self._seen
        if _is_number(cursor) and _is_number(self.after) and cursor < self.after:
            return True
        self._may_repeat = False
        return False

    def _is_next(self, number: Any) -> bool:
        """Whether this number is not a repeat. A new connection may count from the beginning."""
        if type(number) is not int:
            return True
        last, is_first = self._last_sequence, self._is_first
        if last is not None and number <= last and not is_first:
            _LOG.info("%s: message %d is dropped, because it follows %d", redact(self.url), number, last)
            return False
        self._last_sequence, self._is_first = number, False
        if last is not None and number > last + 1:
            problem = f"{redact(self.url)}: messages {last + 1} to {number - 1} are missing"
            _LOG.warning("%s: %d follows %d", problem, number, last)
            hw.report_connection(True, problem)
        return True


def _field(data: bytes, path: Iterable[str]) -> Any:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _validate_cursor(cursor: Any) -> Any:
    try:
        size = len(_json(cursor))
    except (ValueError, RecursionError):
        raise ValueError("a message has a cursor that cannot be written as JSON") from None
    if size > _MAX_CURSOR_CHARACTERS:
        raise ValueError(f"a message has a cursor of {size} characters; {_MAX_CURSOR_CHARACTERS} are allowed")
    return cursor


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


# Connections


class _Inbox:
    """Messages of all connections that are not yet rows."""

    def __init__(self) -> None:
        self._messages: list[_Message] = []
        self._bytes = 0
        self.is_full = False
        self._error: Exception | None = None
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()
        self._taken.set()
        self._taken_at = 0.0

    def put(self, message: _Message) -> None:
        """Before the next one, wait with `until_taken` if `is_full`."""
        self._messages.append(message)
        self._bytes += len(message[1] or b"")
        self.is_full = self._bytes >= _MAX_WAITING_BYTES or len(self._messages) >= _MAX_WAITING_MESSAGES
        self._arrived.set()

    async def until_taken(self) -> None:
        while self._messages:
            self._taken.clear()
            await self._taken.wait()

    def fail(self, error: Exception) -> None:
        self._error = error
        self._arrived.set()

    async def take(self) -> list[_Message]:
        pause = self._taken_at + _MIN_SECONDS_PER_BLOCK - time.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
        await self._arrived.wait()
        if self._error is not None and not self._messages:
            raise self._error
        messages, self._messages, self._bytes, self.is_full = self._messages, [], 0, False
        if self._error is None:
            self._arrived.clear()
        self._taken.set()
        self._taken_at = time.monotonic()
        return messages


class _Links:
    """Reports the connection as lost while one of them is."""

    def __init__(self) -> None:
        self._down: set[str] = set()

    def up(self, url: str) -> None:
        self._down.discard(url)
        hw.report_connection(not self._down)

    def down(self, url: str, reason: str) -> None:
        self._down.add(url)
        hw.report_connection(False, reason)


class _RetryableError(Exception):
    """A connection failed and another one may succeed."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def _classify(error: Exception, url: str, has_connected: bool) -> Exception:
    """A _RetryableError, or what the source fails with. No message has what was sent, which may be secret."""
    exceptions = _websockets().exceptions
    name = redact(url)
    if isinstance(error, exceptions.ConnectionClosed):
        if error.sent is not None and error.sent.code == _TOO_BIG:
            return ValueError(f"{name}: a message is longer than option 'max_message_bytes' allows")
        received = error.rcvd
        if received is None:
            return _RetryableError("the connection was lost")
        reason = f" ({received.reason[:100]})" if received.reason else ""
        return _RetryableError(f"the server closed the connection with code {received.code}{reason}")
    if isinstance(error, exceptions.InvalidStatus):
        status, headers = error.response.status_code, error.response.headers
        if status in _RETRYABLE_STATUSES or status >= 500:
            after = headers.get("Retry-After", "")
            seconds = min(float(after), _MAX_RETRY_AFTER_SECONDS) if after.isdecimal() else None
            return _RetryableError(f"the server responds with status {status}", seconds)
        if 300 <= status < 400:
            location = redact(headers.get("Location", ""))[:200]
            return ConnectionError(f"{name} redirects to {location!r}: use its target as option 'url'")
        return ConnectionError(f"{name} responds with status {status}")
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectionError(f"{name}: its certificate is refused: {error.verify_message}")
    if isinstance(error, TimeoutError):
        return _RetryableError("it timed out")
    if isinstance(error, exceptions.InvalidMessage) and isinstance(error.__cause__, OSError | EOFError):
        return _RetryableError("the response was cut off")
    if isinstance(error, OSError | EOFError):
        return _RetryableError(getattr(error, "strerror", None) or type(error).__name__)
    if isinstance(error, exceptions.WebSocketException):
        problem = f"this is not a WebSocket: {type(error).__name__}"
        return _RetryableError(problem) if has_connected else ConnectionError(f"{name}: {problem}")
    return error


def _connector() -> Any:
    from websockets.asyncio.client import connect

    class Connect(connect):
        """Follows no redirects: headers are for the URL, and a server could lead anywhere."""

        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc

    return Connect


def _websockets() -> Any:
    try:
        import websockets.asyncio.client
        import websockets.exceptions
    except ImportError:
        raise hw.HeadwaterError(
            "source 'websocket' needs websockets", "pip install headwater[websocket]"
        ) from None
    return websockets


websocket = WebSocket
