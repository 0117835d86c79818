"""Errors of HTTP feeds: permanent ones and those worth a retry.

No message contains what was sent, which may be secret.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator

import requests

__all__ = ["HttpError", "RetryableError", "classify"]


class HttpError(Exception):
    """An HTTP feed cannot continue. `status` is the status of the response, if there was one.

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


class RetryableError(Exception):
    """A request failed and may succeed later. `retry_after`: the seconds that the server asks to wait."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def classify(error: Exception, *, server_known: bool) -> HttpError | RetryableError:
    """Decides whether a failed request or read is worth a retry.

    `server_known` means that this server has already given a good response. TLS and protocol errors are then
    taken for passing ones; before that they mean that the URL is wrong.
    """
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return HttpError(f"its certificate is refused: {cause.verify_message}")
    doubtful = RetryableError if server_known else HttpError
    for cause in reversed(causes):  # the innermost cause is the most specific
        if isinstance(cause, ssl.SSLError) and not isinstance(
            cause, ssl.SSLEOFError | ssl.SSLZeroReturnError
        ):
            return doubtful(f"TLS fails: {cause.reason or 'no reason given'}")
        if isinstance(cause, TimeoutError | requests.Timeout):
            return RetryableError("it timed out")
        if isinstance(cause, OSError) and not isinstance(cause, requests.RequestException):
            return RetryableError(cause.strerror or type(cause).__name__)
        if isinstance(cause, http.client.IncompleteRead) or _is_cut_status_line(cause):
            return RetryableError("the response was cut off")
        if isinstance(cause, http.client.HTTPException):
            return doubtful(f"this is not HTTP: {type(cause).__name__}")
    if isinstance(error, requests.ConnectionError):
        return RetryableError("the connection failed")
    return HttpError(f"the request cannot be sent: {type(error).__name__}")


def _is_cut_status_line(error: BaseException) -> bool:
    line = str(getattr(error, "line", "")).strip("'")
    return isinstance(error, http.client.BadStatusLine) and "HTTP/".startswith(line[:5])


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes, outermost first. urllib3 and requests keep some in `args` and `reason`."""
    seen: list[BaseException] = []
    queue: list[object] = [error]
    while queue:
        cause = queue.pop(0)
        if isinstance(cause, BaseException) and cause not in seen:
            seen.append(cause)
            yield cause
            queue += [cause.__cause__, cause.__context__, *cause.args, getattr(cause, "reason", None)]
