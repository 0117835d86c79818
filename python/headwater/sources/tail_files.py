"""A path whose file grows, is rotated and is truncated: what was read of it, and what comes next."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
from collections.abc import Container, Iterator
from contextlib import suppress
from typing import Any

__all__ = ["Lines", "TailedPath", "parse_cursor"]

_LOG = logging.getLogger("headwater.sources.tail")
_READ_BYTES = 1 << 18
_HEAD_BYTES = 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ROTATED = re.compile(
    r"[-._](?:.*\d.*|old|bak|prev)(?<!\.bz2)(?<!\.gz)(?<!\.lz4)(?<!\.xz)(?<!\.zip)(?<!\.zst)"
)
_EXCERPT_BYTES = 200


class Lines:
    """Splits bytes into lines, wherever they are cut.

    >>> lines = Lines("app.log", 1000)
    >>> lines.feed(b"one\\r\\ntwo\\nth"), lines.complete, lines.unfinished
    (True, [b'one', b'two'], 2)
    >>> lines.feed(b"ree\\n"), lines.complete, lines.unfinished
    (True, [b'three'], 0)
    """

    def __init__(self, path: str, max_bytes: int) -> None:
        self.path = path
        self.complete: list[bytes] = []
        """The lines that the last `feed` has completed, without line breaks."""
        self.too_long: list[bytes] = []
        """The beginnings of lines that the last `feed` has completed and that are longer than allowed."""
        self.unfinished = 0
        """Bytes of the line whose end has not come."""
        self._max_bytes = max_bytes
        self._partial = bytearray()

    def feed(self, data: bytes) -> bool:
        """Whether these bytes have completed a line."""
        self.complete, self.too_long = [], []
        end = data.rfind(b"\n") + 1
        if end:
            first = data.find(b"\n")
            self._add(data[:first])
            self._end_line()
            if end > first + 1:
                lines = data[first + 1 : end - 1].split(b"\n")
                if max(map(len, lines)) > self._max_bytes:
                    self.too_long += [line[:_EXCERPT_BYTES] for line in lines if len(line) > self._max_bytes]
                    lines = [line for line in lines if len(line) <= self._max_bytes]
                self.complete += lines
            self.complete = [line.removesuffix(b"\r") for line in self.complete]
        self._add(data[end:])
        return end > 0

    def _add(self, data: bytes) -> None:
        self.unfinished += len(data)
        self._partial += data
        if self.unfinished > self._max_bytes:  # the rest of the line is not kept
            del self._partial[_EXCERPT_BYTES:]

    def _end_line(self) -> None:
        (self.complete if self.unfinished <= self._max_bytes else self.too_long).append(bytes(self._partial))
        self._partial.clear()
        self.unfinished = 0


class _File:
    """One file, whatever its name is now: its inode, the position after the last complete line, its head.

    The head is a hash of the first bytes, 1,024 at most. It tells a file from a later one that has got the
    same inode, finds the copy that `copytruncate` makes, and shows that a file was truncated although it is
    as long again.
    """

    def __init__(self, path: str, max_bytes: int, state: dict[str, Any] | None = None) -> None:
        state = state or {"inode": "", "position": 0, "head": "", "headBytes": 0}
        self.inode: str = state["inode"]
        self.position: int = state["position"]
        self._head: str = state["head"]
        self._head_bytes: int = state["headBytes"]
        self._path = path
        self._max_bytes = max_bytes
        self._lines = Lines(path, max_bytes)
        self._descriptor = -1
        self._checked = (-1, -1)  # size and time of the last change, when the head was compared last

    @property
    def state(self) -> dict[str, Any]:
        return {
            "inode": self.inode,
            "position": self.position,
            "head": self._head,
            "headBytes": self._head_bytes,
        }

    def move_to(self, path: str) -> None:
        """Lines have this path as their file from now on."""
        self._path = self._lines.path = path

    def open(self, path: str) -> bool:
        """Opens the file at this path, if it is this one or a copy of it that goes at least as far."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        status = os.fstat(descriptor)
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_size < self.position
            or _hash_head(descriptor, self._head_bytes) != self._head
            or (self._head_bytes > 0 and os.pread(descriptor, 1, self.position - 1) != b"\n")
        ):
            os.close(descriptor)
            return False
        self.close()
        self._descriptor, self.inode = descriptor, _inode(status)
        self._lines = Lines(self._path, self._max_bytes)
        return True

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    @property
    def is_deleted(self) -> bool:
        return self.is_open and os.fstat(self._descriptor).st_nlink == 0

    @property
    def has_head(self) -> bool:
        """Whether a line was read, so that the file or a copy of it can be told from others."""
        return self._head_bytes > 0

    def begins_with(self, path: str) -> bool:
        """Whether all that is in the file at that path, which is not empty, is the beginning of this one."""
        with suppress(FileNotFoundError), open(path, "rb", opener=_open_at_once) as file:
            position = 0
            while data := file.read(_READ_BYTES):
                if os.pread(self._descriptor, len(data), position) != data:
                    return False
                position += len(data)
            return position > 0
        return False

    @property
    def is_intact(self) -> bool:
        """Whether it is open and what was read is still in it: otherwise it was truncated or overwritten."""
        if not self.is_open:
            return False
        status = os.fstat(self._descriptor)
        change = (status.st_size, status.st_mtime_ns)
        if change != self._checked:
            if status.st_size < self.position or _hash_head(self._descriptor, self._head_bytes) != self._head:
                return False
            self._checked = change
        return True

    def read(self) -> Iterator[Lines]:
        """The lines that have been completed, up to where the file ends now."""
        end = os.fstat(self._descriptor).st_size
        while (start := self.position + self._lines.unfinished) < end:
            data = os.pread(self._descriptor, _READ_BYTES, start)
            if not data:
                return
            end_of_data = start + len(data)
            if start == 0:
                data = data.removeprefix(_BYTE_ORDER_MARK)
                self.position = end_of_data - len(data)
            if self._lines.feed(data):
                self.position = end_of_data - self._lines.unfinished
                if self._head_bytes < _HEAD_BYTES:
                    self._head_bytes = min(self.position, _HEAD_BYTES)
                    self._head = _hash_head(self._descriptor, self._head_bytes)
                yield self._lines

    def drop(self) -> None:
        """Closes it for good."""
        if self._lines.unfinished:
            _LOG.warning("a file that %s named ends within a line, which is dropped", self._path)
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class TailedPath:
    """A path, the file that it names, and the one that it named before, of which a writer may write the rest.

    When the path names another file, or its file was truncated, a rotation has happened. First the rest of
    the old file is read, under its new name or from its copy. Then come files that were rotated since, oldest
    first: those in the same folder that are named like this path with `.1` or `-20240531` added, and that
    were not `seen` when the old file began. Then the new file is read from its beginning.
    """

    def __init__(self, path: str, max_bytes: int, state: dict[str, Any] | None = None) -> None:
        self._has_begun = state is not None
        state = state or {"files": [], "seen": []}
        self.path = path
        self.files = [_File(path, max_bytes, file) for file in state["files"]]
        """Oldest first; the last is the one that the path names, as far as is known."""
        self._seen: list[list[str]] = state["seen"]
        self._max_bytes = max_bytes
        self._last_look: tuple[int, ...] | None = None

    @property
    def state(self) -> dict[str, Any]:
        # A file of which nothing was read cannot be told from another one.
        return {"files": [file.state for file in self.files if file.has_head], "seen": list(self._seen)}

    def read(self, others: Container[str] = ()) -> Iterator[Lines]:
        """All lines that were completed since. `others` are paths that are read on their own."""
        for file in self.files[:-1]:
            if self._find(file):
                yield from file.read()
            if not file.is_open or file.is_deleted:
                self.files.remove(file)
                file.drop()
        status = _status(self.path)
        look = None if status is None else (status.st_ino, status.st_size, status.st_mtime_ns)
        if look is not None and look == self._last_look:
            return
        if self.files and not self.files[-1].has_head:  # it may have been filled and truncated meanwhile
            self.files.pop().close()
        if self.files and not self._find(self.files[-1]):
            if status is None:
                return
            _LOG.warning(
                "%s: the file that was read up to byte %d was truncated or is gone, and no rotated file has "
                "the rest of it. Lines may be lost",
                self.path,
                self.files[-1].position,
            )
            self.files.pop().drop()
        elif self.files:
            yield from self.files[-1].read()
        if status is not None and not (self.files and self.files[-1].inode == _inode(status)):
            yield from self._read_rotated(others)
        self._last_look = look

    def is_gone(self) -> bool:
        """Whether no file is left from which a line could come."""
        return _status(self.path) is None and all(
            file.is_deleted or not self._find(file) for file in self.files
        )

    def close(self) -> None:
        for file in self.files:
            file.close()

    def _read_rotated(self, others: Container[str]) -> Iterator[Lines]:
        """Reads what follows the last file: files that were rotated since, and then the one at the path."""
        if self.files:
            yield from self.files[-1].read()  # what came before it was renamed
        has_begun, self._has_begun = self._has_begun, True
        new = _File(self.path, self._max_bytes)
        while new.open(self.path):  # before the look at the others: what is renamed later is this one
            known = [file.inode for file in self.files] + [new.inode]
            rotated = [(path, id) for path, id in self._rotated() if id[0] != new.inode]
            unread = [
                (path, id)
                for path, id in rotated
                if has_begun and id not in self._seen and id[0] not in known and path not in others
            ]
            copies = [(path, id) for path, id in unread if new.begins_with(path)]  # before it is truncated
            unread = [entry for entry in unread if entry not in copies]
            self._seen = [id for path, id in rotated if (path, id) not in unread + copies]
            if not unread:
                break
            for path, id in unread:
                file = _File(self.path, self._max_bytes)
                if file.open(path):
                    self.files.append(file)
                    self._seen.append(id)
                    yield from file.read()
        if not new.is_open:
            return
        self.files.append(new)
        yield from new.read()
        for file in self.files[:-2]:
            file.drop()
        del self.files[:-2]

    def _find(self, file: _File) -> bool:
        """Opens a file under the name that it has now; if it was truncated, the copy that was made of it."""
        if file.is_intact:
            return True
        file.close()
        folder = os.path.dirname(self.path) or "."
        names = [self.path, *(path for path, inode in _entries(folder) if inode == file.inode)]
        if any(_inode_of(path) == file.inode and file.open(path) for path in names):
            return True
        known = [other.inode for other in self.files]
        return any(
            id not in self._seen and id[0] not in known and file.open(path) for path, id in self._rotated()
        )

    def _rotated(self) -> list[tuple[str, list[str]]]:
        """Files that are named as rotation names them, oldest first, each with its inode and its head."""
        folder, name = os.path.split(self.path)
        rotated = []
        for path, inode in _entries(folder or "."):
            other = os.path.basename(path)
            if not (other.startswith(name) and _ROTATED.fullmatch(other, len(name))):
                continue
            status = _status(path)
            if status is not None:
                with suppress(FileNotFoundError), open(path, "rb", opener=_open_at_once) as file:
                    rotated.append(
                        (status.st_mtime_ns, path, [inode, _hash_head(file.fileno(), _HEAD_BYTES)])
                    )
        return [(path, id) for _, path, id in sorted(rotated)]


def _entries(folder: str) -> list[tuple[str, str]]:
    """The paths in a folder, each with its inode. A link has the inode of the link."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        device = os.stat(folder).st_dev
        return [
            (entry.path.removeprefix("./") if folder == "." else entry.path, f"{device}:{entry.inode()}")
            for entry in entries
        ]
    return []


def _status(path: str) -> os.stat_result | None:
    """None if there is no file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _inode(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def _inode_of(path: str) -> str | None:
    status = _status(path)
    return None if status is None else _inode(status)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # does not wait for the writer of a pipe


def _hash_head(descriptor: int, size: int) -> str:
    return hashlib.sha256(os.pread(descriptor, size, 0)).hexdigest()[:16] if size else ""


def parse_cursor(cursor: Any) -> dict[str, Any]:
    """The state of each path. None, the cursor of a pipe, has none."""
    if cursor is None:
        return {}
    try:
        if cursor["version"] != 1:
            raise ValueError
        for state in cursor["files"].values():
            for file in state["files"]:
                if not (file["inode"] + file["head"] and file["position"] >= file["headBytes"] >= 0):
                    raise ValueError
            if not all(isinstance(inode + head, str) for inode, head in state["seen"]):
                raise ValueError
    except (TypeError, ValueError, KeyError, AttributeError):
        raise ValueError(
            f"the cursor {str(cursor)[:200]} is not one of source 'tail': use one that it wrote, or none"
        ) from None
    files: dict[str, Any] = cursor["files"]
    return files
