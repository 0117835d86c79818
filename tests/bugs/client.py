"""A client as many a library has one, for sources to be written on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

__all__ = ["Client"]


class Client:
    """Calls back with 0, 1, 2 … as fast as it can, from a thread of its own, until it is closed."""

    made: ClassVar[list[Client]] = []

    def __init__(self, on_message: Callable[[int], None]) -> None:
        self.on_message = on_message
        self.closed = threading.Event()
        self.sent = 0
        self.thread = threading.Thread(target=self._send, name="client", daemon=True)
        self.thread.start()
        self.made.append(self)

    def _send(self) -> None:
        while not self.closed.is_set():
            self.on_message(self.sent)
            self.sent += 1

    def close(self) -> None:
        self.closed.set()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
