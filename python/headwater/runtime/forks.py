"""Forks: a child process inherits the connections to the JVM, and must not use them.

The code of a source may fork, with `os.fork` or through `multiprocessing`. The child's copies of the
connections are closed at once: it could write between the rows of its parent, and as long as it lives, the
JVM would not notice that its parent has ended. A child that goes on reading the source is ended.
"""

from __future__ import annotations

import logging
import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["exit_if_forked", "inherits"]

_log = logging.getLogger("headwater.feed")


class Inherited(Protocol):
    def after_fork(self) -> None:
        """Called in a child process, which has only the thread that forked. Locks may be held for ever."""


_inherited: WeakSet[Inherited] = WeakSet()


def inherits(resource: Inherited) -> None:
    """Call its `after_fork` in each child process from now on."""
    _inherited.add(resource)


def exit_if_forked(process: int) -> None:
    """End this process, if it is a child of `process` that goes on with its parent's work."""
    if os.getpid() != process:
        _log.error(
            "a child process, forked while a source was read, went on reading: it is ended, and its rows are "
            "not sent. Fix: end the child with os._exit() before the next yield"
        )
        os._exit(1)


def _close_inherited() -> None:
    for resource in list(_inherited):
        resource.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
