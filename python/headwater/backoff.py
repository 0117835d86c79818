"""How long to wait before the next attempt, after failures in a row."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["RESTARTS", "Backoff"]


@dataclass(frozen=True)
class Backoff:
    """Exponential back-off with jitter.

    The delay starts at `first` seconds, doubles with each failure in a row, and never exceeds `cap` seconds.
    A random factor between 0.5 and 1 spreads clients that failed at the same moment. `random` returns numbers
    from 0 to 1.

    >>> backoff = Backoff(first=1.0, cap=60.0, random=lambda: 1.0)
    >>> [backoff.delay(failures) for failures in range(1, 9)]
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    """

    first: float
    cap: float
    random: Callable[[], float] = random_module.random

    def delay(self, failures: int) -> float:
        """Seconds to wait after `failures` failures in a row, 1 or more."""
        doublings = min(failures - 1, 60)  # 2.0 ** 1024 would overflow
        return min(self.cap, self.first * 2.0**doublings) * (0.5 + self.random() / 2)


RESTARTS = Backoff(first=0.5, cap=30.0)
"""Between restarts of a source: of a feed, of a call on the driver, of a read in a task."""
