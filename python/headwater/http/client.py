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
from email.utils import parsedate_to_datetime
from itertools import islice
from urllib.parse import urljoin

import requests
from requests.structures import CaseInsensitiveDict

from headwater import Secret
from headwater.backoff import Backoff
from headwater.http.address import origin, parse_headers, redact, validate_url, with_params
from headwater.http.connection import Connection
from headwater.http.errors import HttpError, RetryableError, classify
from headwater.http.transport import CurrentSocket, Session

__all__ = ["Http", "Request"]

_LOG = logging.getLogger("headwater.http")

_CONNECT_SECONDS = 10.0
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 60.0
_MAX_RETRY_AFTER_SECONDS = 600.0
_REDIRECT_STATUSES, _MAX_REDIRECTS = (301, 302, 303, 307, 308), 5
_RETRYABLE_STATUSES = (408, 425, 429)  # and all from 500 on
_MAX_EXCERPT = 200  # characters of a body in an error message


@dataclass(frozen=True)
class Request:
    """What the next request adds to the query of the URL and to the headers.

    >>> print(Request(params={"since": "17"}))
    Request(params={'since': '17'}, headers={})
    """

    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str | bytes] = field(default_factory=dict)


class Http:
    """A URL that is read as a stream. One thread uses it; any thread may call `close()`.

    Plain `http:` is for this machine only, unless `allow_http` is set. A connection on which nothing arrives
    for `idle_timeout` is given up. `retry` is the first pause after a failure, `max_retries` limits the
    failures in a row, and `max_record_bytes` the length of a line. `random` and `now` are for tests.

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
        if idle_timeout <= timedelta(0):
            raise ValueError(f"option 'idle_timeout' is {idle_timeout}, it must be longer than 0")
        self._headers = headers
        self._allow_http = allow_http
        self._idle_seconds = idle_timeout.total_seconds()
        self._max_retries = max_retries
        self._max_record_bytes = max_record_bytes
        self._now = now
        self._backoff = Backoff(max(0.0, retry.total_seconds()), _MAX_PAUSE_SECONDS, random)
        self._failures = 0  # in a row
        self._server_known = False  # it has given a good response
        self._closed = threading.Event()
        self._socket = CurrentSocket()

    def connections(self, request: Callable[[], Request] = Request) -> Iterator[Connection]:
        """Yields one response of status 200 or 204 after another until `close()`, with pauses in between.

        `request` is called before each attempt. Temporary failures are logged and retried. Permanent ones,
        and more than `max_retries` failures in a row, raise an HttpError.
        """
        while not self._closed.is_set():
            try:
                with Session(self._socket) as session:
                    connection = self._connect(session, request())
                    yield connection
                    failure = connection.failure
                    if connection.received:
                        self._failures = 0
            except RetryableError as error:
                failure = error
            finally:
                self._socket.drop()
            self._pause(failure)

    def close(self) -> None:
        """Ends a connect, a wait for bytes and a pause immediately and permanently."""
        self._closed.set()
        self._socket.close()

    def pause_for(self, seconds: float) -> None:
        """Sets the pause between connections to what the server asks for: 0.1 seconds to a minute."""
        first = min(max(seconds, _MIN_PAUSE_SECONDS), _MAX_PAUSE_SECONDS)
        self._backoff = replace(self._backoff, first=first)

    def _connect(self, session: Session, request: Request) -> Connection:
        """Follows redirects, each of which is checked like the URL itself."""
        url = with_params(self.url, request.params)
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._send(session, url, request)
            location = response.headers.get("Location")
            if response.status_code not in _REDIRECT_STATUSES or location is None:
                connection = Connection(response, self._max_record_bytes)
                self._check_status(connection)
                return connection
            self._socket.drop()
            url = self._redirect(url, location)
        raise HttpError(f"{redact(self.url)} leads to more than {_MAX_REDIRECTS} redirects")

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
        timeouts = (_CONNECT_SECONDS, self._idle_seconds)
        try:
            with self._socket.deadline(_CONNECT_SECONDS + self._idle_seconds):
                return session.get(url, headers=headers, timeout=timeouts, stream=True, allow_redirects=False)
        except (requests.RequestException, OSError, ValueError) as error:
            failure = classify(error, server_known=self._server_known)
        # Raised outside of the handler: the message of the original error may contain a secret.
        raise type(failure)(f"{redact(url)}: {failure}")

    def _check_status(self, connection: Connection) -> None:
        status = connection.status
        if status in (200, 204):
            self._server_known = True
            return
        message = f"{redact(connection.url)} responds with status {status}{self._excerpt(connection)}"
        if status in _RETRYABLE_STATUSES or status >= 500:
            raise RetryableError(message, _retry_after(connection.headers.get("retry-after"), self._now))
        raise HttpError(message, status)

    def _excerpt(self, connection: Connection) -> str:
        """The beginning of the body, without what was sent, which some servers repeat."""
        with suppress(HttpError), self._socket.deadline(_CONNECT_SECONDS):
            text = b"".join(islice(connection.chunks(), 4)).decode("utf-8", "replace")
            for value in parse_headers(self._headers).values():
                for secret in (value, *value.split()):
                    text = text.replace(secret, "***")
            text = " ".join(text.split())
            return f": {text[:_MAX_EXCERPT]}" if text else ""
        return ""

    def _pause(self, failure: RetryableError | None) -> None:
        if self._closed.is_set():
            return
        if failure is None:  # the response came to its proper end
            self._failures = 0
            self._closed.wait(self._backoff.delay(1))
            return
        self._failures += 1
        seconds = self._backoff.delay(self._failures)
        if failure.retry_after is not None:
            seconds = min(failure.retry_after, _MAX_RETRY_AFTER_SECONDS)
        if self._max_retries is not None and self._failures > self._max_retries:
            raise HttpError(f"{failure}; gave up after max_retries={self._max_retries}")
        _LOG.warning("%s: %s; retrying in %.1f s", redact(self.url), failure, seconds)
        self._closed.wait(seconds)


def _retry_after(value: str | None, now: Callable[[], float] = time.time) -> float | None:
    """The seconds of a header `Retry-After`, which is a number or a date; None if it is neither.

    >>> _retry_after("120"), _retry_after("soon"), _retry_after("Thu, 01 Jan 1970 00:01:00 GMT", lambda: 20.0)
    (120.0, None, 40.0)
    """
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now())
    except (ValueError, TypeError, OverflowError):
        return None
