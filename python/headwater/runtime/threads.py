"""Threads that run an author's code: how long to wait for them, and how to interrupt them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic

__all__ = ["Deadline", "FeedStopped", "ThreadGroup", "join_or_interrupt"]


class FeedStopped(BaseException):
    """Raised in a thread that has to end. Not an Exception, so that an author's handlers let it pass."""


@dataclass(frozen=True)
class Deadline:
    """A point in time on the monotonic clock. It is handed down to everything that has to be done by then."""

    time: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(monotonic() + seconds)

    @property
    def remaining(self) -> float:
        """Seconds until then; 0 once it has passed."""
        return max(0.0, self.time - monotonic())

    def portion(self, share: float) -> Deadline:
        """An earlier deadline: only `share` of the remaining time, a number from 0 to 1."""
        return Deadline.after(share * self.remaining)


class ThreadGroup:
    """The threads of one feed. They are daemons, so one that cannot be stopped does not block the exit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads: list[threading.Thread] = []

    def new(self, role: str, work: Callable[[], None]) -> threading.Thread:
        """Add a thread, which the caller starts."""
        thread = threading.Thread(target=work, name=self._name + role, daemon=True)
        self._threads.append(thread)
        return thread

    def join(self, deadline: Deadline) -> None:
        """Wait for all threads that were started."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(deadline.remaining)

    @property
    def is_alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)


_PATIENCE = 1 / 3
_INTERRUPT_SECONDS = 0.2


def join_or_interrupt(threads: Iterable[threading.Thread], deadline: Deadline) -> bool:
    """Wait for threads to end, and return whether all of them did.

    They get a third of the time to end by themselves. After that FeedStopped is raised in those that still
    run, repeatedly, because an author's code may catch it. A thread inside a C function that does not return,
    such as a blocking system call, cannot be interrupted.
    """
    patience = deadline.portion(_PATIENCE)
    running = [thread for thread in threads if thread.is_alive()]
    for thread in running:
        thread.join(patience.remaining)
    while (running := [thread for thread in running if thread.is_alive()]) and deadline.remaining > 0:
        for thread in running:
            _interrupt(thread)
        running[0].join(min(_INTERRUPT_SECONDS, deadline.remaining))
    return not running


def _interrupt(thread: threading.Thread) -> None:
    """Raise FeedStopped in that thread, at the next Python instruction that it executes."""
    if thread.ident is not None:
        ident = ctypes.c_ulong(thread.ident)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(FeedStopped))
