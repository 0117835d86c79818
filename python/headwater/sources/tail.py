"""The lines of files that grow, and of standard input and named pipes."""

from __future__ import annotations

import glob
import logging
import os
import select
import stat
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote

import headwater as hw
from headwater import trust
from headwater.decode import decoder
from headwater.sources.tail_files import Lines, TailedPath, parse_cursor

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["tail"]

_LOG = logging.getLogger("headwater.sources.tail")
_MAX_OPEN = 100  # files; if there are more, none is kept open between two looks
_MAX_FILES = 1000  # each has a position in the cursor, and the cursor goes with every batch
_READ_BYTES = 1 << 18
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.02, 0.5


class Tail(hw.Source, name="tail", identity=("path",), schemes="tail"):
    """The lines of a file, or of all files that match a pattern such as `/var/log/app/*.log`.

    It follows files across rotation and truncation, and resumes at the position in each file. A line counts
    once its line break is there. `-` is standard input, and `path` may be a named pipe: then nothing can be
    read a second time, so lines that are not in the log yet when the driver dies are lost. `decode` and
    `schema` are those of `sse`. With `text` there are also columns for the file and the time of arrival;
    with the others `metadata` adds them. A line of more than `max_record_bytes` is a bad row.

    >>> import tempfile
    >>> from itertools import islice
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b'{"n": 1}\\n{"n": 2}\\n{"n": ')
    ...     file.flush()
    ...     print(list(islice(tail(file.name, decode="json", schema="n INT"), 2)))
    [{'n': 1}, {'n': 2}]
    """

    def __init__(
        self,
        path: str,
        decode: str = "text",
        schema: str | None = None,
        metadata: bool = False,
        max_record_bytes: int = 16 << 20,
    ) -> None:
        if not path or "\0" in path:
            raise ValueError(f"option 'path' is {path!r}, it must be a file, a pattern of files, or -")
        if max_record_bytes < 1:
            raise ValueError(f"option 'max_record_bytes' is {max_record_bytes}, it must be 1 or more")
        self._path = path
        self._is_pattern = path != "-" and glob.has_magic(path) and not os.path.exists(path)
        if path != "-" and not self._is_pattern:
            _check_trusted(path)
        self._keeps_blank_lines = decode in ("text", "binary")
        self._has_metadata = metadata or decode == "text"
        extra_schema = "file STRING, arrived TIMESTAMP" if self._has_metadata else None
        self._decoder = decoder(decode, schema, beside=extra_schema)
        self._max_bytes = max_record_bytes
        self._closed = threading.Event()
        self._exists = True
        self._wake_read, self._wake_write = -1, -1
        self._lock = threading.Lock()

    @property
    def schema(self) -> StructType:
        """The columns, which depend on `decode`, `schema` and `metadata`."""
        return self._decoder.schema

    @classmethod
    def uri_options(cls, uri: SplitResult, /) -> dict[str, str]:
        """`tail:/var/log/app.log`, or `tail:-` for standard input."""
        if uri.netloc:
            raise ValueError(f"it has the host {uri.netloc!r}; write tail:PATH")
        return {"path": unquote(uri.path)}

    def read(self, since: Any) -> Iterator[Any]:
        """Yields all lines that were completed, with the positions after them. Ends with standard input."""
        positions = parse_cursor(since)
        if self._path == "-" or _is_pipe(self._path):
            yield from self._read_pipe()
        else:
            yield from self._read_files(positions)

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            if self._wake_write >= 0:
                os.write(self._wake_write, b"x")

    # Files

    def _read_files(self, cursor: dict[str, Any]) -> Iterator[Any]:
        """Looks at all files again and again. After a look at which none has grown, the pause doubles."""
        tailed = {
            path: TailedPath(path, self._max_bytes, state)
            for path, state in cursor.items()
            if self._is_mine(path)
        }
        pause, is_caught_up = _FIRST_PAUSE_SECONDS, False
        try:
            while not self._closed.is_set():
                self._find_files(tailed)
                has_grown = False
                for entry in list(tailed.values()):
                    for lines in entry.read(others=tailed):
                        has_grown = True
                        yield hw.At(_cursor(tailed), self._rows(lines))
                    if len(tailed) > _MAX_OPEN:
                        entry.close()
                    if self._closed.is_set():
                        return
                if has_grown:
                    pause, is_caught_up = _FIRST_PAUSE_SECONDS, False
                    continue
                if not is_caught_up:
                    yield hw.CAUGHT_UP
                    is_caught_up = True
                self._closed.wait(pause)
                pause = min(2 * pause, _LAST_PAUSE_SECONDS)
        finally:
            for entry in tailed.values():
                entry.close()

    def _find_files(self, tailed: dict[str, TailedPath]) -> None:
        """Adds paths that are new, and removes those from which no line can come any more."""
        if not self._is_pattern:
            if self._path not in tailed and self._is_mine(self._path):
                tailed[self._path] = TailedPath(self._path, self._max_bytes)
            self._report_existence()
            return
        found = []
        for path in filter(self._is_mine, glob.glob(self._path, recursive=True)):
            with suppress(FileNotFoundError):
                status = os.stat(path)
                if stat.S_ISREG(status.st_mode):
                    found.append((status.st_mtime_ns, path, f"{status.st_dev}:{status.st_ino}"))
        for _, path, _ in sorted(found):
            if path not in tailed:
                _check_trusted(path)
                tailed[path] = TailedPath(path, self._max_bytes)
        _move_renamed(tailed, {inode: path for _, path, inode in found})
        for path in set(tailed).difference(path for _, path, _ in found):
            if tailed[path].is_gone():
                tailed.pop(path).close()
        if len(tailed) > _MAX_FILES:
            raise hw.HeadwaterError(
                f"option 'path' is {self._path!r} and matches {len(tailed)} files; {_MAX_FILES} are allowed",
                "use a pattern that matches fewer files, or move old ones away",
            )

    def _report_existence(self) -> None:
        exists = os.path.exists(self._path)
        if exists is not self._exists:
            self._exists = exists
            hw.report_connection(exists, None if exists else f"{self._path} does not exist")

    def _is_mine(self, path: str) -> bool:
        """With `concurrency`, each feed reads its share of the files."""
        shard = hw.shard()
        return shard.count == 1 or zlib.crc32(os.fsencode(path)) % shard.count == shard.index

    # Standard input and named pipes

    def _read_pipe(self) -> Iterator[Any]:
        if hw.shard().index:
            return
        name = "standard input" if self._path == "-" else self._path
        _LOG.warning(
            "%s cannot be read a second time: lines that are not in the log are lost at a crash", name
        )
        with self._lock:
            self._wake_read, self._wake_write = os.pipe()
            if self._closed.is_set():
                os.write(self._wake_write, b"x")
        pipe = os.dup(0) if self._path == "-" else os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            lines = Lines(self._path, self._max_bytes)
            while True:
                if not select.select([pipe], [], [], 0)[0]:
                    yield hw.CAUGHT_UP
                select.select([pipe, self._wake_read], [], [])
                if self._closed.is_set():
                    return
                try:
                    data = os.read(pipe, _READ_BYTES)
                except BlockingIOError:  # another process has read it
                    continue
                if data:
                    if lines.feed(data):
                        yield hw.At(None, self._rows(lines))
                    continue
                if lines.unfinished:
                    _LOG.warning("%s ends within a line, which is dropped", name)
                if self._path == "-":
                    return
                # The last writer is gone, and the next one may come. Until then a new descriptor can wait.
                again = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
                os.close(pipe)
                pipe, lines = again, Lines(self._path, self._max_bytes)
        finally:
            os.close(pipe)
            with self._lock:
                os.close(self._wake_read)
                os.close(self._wake_write)
                self._wake_write = -1

    def _rows(self, lines: Lines) -> Any:
        """The rows of the lines that `feed` has found, with bad rows for those that are too long."""
        extra: dict[str, Any] = {}
        if self._has_metadata:
            extra = {"file": lines.path, "arrived": datetime.now(timezone.utc)}
        complete = lines.complete
        if not self._keeps_blank_lines:
            complete = [line for line in complete if line.strip()]
        rows = self._decoder.rows(complete, **extra)
        if not lines.too_long:
            return rows
        nulls = (None,) * (len(self._decoder.schema.names) - len(extra))
        reason = f"the line is longer than {self._max_bytes} bytes, the limit of option 'max_record_bytes'"
        good = rows if isinstance(rows, list) else [tuple(row.values()) for row in rows.to_pylist()]
        return [*good, *(hw.BadRow(start, reason, (*nulls, *extra.values())) for start in lines.too_long)]


def _move_renamed(tailed: dict[str, TailedPath], paths: dict[str, str]) -> None:
    """If a file was renamed to a path that matches as well, it is read on there. `paths` are by inode."""
    moved = []
    for entry in tailed.values():
        for file in list(entry.files):
            path = paths.get(file.inode, entry.path)
            if path != entry.path and file.open(path):
                entry.files.remove(file)
                file.move_to(path)
                moved.append((path, file))
    for path, file in moved:  # a file can take the place of another that was renamed as well
        tailed[path].files.append(file)


def _cursor(tailed: dict[str, TailedPath]) -> dict[str, Any]:
    return {"version": 1, "files": {path: entry.state for path, entry in tailed.items()}}


def _check_trusted(path: str) -> None:
    try:
        trust.current.file(path)
    except ValueError as error:
        raise ValueError(f"option 'path' is {path!r}: {error}") from None


def _is_pipe(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
        raise ValueError(
            f"option 'path' is {path!r}, which is neither a file nor a named pipe; a pattern is dir/*.log"
        )
    return stat.S_ISFIFO(mode)


tail = Tail
