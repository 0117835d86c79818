"""Calls of an author's methods on a pool of threads, each with a time limit.

The driver asks a partitioned source all the time how far its partitions go. Such a call may be slow or hang,
and must not hold up the others. Each thread has an instance of the source to itself, so methods need not be
thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from time import monotonic, thread_time
from typing import Any

from headwater.runtime.threads import AuthorThread, Deadline, FeedStopped, join_or_interrupt

__all__ = ["Call", "CallPool", "Outcome", "TooManyStuckError"]


@dataclass(frozen=True)
class Outcome:
    """How a call ended. A stuck call has two: the time-out, and `was_stuck` when it returns after all."""

    value: Any = None
    error: BaseException | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    is_stuck: bool = False
    was_stuck: bool = False


@dataclass(frozen=True, eq=False)
class Call:
    """A method with its arguments. `on_done` gets each outcome, in any thread, and returns at once."""

    method: str
    args: tuple[Any, ...]
    on_done: Callable[[Call, Outcome], None]

    def __str__(self) -> str:
        return f"{self.method}({', '.join(map(repr, self.args))})"

    def run(self, instance: Callable[[], Any]) -> Outcome:
        begun, cpu = monotonic(), thread_time()
        value, failure = None, None
        try:
            value = getattr(instance(), self.method)(*self.args)
        except BaseException as error:  # SystemExit too: an author's code does not end the thread
            failure = error
        return Outcome(value, failure, monotonic() - begun, thread_time() - cpu)


class TooManyStuckError(RuntimeError):
    """So many calls do not return that no more can be made."""


_MIN_THREADS, _MAX_THREADS = 4, 32


class CallPool:
    """A few threads that make calls, and the queue of calls that wait for one.

    `make` returns a new instance of the source; `close` closes one, and must not raise. `timeout` is the time
    limit of a call, in seconds.

    All methods may be called from any thread, and only `join` blocks. `grow` and `give_up` have to be called
    from time to time.
    """

    def __init__(
        self, make: Callable[[], Any], close: Callable[[Any], None], name: str, timeout: float
    ) -> None:
        self._make = make
        self._close = close
        self._name = name
        self._timeout = timeout
        self._queue: SimpleQueue[Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished = 0
        self._threads: list[_CallThread] = []
        self._stuck: list[_CallThread] = []
        self._is_closed = False

    def put(self, call: Call) -> None:
        """Make a call as soon as a thread is free."""
        with self._lock:
            self._unfinished += 1
            if self._unfinished > len(self._threads) < _MIN_THREADS:
                self._add_thread()
        self._queue.put(call)

    def grow(self) -> None:
        """Add a thread if calls are waiting for one. To be called when no call has returned for a while."""
        with self._lock:
            if not self._queue.empty() and len(self._threads) < _MAX_THREADS:
                self._add_thread()

    def give_up(self) -> None:
        """Let calls that have exceeded the time limit fail. Their threads are not used again."""
        latest_start = monotonic() - self._timeout
        with self._lock:
            stuck = [
                (thread, thread.call)
                for thread in self._threads
                if thread.call and thread.call_start < latest_start
            ]
            for thread, call in stuck:
                thread.is_given_up = True
                self._threads.remove(thread)
                self._stuck.append(thread)
                self._unfinished -= 1
                error = TimeoutError(f"it has not returned for {self._timeout:g} s")
                # Under the lock, so that it comes before the outcome of a call that returns just now.
                call.on_done(call, Outcome(error=error, is_stuck=True))
            self._stuck = [thread for thread in self._stuck if thread.thread.is_alive()]
            count = len(self._stuck)
        for thread, _ in stuck:
            self._close_in_thread(thread)
        if count >= _MAX_THREADS:
            raise TooManyStuckError(f"{count} calls do not return, and close() does not unblock them")

    def close(self) -> None:
        """End the threads, and drop calls that wait. Instances in use are closed, to unblock their calls."""
        with self._lock:
            self._is_closed = True
            threads = [*self._threads, *self._stuck]
        for thread in threads:
            thread.is_given_up = True
            self._queue.put(None)
            if thread.call is not None:
                self._close_in_thread(thread)

    def join(self, deadline: Deadline) -> bool:
        """After `close`: wait for all threads, or interrupt them, and return whether all have ended."""
        with self._lock:
            threads = [thread.thread for thread in (*self._threads, *self._stuck)]
        return join_or_interrupt(threads, deadline)

    @property
    def alive(self) -> list[AuthorThread]:
        with self._lock:
            threads = [thread.thread for thread in (*self._threads, *self._stuck)]
        return [thread for thread in threads if thread.is_alive()]

    def _add_thread(self) -> None:
        if not self._is_closed:
            self._threads.append(
                _CallThread(self._make, self._close, self._queue, self._lock, self._finished, self._name)
            )

    def _finished(self) -> None:
        self._unfinished -= 1

    def _close_in_thread(self, thread: _CallThread) -> None:
        with suppress(RuntimeError):  # no thread can be started while this process ends
            threading.Thread(target=thread.close, name=f"{self._name}-close", daemon=True).start()


class _CallThread:
    """One thread of the pool, its instance of the source, and its current call. `lock` is the pool's."""

    def __init__(
        self,
        make: Callable[[], Any],
        close: Callable[[Any], None],
        queue: SimpleQueue[Call | None],
        lock: threading.Lock,
        on_finished: Callable[[], None],
        name: str,
    ) -> None:
        self._make = make
        self._close = close
        self._queue = queue
        self._lock = lock
        self._on_finished = on_finished
        self._source: Any = None
        self.is_given_up = False
        self.call: Call | None = None
        self.call_start = 0.0
        self.thread = AuthorThread(self._run, f"{name}-call")
        self.thread.start()

    def close(self) -> None:
        """Close the instance once, whichever thread comes first."""
        with self._lock:
            source, self._source = self._source, None
        if source is not None:
            self._close(source)

    def _run(self) -> None:
        with suppress(FeedStopped):
            while not self.is_given_up and (call := self._queue.get()) is not None:
                self._make_call(call)
        self.thread.forbid_interrupt()
        self.close()

    def _make_call(self, call: Call) -> None:
        with self._lock:
            self.call, self.call_start = call, monotonic()
        outcome = call.run(self._instance)
        if outcome.error is not None:
            self.close()  # after an error it may be in any state
        with self._lock:
            self.call = None
            if self.is_given_up:
                outcome = Outcome(was_stuck=True)
            else:
                self._on_finished()
        call.on_done(call, outcome)

    def _instance(self) -> Any:
        source = self._source  # another thread may close it at any time
        if source is None:
            source = self._make()
            with self._lock:
                self._source = source
        return source
