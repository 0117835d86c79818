"""inotify, by ctypes: to see a file of the checkpoint appear, or go, within a fraction of a millisecond."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

MODIFIED, MOVED_TO, CREATED, DELETED = 0x2, 0x80, 0x100, 0x200
APPEARED = CREATED | MOVED_TO

_HEAD = struct.Struct("iIII")
_LIBC = ctypes.CDLL(None, use_errno=True)


class Watch:
    """What happens in a folder, from the moment that this is made."""

    def __init__(self, folder: Path, what: int) -> None:
        self._file = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0 or _LIBC.inotify_add_watch(self._file, os.fsencode(folder), what) < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {folder}")

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        os.close(self._file)

    def until(
        self,
        is_it: Callable[[str], bool],
        act: Callable[[], None],
        go_on: Callable[[], bool],
        timeout: float = 60,
    ) -> bool:
        """Acts at once at the first event on a file whose name is meant; false if it did not come."""
        deadline = time.monotonic() + timeout
        while go_on() and time.monotonic() < deadline:
            if select.select([self._file], [], [], 0.5)[0]:
                for name in self._names():
                    if is_it(name):
                        act()
                        return True
        return False

    def _names(self) -> Iterator[str]:
        data = os.read(self._file, 1 << 16)
        position = 0
        while position < len(data):
            length = _HEAD.unpack_from(data, position)[3]
            position += _HEAD.size
            yield data[position : position + length].rstrip(b"\0").decode()
            position += length
