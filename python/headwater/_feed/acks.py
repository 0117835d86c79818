"""Tells a source which of its cursors are durable, in a thread of its own: its answer may take long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from headwater._feed.threads import Crew

__all__ = ["Acks"]

_NOTHING = object()


class Acks:
    """The newest cursor stands for all before it, so of those that wait only that one is told."""

    def __init__(self, tell: Callable[[Any], None], crew: Crew) -> None:
        self._tell = tell
        self._crew = crew
        self._changed = threading.Condition()
        self._cursor: Any = _NOTHING
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, cursor: Any) -> None:
        """All rows up to that cursor are durable."""
        with self._changed:
            self._cursor = cursor
            if self._thread is None and not self._closed:
                self._thread = self._crew.new("-ack", self._work)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._cursor is not _NOTHING)
                cursor, self._cursor = self._cursor, _NOTHING
            if cursor is _NOTHING:
                return
            self._tell(cursor)
