"""Faults that wait for their moment, and those that have come."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from headwater.sim._faults import Fault
from headwater.sim._timeline import ENDLESS

__all__ = ["Armed"]


class Armed:
    """Shared by all connections of a simulator: a fault that one has had is gone for the others."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._lock = threading.Lock()
        self._left = sorted(
            (fault for each in faults for fault in [each] * each.times), key=lambda fault: fault.after
        )
        self._come: list[Fault] = []
        self.next_record = 0
        """Before this record none comes: looked at without the lock, to be quick."""
        self._look_ahead()

    @property
    def come(self) -> list[Fault]:
        with self._lock:
            return list(self._come)

    def at_request(self, reached: int) -> Fault | None:
        """What a request is answered with when so many records were sent."""
        with self._lock:
            return self._take([fault for fault in self._left if fault.of_request and fault.after <= reached])

    def at_record(self, n: int, data: bytes) -> Fault | None:
        """What happens before record n, or to it."""
        if n < self.next_record:
            return None
        with self._lock:
            due = [fault for fault in self._left if not fault.of_request and fault.after <= n]
            return self._take([fault for fault in due if fault.fits(data)])

    def _take(self, due: list[Fault]) -> Fault | None:
        if not due:
            return None
        self._left.remove(due[0])
        self._come.append(due[0])
        self._look_ahead()
        return due[0]

    def _look_ahead(self) -> None:
        afters = [fault.after for fault in self._left if not fault.of_request]
        self.next_record = min(afters, default=ENDLESS)
