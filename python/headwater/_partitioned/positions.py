"""What is known of the partitions, in versions. Who asks for a newer one is answered when it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Positions"]

Answer = Callable[[dict[str, Any]], None]


class Positions:
    """Used by any thread. Answers are given in the thread that publishes, or at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version = 0
        self._known: dict[str, Any] = {}
        self._waiting: list[tuple[int, Answer]] = []
        self._is_closed = False

    @property
    def known(self) -> dict[str, Any]:
        with self._lock:
            return self._known

    def publish(self, known: dict[str, Any]) -> bool:
        """Whether it is something new, and so a new version."""
        with self._lock:
            if self._is_closed or known == self._known:
                return False
            self._version += 1
            self._known = known
        self._answer()
        return True

    def when_newer(self, version: int, answer: Answer) -> None:
        """Called once: with the first version that is newer, or when there will be no more."""
        with self._lock:
            self._waiting.append((version, answer))
        self._answer()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._answer()

    def _answer(self) -> None:
        with self._lock:
            due = [one for one in self._waiting if self._is_closed or one[0] < self._version]
            self._waiting = [one for one in self._waiting if one not in due]
            body = {"stopped": True} if self._is_closed else self._known
            body = {"version": self._version, **body}
        for _, answer in due:
            answer(body)
