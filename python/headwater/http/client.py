"""`Http`: connects, follows redirects, and reconnects with back-off."""

from __future__ import annotations

import logging
import random as random_module
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from urllib.parse import urljoin

import requests
from requests.structures import CaseInsensitiveDict

from headwater import Secret, report_connection
from headwater.backoff import Backoff
from headwater.escaping import escape_unprintable
from headwater.http.address import origin, parse_headers, redact, validate_url, with_params
from headwater.http.connection import Connection, requested_pause
from headwater.http.errors import HttpError, RetryableError, classify
from headwater.http.transport import CurrentSocket, Session

__all__ = ["Http", "Request"]

_LOG = logging.getLogger("headwater.http")

_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 60.0
_MAX_RETRY_AFTER_SECONDS = 600.0
_REDIRECT_STATUSES, _MAX_REDIRECTS = (301, 302, 303, 307, 308), 5
_REDIRECTS_OF_BODIES = (307, 308)  # the others turn a POST into a GET
_CONDITIONS = frozenset(("if-none-match", "if-modified-since"))
_RETRYABLE_STATUSES = (408, 425, 429)  # and all from 500 on
_MAX_EXCERPT, _MAX_EXCERPT_BYTES = 200, 8192  # characters of a body in an error message, bytes that are read
_EXCERPT_SECONDS = 10.0


@dataclass(frozen=True)
class Request:
    """What the next request adds to the query of the URL and to the headers.

    >>> print(Request(params={"since": "17"}).params)
    {'since': '17'}
    """

    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str | bytes] = field(default_factory=dict)
    body: bytes | None = None
    """Makes it a POST. Its content type is JSON, unless `headers` say otherwise."""
    url: str | None = None
    """Another URL of the same origin, such as that of a further page."""


class Http:
    """A URL that is read as a stream. One thread uses it; any thread may call `close()`.

    Plain `http:` is for this machine only, unless `allow_http` is set. An attempt to connect that takes
    longer than `connect_timeout` is given up, and so is a connection on which nothing arrives for
    `idle_timeout`. `retry` is the first pause after a failure, `max_retries` limits the failures in a row,
    and `max_record_bytes` the length of a line. `random` and `now` are for tests.

    >>> from headwater.sim import RsvpSim
    >>> with RsvpSim(seed=1, rate=0, count=1) as sim:
    ...     http = Http(sim.url)
    ...     for connection in http.connections(lambda: Request(params={"since_count": "1"})):
    ...         print(len(next(connection.lines())), "line;", sim.requests[0].query)
    ...         http.close()
    1 line; {'since_count': '1'}
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Secret | None = None,
        allow_http: bool = False,
        connect_timeout: timedelta = timedelta(seconds=10),
        idle_timeout: timedelta = timedelta(seconds=60),
        retry: timedelta = timedelta(seconds=1),
        max_retries: int | None = None,
        max_record_bytes: int = 16 << 20,
        random: Callable[[], float] = random_module.random,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.url = validate_url(url, allow_http=allow_http)
        parse_headers(headers)  # only to report mistakes now; a secret is read anew for each request
        if max_retries is not None and max_retries < 0:
            raise ValueError(f"option 'max_retries' is {max_retries}, it must be 0 or more")
        if max_record_bytes < 1:
            raise ValueError(f"option 'max_record_bytes' is {max_record_bytes}, it must be 1 or more")
        for name, timeout in (("connect_timeout", connect_timeout), ("idle_timeout", idle_timeout)):
            if timeout <= timedelta(0):
                raise ValueError(f"option '{name}' is {timeout}, it must be longer than 0")
        self._headers = headers
        self._allow_http = allow_http
        self._connect_seconds = connect_timeout.total_seconds()
        self._idle_seconds = idle_timeout.total_seconds()
        self._max_retries = max_retries
        self._max_record_bytes = max_record_bytes
        self._now = now
        self._backoff = Backoff(max(0.0, retry.total_seconds()), _MAX_PAUSE_SECONDS, random)
        self._failures = 0  # in a row
        self._server_known = False  # it has given a good response
        self._closed = threading.Event()
        self._socket = CurrentSocket()

    def connections(
        self, request: Callable[[], Request] = Request, pause: Callable[[], float] | None = None
    ) -> Iterator[Connection]:
        """Yields one response of status 200 or 204 after another until `close()`, with pauses in between.

        304 is yielded too, if the request was conditional. `request` is called before each attempt, and
        `pause` after each complete response: it returns the seconds to wait. Temporary failures are logged
        and retried. Permanent ones, and more than `max_retries` failures in a row, raise an HttpError.
        """
        while not self._closed.is_set():
            try:
                with Session(self._socket) as session:
                    connection = self._connect(session, request())
                    report_connection(True)
                    yield connection
                    failure = connection.failure
                    if connection.received:
                        self._failures = 0
            except RetryableError as error:
                failure = error
            finally:
                self._socket.drop()
            self._pause(failure, pause)

    def close(self) -> None:
        """Ends a connect, a wait for bytes and a pause immediately and permanently."""
        self._closed.set()
        self._socket.close()

    def pause_for(self, seconds: float) -> None:
        """Sets the pause between connections to what the server asks for: 0.1 seconds to a minute."""
        first = min(max(seconds, _MIN_PAUSE_SECONDS), _MAX_PAUSE_SECONDS)
        self._backoff = replace(self._backoff, first=first)

    def _connect(self, session: Session, request: Request) -> Connection:
        """Follows redirects, each of which is checked like the URL itself, and its address as well."""
        url = with_params(self._requested_url(request), request.params)
        for _ in range(_MAX_REDIRECTS + 1):
            session.route.request(url)
            response = self._send(session, url, request)
            location = response.headers.get("Location")
            if response.status_code not in _REDIRECT_STATUSES or location is None:
                connection = Connection(response, self._max_record_bytes, self.url, self._closed.is_set)
                self._check_status(connection, request)
                return connection
            self._socket.drop()
            target = self._redirect(url, location)
            if request.body is not None and (
                response.status_code not in _REDIRECTS_OF_BODIES or origin(target) != origin(url)
            ):
                raise HttpError(
                    f"{redact(url)} redirects a POST to {redact(target)} with status {response.status_code}; "
                    "only 307 and 308 to the same origin are followed. Use its target as option 'url'"
                )
            url = target
        raise HttpError(f"{redact(self.url)} leads to more than {_MAX_REDIRECTS} redirects")

    def _requested_url(self, request: Request) -> str:
        if request.url is None:
            return self.url
        try:
            url = validate_url(request.url, allow_http=self._allow_http, subject="the URL of the next page")
        except ValueError as error:
            raise HttpError(str(error)) from None
        if origin(url) != origin(self.url):
            raise HttpError(
                f"the next page is refused: {redact(url)} has another origin than {redact(self.url)}"
            )
        return url

    def _redirect(self, url: str, location: str) -> str:
        try:
            target = validate_url(urljoin(url, location), allow_http=self._allow_http, subject="it")
            # Not even to this machine: otherwise a remote server would choose what is requested here.
            if target.startswith("http:") and not (self._allow_http or url.startswith("http:")):
                raise ValueError(f"it is {redact(target)!r}: from https to http")
        except ValueError as error:
            raise HttpError(f"the redirect from {redact(url)} is refused: {error}") from None
        return target

    def _send(self, session: Session, url: str, request: Request) -> requests.Response:
        headers: CaseInsensitiveDict[str | bytes] = CaseInsensitiveDict({"User-Agent": "headwater"})
        if origin(url) == origin(self.url):
            headers.update(parse_headers(self._headers))
        headers.update({**request.headers, "Accept-Encoding": "gzip, deflate"})
        if request.body is not None:
            headers.setdefault("Content-Type", "application/json")
        timeouts = (self._connect_seconds, self._idle_seconds)
        try:
            with self._socket.deadline(sum(timeouts)):
                return session.request(
                    "GET" if request.body is None else "POST",
                    url,
                    data=request.body,
                    headers=headers,
                    timeout=timeouts,
                    stream=True,
                    allow_redirects=False,
                )
        except (requests.RequestException, OSError, ValueError) as error:
            failure = classify(error, server_known=self._server_known)
        # Raised outside of the handler: the message of the original error may contain a secret.
        raise type(failure)(f"{redact(url)}: {failure}")

    def _check_status(self, connection: Connection, request: Request) -> None:
        status = connection.status
        is_conditional = not _CONDITIONS.isdisjoint(map(str.lower, request.headers))
        if status in (200, 204) or (status == 304 and is_conditional):
            self._server_known = True
            return
        message = f"{redact(connection.url)} responds with status {status}{self._excerpt(connection)}"
        pause = requested_pause(connection.headers, self._now)
        # Some servers say 403 when the requests that they allow in an hour are used up.
        is_out_of_requests = status == 403 and pause is not None
        if status in _RETRYABLE_STATUSES or status >= 500 or is_out_of_requests:
            raise RetryableError(message, pause)
        raise HttpError(message, status)

    def _excerpt(self, connection: Connection) -> str:
        """The beginning of the body, without what was sent, which some servers repeat."""
        body = b""
        with suppress(HttpError, TimeoutError), self._socket.deadline(_EXCERPT_SECONDS):
            for chunk in connection.chunks():
                body += chunk[:_MAX_EXCERPT_BYTES]
                if len(body) >= _MAX_EXCERPT_BYTES:
                    break
        text = body.decode("utf-8", "replace")
        for value in parse_headers(self._headers).values():
            for secret in (value, *value.split()):
                text = text.replace(secret, "***")
        text = escape_unprintable(" ".join(text.split()))
        return f": {text[:_MAX_EXCERPT]}" if text else ""

    def _pause(self, failure: RetryableError | None, pause: Callable[[], float] | None) -> None:
        if self._closed.is_set():
            return
        if failure is None:  # the response came to its proper end
            self._failures = 0
            self._closed.wait(self._backoff.delay(1) if pause is None else pause())
            return
        self._failures += 1
        seconds = self._backoff.delay(self._failures)
        if failure.retry_after is not None:
            seconds = min(failure.retry_after, _MAX_RETRY_AFTER_SECONDS)
        if self._max_retries is not None and self._failures > self._max_retries:
            raise HttpError(f"{failure}; gave up after max_retries={self._max_retries}")
        report_connection(False, f"{redact(self.url)}: {failure}")
        _LOG.warning("%s: %s; retrying in %.1f s", redact(self.url), failure, seconds)
        self._closed.wait(seconds)
