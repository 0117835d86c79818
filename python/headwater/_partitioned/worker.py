"""A thread that calls an author's methods, on an instance of the source of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from time import monotonic, thread_time
from typing import Any

from headwater._feed.threads import FeedStopped

__all__ = ["Call", "Outcome", "Worker"]


@dataclass(frozen=True)
class Outcome:
    """Of a call. One that is stuck has two: the time-out, and `was_stuck` once it has returned after all."""

    value: Any = None
    error: BaseException | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    is_stuck: bool = False
    was_stuck: bool = False


@dataclass(frozen=True, eq=False)
class Call:
    """A method with its arguments. `done` is called with each outcome, in any thread, and returns at once."""

    method: str
    args: tuple[Any, ...]
    done: Callable[[Call, Outcome], None]

    def __str__(self) -> str:
        return f"{self.method}({', '.join(map(repr, self.args))})"

    def of(self, instance: Callable[[], Any]) -> Outcome:
        begun, cpu = monotonic(), thread_time()
        value, failure = None, None
        try:
            value = getattr(instance(), self.method)(*self.args)
        except BaseException as error:  # SystemExit too: an author's code does not end the thread
            failure = error
        return Outcome(value, failure, monotonic() - begun, thread_time() - cpu)


class Worker:
    """One thread, its instance of the source, and the call that it makes. The lock is that of all of them."""

    def __init__(
        self,
        make: Callable[[], Any],
        close: Callable[[Any], None],
        waiting: SimpleQueue[Call | None],
        lock: threading.Lock,
        over: Callable[[], None],
        name: str,
    ) -> None:
        self._make = make
        self._close = close
        self._waiting = waiting
        self._lock = lock
        self._over = over
        self._source: Any = None
        self.is_given_up = False
        self.call: Call | None = None
        self.since = 0.0
        self.thread = threading.Thread(target=self._work, name=f"{name}-call", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """The instance, once, whoever comes first."""
        with self._lock:
            source, self._source = self._source, None
        if source is not None:
            self._close(source)

    def _work(self) -> None:
        with suppress(FeedStopped):
            while not self.is_given_up and (call := self._waiting.get()) is not None:
                self._do(call)
        self.close()

    def _do(self, call: Call) -> None:
        with self._lock:
            self.call, self.since = call, monotonic()
        outcome = call.of(self._instance)
        if outcome.error is not None:
            self.close()  # it may be in any state
        with self._lock:
            self.call = None
            if self.is_given_up:
                outcome = Outcome(was_stuck=True)
            else:
                self._over()
        call.done(call, outcome)

    def _instance(self) -> Any:
        source = self._source  # which may be closed at any time, from elsewhere
        if source is None:
            source = self._make()
            with self._lock:
                self._source = source
        return source
