"""How long to wait before the next try."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

__all__ = ["Pauses", "retry_after"]

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
