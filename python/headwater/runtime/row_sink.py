"""Calls a function with the rows that a query hands to this process one by one."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from headwater.errors import explain
from headwater.runtime.protocol import Reply

__all__ = ["RowSink"]


class RowSink:
    """Calls `function` with one row after the other, in a thread that ends when there are no more for now.

    The reply says whether the function has returned, or what it has raised.
    """

    def __init__(self, function: Callable[[dict[str, Any]], object]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._rows: deque[tuple[str, Reply]] = deque()
        self._is_running = False

    def add(self, row: str, reply: Reply) -> None:
        """`row` is a JSON object. Returns at once."""
        with self._lock:
            self._rows.append((row, reply))
            if self._is_running:
                return
            self._is_running = True
        threading.Thread(target=self._run, name="headwater-foreach", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._rows:
                    self._is_running = False
                    return
                row, reply = self._rows.popleft()
            try:
                self._function(json.loads(row))
            except BaseException as error:  # SystemExit too: whatever it raises fails the query
                reply.fail(explain(error, [], "It was raised by the function that hw.foreach was given."))
            else:
                reply.send({})
