"""Calls of an author's methods, on a few threads, each with an instance of the source of its own.

A call that takes too long is given up, and its thread with it: the instance is closed from another thread, to
unblock it, and a new thread takes its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic
from typing import Any

from headwater._feed.threads import interrupt
from headwater._partitioned.worker import Call, Outcome, Worker

__all__ = ["Calls", "TooManyStuckError"]

_FEW, _MANY = 4, 32
_PATIENCE_SECONDS, _STEP_SECONDS = 1.0, 0.2  # patience: for calls to end before they are interrupted


class TooManyStuckError(RuntimeError):
    """So many calls do not return that no more can be made."""


class Calls:
    """The threads, and the calls that wait for one.

    `make` gives a new instance of the source, and `close` closes one; that must not raise.
    """

    def __init__(
        self, make: Callable[[], Any], close: Callable[[Any], None], name: str, timeout: float
    ) -> None:
        self._make = make
        self._close = close
        self._name = name
        self._timeout = timeout
        self._waiting: SimpleQueue[Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._open = 0
        self._workers: list[Worker] = []
        self._stuck: list[Worker] = []
        self._is_closed = False

    def put(self, call: Call) -> None:
        """It is made as soon as a thread is free."""
        with self._lock:
            self._open += 1
            if self._open > len(self._workers) < _FEW:
                self._hire()
        self._waiting.put(call)

    def grow(self) -> None:
        """To be called when nothing was done for a while: one thread more, if calls wait for one."""
        with self._lock:
            if not self._waiting.empty() and len(self._workers) < _MANY:
                self._hire()

    def give_up(self) -> None:
        """To be called now and then: calls that have taken too long fail, and lose their threads."""
        late = monotonic() - self._timeout
        with self._lock:
            found = [(worker, worker.call) for worker in self._workers if worker.call and worker.since < late]
            for worker, call in found:
                worker.is_given_up = True
                self._workers.remove(worker)
                self._stuck.append(worker)
                self._open -= 1
                error = TimeoutError(f"it has not returned for {self._timeout:g} s")
                call.done(call, Outcome(error=error, is_stuck=True))  # here, as the call may return any time
            self._stuck = [worker for worker in self._stuck if worker.thread.is_alive()]
            stuck = len(self._stuck)
        for worker, _ in found:
            self._close_elsewhere(worker)
        if stuck >= _MANY:
            raise TooManyStuckError(f"{stuck} calls do not return, and close() does not unblock them")

    def close(self) -> None:
        """Let the threads go, and make no call that waits. Instances in use are closed, to unblock them."""
        with self._lock:
            self._is_closed = True
            workers = [*self._workers, *self._stuck]
        for worker in workers:
            worker.is_given_up = True
            self._waiting.put(None)
            if worker.call is not None:
                self._close_elsewhere(worker)

    def join(self, deadline: float) -> bool:
        """After `close`: whether all threads have ended by then. Those that do not are interrupted."""
        patience = min(deadline, monotonic() + _PATIENCE_SECONDS)
        with self._lock:
            left = [worker.thread for worker in (*self._workers, *self._stuck)]
        for thread in left:
            thread.join(max(0.0, patience - monotonic()))
        while (left := [thread for thread in left if thread.is_alive()]) and monotonic() < deadline:
            for thread in left:
                interrupt(thread)
            left[0].join(_STEP_SECONDS)
        return not left

    @property
    def is_alive(self) -> bool:
        with self._lock:
            return any(worker.thread.is_alive() for worker in (*self._workers, *self._stuck))

    def _hire(self) -> None:
        if not self._is_closed:
            worker = Worker(self._make, self._close, self._waiting, self._lock, self._over, self._name)
            self._workers.append(worker)

    def _over(self) -> None:
        self._open -= 1

    def _close_elsewhere(self, worker: Worker) -> None:
        with suppress(RuntimeError):  # this process ends, and takes no new threads
            threading.Thread(target=worker.close, name=f"{self._name}-close", daemon=True).start()
