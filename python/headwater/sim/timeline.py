"""When each record of a simulator exists, and which time it carries."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone

__all__ = ["ENDLESS", "Timeline"]

ENDLESS = 1 << 62
"""More records than any reader will take."""

_NOMINAL_RATE = 1000
"""With a rate of 0 all records exist at once. Their times are those of so many records per second."""

_TIME_OF = (0, 1, 2, 2, 2, 5, 6, 6)
"""Of eight records in a row, which one's time each carries: in real feeds several records share one."""


class Timeline:
    """`rate` records per second exist, starting now; with a rate of 0 all exist at once.

    A record carries the time at which it comes to exist, counted from `start`, or a slightly earlier one.

    >>> timeline = Timeline(rate=100, count=None, start=datetime(2024, 1, 1, tzinfo=timezone.utc))
    >>> [timeline.stamp(n) - timeline.stamp(0) for n in range(9)]
    [0, 10, 20, 20, 20, 50, 60, 60, 80]
    >>> timeline.first_from(timeline.stamp(0) + 20), timeline.first_from(timeline.stamp(0) + 21)
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
            raise ValueError(f"count is {count!r}, it must be 0 or more records, or None for no limit")
        if start is not None and start.tzinfo is None:
            raise ValueError(f"start is {start.isoformat()}, it must have a time zone")
        self.rate = rate
        self.end = ENDLESS if count is None else count
        self._start = int((start or datetime.now(timezone.utc)).timestamp() * 1000)
        self._clock = clock
        self._began = clock()

    @property
    def made(self) -> int:
        """How many records exist now."""
        if self.rate == 0:
            return self.end
        return min(self.end, int((self._clock() - self._began) * self.rate) + 1)

    @property
    def live(self) -> int:
        """The first record for a reader that asks for no earlier ones. With a rate of 0 it is record 0."""
        return self.made if self.rate else 0

    def newest(self, count: int) -> int:
        """The first of the `count` newest records; record 0 if there is no newest one."""
        return 0 if self.made == ENDLESS else max(0, self.made - count)

    def finish(self) -> None:
        """No more records come to exist."""
        self.end = self.made

    def seconds_to(self, n: int) -> float | None:
        """The seconds until record n exists; None if it never will."""
        if n >= self.end:
            return None
        return max(0.0, n / self.rate - (self._clock() - self._began)) if self.rate else 0.0

    def stamp(self, n: int) -> int:
        """The time of record n, in milliseconds since 1970. It never decreases from record to record."""
        same_time_as = n - n % len(_TIME_OF) + _TIME_OF[n % len(_TIME_OF)]
        return self._start + int(same_time_as * 1000 / (self.rate or _NOMINAL_RATE))

    def first_from(self, stamp: int) -> int:
        """The first record of that time or a later one."""
        n = max(0, int((stamp - self._start) * (self.rate or _NOMINAL_RATE) / 1000) - 1)
        while self.stamp(n) < stamp:
            n += 1
        while n > 0 and self.stamp(n - 1) >= stamp:
            n -= 1
        return n
