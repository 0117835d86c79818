"""What feeds need of threads and of logging that Python does not have ready."""

from __future__ import annotations

import ctypes
import logging
import random
import threading
from collections.abc import Callable, MutableMapping
from time import monotonic
from typing import Any

from headwater.runtime.protocol import FeedRequest

__all__ = ["FeedStopped", "ThreadGroup", "back_off", "interrupt", "log_of"]


class FeedStopped(BaseException):
    """Raised in the feed's thread when it has to end. No Exception: an author's handlers let it pass."""


class ThreadGroup:
    """The threads of one feed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads: list[threading.Thread] = []

    def new(self, role: str, work: Callable[[], None]) -> threading.Thread:
        self._threads += [threading.Thread(target=work, name=self._name + role, daemon=True)]
        return self._threads[-1]

    def join(self, deadline: float) -> None:
        """Wait for all of them, those that were started."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - monotonic()))

    @property
    def is_alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)


def interrupt(thread: threading.Thread) -> None:
    """Raise FeedStopped in that thread, at the next instruction of Python that it comes to."""
    if thread.ident is not None:
        number = ctypes.c_ulong(thread.ident)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(FeedStopped))


def back_off(failures: int) -> float:
    """How many seconds to wait after so many failures in a row: longer each time, and never the same."""
    longest = min(30.0, 0.5 * 2.0 ** min(failures - 1, 10))
    return longest * random.uniform(0.5, 1)  # noqa: S311


def log_of(order: FeedRequest) -> logging.LoggerAdapter[logging.Logger]:
    """A log that has source and query in every line."""
    shard = f", shard {order.shard.index} of {order.shard.count}" if order.shard.count > 1 else ""
    return _Prefixed(
        logging.getLogger("headwater.feed"), {"prefix": f"[{order.name}{shard}, query {order.query}]"}
    )


class _Prefixed(logging.LoggerAdapter):  # type: ignore[type-arg]
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"{(self.extra or {})['prefix']} {msg}", kwargs
