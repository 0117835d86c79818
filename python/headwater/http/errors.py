"""What goes wrong over HTTP: for good, or for now. No text here says what was sent, which may be secret."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator

import requests

__all__ = ["BrokenError", "HttpError", "sorted_out"]

_CUT_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError)


class HttpError(Exception):
    """A feed over HTTP cannot go on. `status` is that of the answer, where there was one.

    >>> from headwater.http import Http
    >>> from headwater.sim import RsvpSim, Status
    >>> with RsvpSim(faults=[Status(404)]) as sim:
    ...     try:
    ...         next(Http(sim.url).connections())
    ...     except HttpError as error:
    ...         print(error.status)
    404
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class BrokenError(Exception):
    """A try has failed, another may do better; `after`: how many seconds the server wants to have first."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


def sorted_out(error: Exception, *, answered: bool) -> Exception:
    """What a failed request means: a BrokenError or an HttpError. `answered`: this server did well before."""
    causes = list(_chain(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return HttpError(f"its certificate is refused: {cause.verify_message}")
    for cause in reversed(causes):  # the deepest says most
        if isinstance(cause, ssl.SSLError) and not isinstance(
            cause, ssl.SSLEOFError | ssl.SSLZeroReturnError
        ):
            return (BrokenError if answered else HttpError)(f"TLS fails: {cause.reason or 'no reason given'}")
        if isinstance(cause, TimeoutError | requests.Timeout):
            return BrokenError("it timed out")
        if isinstance(cause, OSError) and not isinstance(cause, requests.RequestException):
            return BrokenError(cause.strerror or type(cause).__name__)
        line = str(getattr(cause, "line", "")).strip("'")
        if isinstance(cause, http.client.BadStatusLine) and "HTTP/".startswith(line[:5]):
            return BrokenError("the answer was cut off")
        if isinstance(cause, http.client.HTTPException):
            return (BrokenError if answered else HttpError)(f"that is no HTTP: {type(cause).__name__}")
    if isinstance(error, requests.ConnectionError):
        return BrokenError("the connection failed")
    return HttpError(f"the request cannot be made: {type(error).__name__}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was made of. urllib3 and requests keep the cause among the arguments."""
    found: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, BaseException) and one not in found:
            found.append(one)
            yield one
            waiting += [one.__cause__, one.__context__, *one.args, getattr(one, "reason", None)]
