"""`Http`: connects, follows redirects, retries with back-off."""

from __future__ import annotations

import logging
import random as random_module
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import parsedate_to_datetime
from itertools import islice
from urllib.parse import urljoin

import requests
from requests.structures import CaseInsensitiveDict

from headwater import Secret
from headwater.http.address import checked, headers_of, origin, shown, with_params
from headwater.http.connection import Connection
from headwater.http.errors import BrokenError, HttpError, sorted_out
from headwater.http.transport import Session, Wire

__all__ = ["Http", "Pauses", "Request", "retry_after"]

LONGEST = 60.0  # seconds
LONGEST_ASKED = 600.0  # seconds: a server that asks for more is asked again by then


class Pauses:
    """Each failure in a row doubles the pause, up to a minute; half of it is random, so that clients spread.

    >>> pauses = Pauses(1.0, random=lambda: 1.0)
    >>> [pauses.failed() for _ in range(8)], pauses.ended()
    ([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0], 1.0)
    """

    def __init__(self, first: float, random: Callable[[], float]) -> None:
        self.first = first
        self.failures = 0
        self._random = random

    def failed(self, asked: float | None = None) -> float:
        """After a failure; `asked` is what the server wants, and is taken as it is."""
        self.failures += 1
        if asked is not None:
            return min(asked, LONGEST_ASKED)
        return self._spread(min(LONGEST, self.first * 2.0 ** min(self.failures - 1, 60)))

    def ended(self) -> float:
        """After an answer that came to its proper end."""
        self.failures = 0
        return self._spread(self.first)

    def _spread(self, seconds: float) -> float:
        return seconds * (0.5 + self._random() / 2)


def retry_after(value: str | None, now: Callable[[], float] = time.time) -> float | None:
    """The header `Retry-After`, seconds or a date, as seconds from now; None if it is neither.

    >>> retry_after("120"), retry_after("soon"), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", lambda: 20.0)
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


_LOG = logging.getLogger("headwater.http")
_REDIRECTS, _MOST_REDIRECTS = (301, 302, 303, 307, 308), 5
_TEMPORARY = (408, 425, 429)
_CONNECT_SECONDS = 10.0
_SHORT = 200  # characters of a body in a message


@dataclass(frozen=True)
class Request:
    """What the next try adds: to the query of the URL, and to the headers.

    >>> print(Request(params={"since": "17"}))
    Request(params={'since': '17'}, headers={})
    """

    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str | bytes] = field(default_factory=dict)


class Http:
    """A URL that is read as a stream. Used by one thread; `close()` may come from any.

    `http:` is for this machine, or with `allow_http`. `idle_timeout` is how long nothing may come, `retry`
    the first pause after a failure, `max_retries` how many failures in a row are borne, and
    `max_record_bytes` how long a line may be. `random` and `now` are for tests.

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
        self.url = checked(url, allow_http=allow_http)
        headers_of(headers)  # mistakes are told now
        if max_retries is not None and max_retries < 0:
            raise ValueError(f"option 'max_retries' is {max_retries}, it must be 0 or more")
        if max_record_bytes < 1:
            raise ValueError(f"option 'max_record_bytes' is {max_record_bytes}, it must be 1 or more")
        if idle_timeout <= timedelta(0):
            raise ValueError(f"option 'idle_timeout' is {idle_timeout}, it must be longer")
        self._headers, self._allow_http = headers, allow_http
        self._idle, self._max_retries = idle_timeout.total_seconds(), max_retries
        self._max_record_bytes, self._now = max_record_bytes, now
        self._pauses = Pauses(max(0.0, retry.total_seconds()), random)
        self._answered = False
        self._closed = threading.Event()
        self._wire = Wire()

    def connections(self, request: Callable[[], Request] = Request) -> Iterator[Connection]:
        """One answer of status 200 or 204 after the other, until this is closed; with pauses between.

        `request` is called before each try. Failures that may pass are logged, and tried again; others, and
        more than `max_retries` in a row, are an HttpError.
        """
        while not self._closed.is_set():
            try:
                with Session(self._wire) as session:
                    connection = self._ask(session, request())
                    yield connection
                    failure = connection.failure
                    if connection.received:
                        self._pauses.failures = 0
            except BrokenError as error:
                failure = error
            finally:
                self._wire.drop()
            self._wait(failure)

    def close(self) -> None:
        """Ends a connect, a wait for bytes and a pause, at once and for good."""
        self._closed.set()
        self._wire.close()

    def pause_for(self, seconds: float) -> None:
        """What the server wants to have between two connections: a tenth of a second to a minute is taken."""
        self._pauses.first = min(max(seconds, 0.1), LONGEST)

    def _ask(self, session: Session, request: Request) -> Connection:
        """Follows redirects, and checks each as the URL itself was."""
        url = with_params(self.url, request.params)
        for _ in range(_MOST_REDIRECTS + 1):
            response = self._send(session, url, request)
            place = response.headers.get("Location")
            if response.status_code not in _REDIRECTS or place is None:
                return self._judged(Connection(response, self._max_record_bytes))
            self._wire.drop()
            url = self._redirected(url, place)
        raise HttpError(f"{shown(self.url)} leads to more than {_MOST_REDIRECTS} redirects")

    def _redirected(self, url: str, place: str) -> str:
        try:
            # Never from https to http, not even on this machine: a stranger would say what is asked there.
            plain = self._allow_http or url.startswith("http:")
            found = checked(urljoin(url, place), allow_http=self._allow_http, what="it")
            if not plain and found.startswith("http:"):
                raise ValueError(f"it is {shown(found)!r}: from https to http")
        except ValueError as error:
            raise HttpError(f"the redirect from {shown(url)} is refused: {error}") from None
        return found

    def _send(self, session: Session, url: str, request: Request) -> requests.Response:
        headers: CaseInsensitiveDict[str | bytes] = CaseInsensitiveDict({"User-Agent": "headwater"})
        if origin(url) == origin(self.url):
            headers.update(headers_of(self._headers))
        headers.update({**request.headers, "Accept-Encoding": "gzip, deflate"})
        timeouts = (_CONNECT_SECONDS, self._idle)
        try:
            with self._wire.within(_CONNECT_SECONDS + self._idle):
                return session.get(url, headers=headers, timeout=timeouts, stream=True, allow_redirects=False)
        except (requests.RequestException, OSError, ValueError) as error:
            found = sorted_out(error, answered=self._answered)
            said = f"{shown(url)}: {found}"
        raise type(found)(said)  # outside of the handler: what requests says may hold what must not be seen

    def _judged(self, connection: Connection) -> Connection:
        status = connection.status
        if status in (200, 204):
            self._answered = True
            return connection
        message = f"{shown(connection.url)} answers {status}{self._excerpt(connection)}"
        if status in _TEMPORARY or status >= 500:
            raise BrokenError(message, retry_after(connection.headers.get("retry-after"), self._now))
        raise HttpError(message, status)

    def _excerpt(self, connection: Connection) -> str:
        """How the body begins; what we sent is struck out, for some servers say it back."""
        with suppress(HttpError), self._wire.within(_CONNECT_SECONDS):
            text = b"".join(islice(connection.chunks(), 4)).decode("utf-8", "replace")
            for value in headers_of(self._headers).values():
                for secret in (value, *value.split()):
                    text = text.replace(secret, "***")
            text = " ".join(text.split())
            return f": {text[:_SHORT]}" if text else ""
        return ""

    def _wait(self, failure: BrokenError | None) -> None:
        if self._closed.is_set():
            return
        if failure is None:
            self._closed.wait(self._pauses.ended())
            return
        pause = self._pauses.failed(failure.after)
        if self._max_retries is not None and self._pauses.failures > self._max_retries:
            raise HttpError(f"{failure}; max_retries={self._max_retries} in a row are over")
        _LOG.warning("%s: %s; the next try is in %.1f s", shown(self.url), failure, pause)
        self._closed.wait(pause)
