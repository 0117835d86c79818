"""When record n comes, and what time it says that it is of."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone

__all__ = ["ENDLESS", "Timeline"]

ENDLESS = 1 << 62
"""More records than any reader will take."""

_NOMINAL = 1000
"""Records that come as fast as they can still have times: as if so many came in a second."""

_LEADERS = (0, 1, 2, 2, 2, 5, 6, 6)
"""Of eight records in a row, whose time each has: real feeds give one to several records."""


class Timeline:
    """`rate` records come in a second, from the moment that it is made; with 0 all are there at once.

    The time that a record says is that of its coming, counted from `start`, or a little before.

    >>> hour = Timeline(rate=100, count=None, start=datetime(2024, 1, 1, tzinfo=timezone.utc))
    >>> [hour.stamp(n) - hour.stamp(0) for n in range(9)]
    [0, 10, 20, 20, 20, 50, 60, 60, 80]
    >>> hour.first_from(hour.stamp(0) + 20), hour.first_from(hour.stamp(0) + 21)
    (2, 5)
    """

    def __init__(
        self,
        rate: float,
        count: int | None,
        start: datetime | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 <= rate < float("inf"):
            raise ValueError(f"rate is {rate!r}, it must be 0 or more records per second")
        if count is not None and count < 0:
            raise ValueError(f"count is {count!r}, it must be 0 or more records, or None for no end")
        if start is not None and start.tzinfo is None:
            raise ValueError(f"start is {start.isoformat()}, it must have a time zone")
        self.rate = rate
        self.end = ENDLESS if count is None else count
        self._start = int((start or datetime.now(timezone.utc)).timestamp() * 1000)
        self._clock = clock
        self._began = clock()

    @property
    def made(self) -> int:
        """How many records there are by now."""
        if self.rate == 0:
            return self.end
        return min(self.end, int((self._clock() - self._began) * self.rate) + 1)

    @property
    def live(self) -> int:
        """The next record, for a reader who asks for no earlier one. Without a rate that is the first."""
        return self.made if self.rate else 0

    def newest(self, count: int) -> int:
        """The first of the `count` newest records; without an end to them, of all."""
        return 0 if self.made == ENDLESS else max(0, self.made - count)

    def finish(self) -> None:
        """No record comes after those that there are."""
        self.end = self.made

    def seconds_to(self, n: int) -> float | None:
        """How long until record n is there; None if it will never be."""
        if n >= self.end:
            return None
        return max(0.0, n / self.rate - (self._clock() - self._began)) if self.rate else 0.0

    def stamp(self, n: int) -> int:
        """The time of record n, in milliseconds since 1970. It never goes back from one to the next."""
        leader = n - n % len(_LEADERS) + _LEADERS[n % len(_LEADERS)]
        return self._start + int(leader * 1000 / (self.rate or _NOMINAL))

    def first_from(self, stamp: int) -> int:
        """The first record of that time or a later one."""
        n = max(0, int((stamp - self._start) * (self.rate or _NOMINAL) / 1000) - 1)
        while self.stamp(n) < stamp:
            n += 1
        while n > 0 and self.stamp(n - 1) >= stamp:
            n -= 1
        return n
