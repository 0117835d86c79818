"""A value that the JVM waits for: each change makes a new version."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Published"]


class Published:
    """The newest value, a JSON object, with a version.

    All methods may be called from any thread, and none blocks. A listener is called in the thread that
    publishes, or at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version = 0
        self._value: dict[str, Any] = {}
        self._listeners: list[tuple[int, Callable[[dict[str, Any]], None]]] = []
        self._is_closed = False

    def publish(self, value: dict[str, Any]) -> bool:
        """Whether it differs from the one before, which makes a new version."""
        with self._lock:
            if self._is_closed or value == self._value:
                return False
            self._version += 1
            self._value = value
        self._notify()
        return True

    def when_newer(self, version: int, listener: Callable[[dict[str, Any]], None]) -> None:
        """Call it once: with the first value that is newer, or with `stopped` once this is closed."""
        with self._lock:
            self._listeners.append((version, listener))
        self._notify()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._notify()

    def _notify(self) -> None:
        with self._lock:
            due = [entry for entry in self._listeners if self._is_closed or entry[0] < self._version]
            self._listeners = [entry for entry in self._listeners if entry not in due]
            body = {"stopped": True} if self._is_closed else self._value
            body = {"version": self._version, **body}
        for _, listener in due:
            listener(body)
