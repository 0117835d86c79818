"""Threads that run an author's code: how long to wait for them, how to interrupt them, and where they are."""

from __future__ import annotations

import ast
import ctypes
import linecache
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import monotonic
from types import FrameType

__all__ = ["AuthorThread", "BlockedCall", "Deadline", "FeedStopped", "ThreadGroup", "join_or_interrupt"]


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


class AuthorThread(threading.Thread):
    """A daemon thread that runs an author's code, in which FeedStopped can be raised once.

    It is raised at the next Python instruction that the thread executes. It is not raised in code that cleans
    up, which is a `finally` or a `__exit__`, nor after `forbid_interrupt`.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        super().__init__(target=work, name=name, daemon=True)
        self._interrupt_lock = threading.Lock()
        self._may_interrupt = True

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.forbid_interrupt()  # once it has ended, its ident may be that of another thread

    def interrupt(self) -> None:
        """Called from another thread."""
        with self._interrupt_lock:
            if self._may_interrupt and self.ident is not None and not is_cleaning_up(self.ident):
                self._may_interrupt = False
                _set_async_exception(self.ident, FeedStopped)

    def forbid_interrupt(self) -> None:
        """Called in this thread, before it cleans up. An interrupt that was not raised yet is taken back."""
        while True:
            try:
                with self._interrupt_lock:
                    self._may_interrupt = False
                    _set_async_exception(threading.get_ident(), None)
                return
            except FeedStopped:  # raised just now
                continue

    def allow_interrupt(self) -> None:
        """Called in this thread, when it begins to read again."""
        with self._interrupt_lock:
            self._may_interrupt = True


def _set_async_exception(ident: int, exception: type[BaseException] | None) -> None:
    value = None if exception is None else ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), value)


class ThreadGroup:
    """The threads of one feed. They are daemons, so one that cannot be stopped does not block the exit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads: list[AuthorThread] = []

    def new(self, role: str, work: Callable[[], None]) -> AuthorThread:
        """Add a thread, which the caller starts."""
        thread = AuthorThread(work, self._name + role)
        self._threads.append(thread)
        return thread

    def join(self, deadline: Deadline) -> None:
        """Wait for all threads that were started."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(deadline.remaining)

    @property
    def alive(self) -> list[AuthorThread]:
        return [thread for thread in self._threads if thread.is_alive()]

    @property
    def is_alive(self) -> bool:
        return bool(self.alive)


_PATIENCE = 1 / 3
_CHECK_SECONDS = 0.05


def join_or_interrupt(threads: Iterable[AuthorThread], deadline: Deadline) -> bool:
    """Wait for threads to end, and return whether all of them did.

    They get a third of the time to end by themselves. Those that still run are then interrupted, once: code
    that an interrupt has made clean up is not interrupted again. A thread inside a C function that does not
    return, such as a blocking system call, cannot be interrupted.
    """
    patience = deadline.portion(_PATIENCE)
    running = [thread for thread in threads if thread.is_alive()]
    for thread in running:
        thread.join(patience.remaining)
    while (running := [thread for thread in running if thread.is_alive()]) and deadline.remaining > 0:
        for thread in running:
            thread.interrupt()
        running[0].join(min(_CHECK_SECONDS, deadline.remaining))
    return not running


@dataclass(frozen=True)
class BlockedCall:
    """Where a thread is in an author's code."""

    function: str
    """The method of the source that is running."""
    place: str
    """The innermost line in the file of that method, as `feed.py:12`."""
    is_cleanup: bool

    @classmethod
    def of(cls, thread: threading.Thread) -> BlockedCall | None:
        """None if it is not in an author's code."""
        frames = [frame for frame in _frames(thread.ident) if not _is_machinery(frame.f_code.co_filename)]
        if not frames:
            return None
        outermost = frames[-1].f_code
        innermost = next(frame for frame in frames if frame.f_code.co_filename == outermost.co_filename)
        place = f"{Path(outermost.co_filename).name}:{innermost.f_lineno}"
        return cls(outermost.co_name, place, is_cleaning_up(thread.ident))


def is_cleaning_up(ident: int | None) -> bool:
    """Whether the thread is in a `finally` or a `__exit__` of an author's code.

    Python does not tell. The line that a frame executes does, where the source code can be read.
    """
    return any(
        frame.f_code.co_name in ("__exit__", "__aexit__")
        or any(frame.f_lineno in lines for lines in _lines_of_finally(frame.f_code.co_filename))
        for frame in _frames(ident)
        if not _is_machinery(frame.f_code.co_filename)
    )


def _frames(ident: int | None) -> Iterator[FrameType]:
    """The stack of a thread, innermost first."""
    frame = sys._current_frames().get(ident or 0)
    while frame is not None:
        yield frame
        frame = frame.f_back


_RUNTIME = Path(__file__).parent
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


@lru_cache(maxsize=256)
def _is_machinery(file: str) -> bool:
    """Whether a file belongs to what runs feeds, or to Python itself, and so is no author's."""
    is_python = file.startswith(("<frozen ", _STANDARD_LIBRARY)) and "site-packages" not in file
    return is_python or Path(file).parent in (_RUNTIME, _RUNTIME.parent)


@lru_cache(maxsize=64)
def _lines_of_finally(file: str) -> list[range]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    return [
        range(node.finalbody[0].lineno, (node.finalbody[-1].end_lineno or 0) + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and node.finalbody
    ]
