"""Reads a source in Python: all of it without Spark, or what `read` and the partition methods return.

Everything that an author's methods return is validated here, for `list(source)`, `headwater peek`, feeds and
tasks alike.
"""

from __future__ import annotations

import asyncio
import dis
import inspect
import operator
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from traceback import FrameSummary
from typing import Any

from headwater.definition import is_resumable, schema_of_source
from headwater.errors import shorten
from headwater.schema import has_array_rows
from headwater.source import CAUGHT_UP, At, PartitionedSource, Source

__all__ = [
    "AT_IN_PARTITION",
    "PartitionKey",
    "is_async",
    "items",
    "parse_partition_key",
    "partition_key_type",
    "read_range",
    "rows",
    "rows_async",
    "start_read",
    "validate_offset",
    "validate_partitions",
    "yield_lines",
]


# A whole source, without Spark


def rows(source: Source) -> Iterator[object]:
    """The rows that a feed would send, one by one."""
    for item in items(source):
        yield from _rows_in(item, source)


def items(source: Source) -> Iterator[Any]:
    """What `read` yields. Calls the source's other methods as a feed does."""
    with _running(source):
        iterator = start_read(source)
        yield from _drive(source, iterator) if is_async(iterator) else iterator


async def rows_async(source: Source) -> AsyncIterator[object]:
    """The same as `rows` within an event loop; the source need not be async."""
    with _running(source):
        iterator = start_read(source)
        if not is_async(iterator):
            iterator = _to_async(iterator)
        try:
            async for item in iterator:
                for row in _rows_in(item, source):
                    yield row
        finally:
            if hasattr(iterator, "aclose"):
                await iterator.aclose()


@contextmanager
def _running(source: Source) -> Iterator[None]:
    try:
        source.on_start()
        yield
    except Exception as error:
        source.on_failure(error)
        raise
    finally:
        try:
            source.on_stop()
        finally:
            source.close()


def _rows_in(item: Any, source: Source) -> Iterator[object]:
    if isinstance(item, At):
        item = item.rows
    if item is CAUGHT_UP:
        return
    if isinstance(item, list) and not has_array_rows(schema_of_source(source)):
        yield from item
    elif hasattr(item, "to_pylist"):  # Arrow
        yield from item.to_pylist()
    elif hasattr(item, "to_dict") and hasattr(item, "iloc"):  # pandas
        yield from item.to_dict("records")
    else:
        yield item


async def _to_async(iterator: Any) -> AsyncIterator[Any]:
    for item in iterator:
        yield item


def _drive(source: Source, iterator: Any) -> Iterator[object]:
    """The items of an async iterator, for code that is not async."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError(
            f"{source!r} is async and an event loop runs in this thread: use `async for`, or read it in "
            "another thread"
        )
    reader = _AsyncReader(iterator)
    try:
        yield from reader.items()
    finally:
        reader.close()
    reader.raise_error()


class _AsyncReader:
    """Reads an async iterator in an event loop of its own, which runs only while an item is wanted.

    All of it is read in one task, as in a feed: time limits and cancel scopes belong to a task.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        self._item: list[Any] = []
        self._wanted = asyncio.Event()
        self._is_closing = False
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._read())

    def items(self) -> Iterator[Any]:
        with suppress(GeneratorExit):  # no more items are wanted
            while not self._task.done():
                self._wanted.set()
                with _interrupt_after(self._loop):
                    self._loop.run_forever()
                if self._item:
                    yield self._item.pop()

    def close(self) -> None:
        """End the source wherever it awaits, and then the tasks that it has left. Also after Ctrl-C."""
        self._is_closing = True
        try:
            unfinished = {self._task}
            while unfinished:
                for task in unfinished:
                    task.cancel()
                with _interrupt_after(self._loop):
                    self._loop.run_until_complete(asyncio.gather(*unfinished, return_exceptions=True))
                unfinished = asyncio.all_tasks(self._loop)
            with _interrupt_after(self._loop):
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())  # none of them runs any more
        except KeyboardInterrupt:  # the second one: leave everything as it is, without a word from asyncio
            self._iterator = None
            for task in asyncio.all_tasks(self._loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            if self._task.done() and not self._task.cancelled():
                self._task.exception()  # it may have come within the task itself
            raise
        finally:
            self._loop.close()

    def raise_error(self) -> None:
        """After `close`: raise the error with which the source has ended, if any."""
        if not self._task.cancelled():
            self._task.result()

    async def _read(self) -> None:
        try:
            await self._wanted.wait()
            async for item in self._iterator:
                if self._is_closing:  # it was cancelled, and went on
                    return
                self._item.append(item)
                self._wanted.clear()
                self._loop.stop()
                await self._wanted.wait()
        finally:
            try:
                if hasattr(self._iterator, "aclose"):
                    await self._iterator.aclose()
            finally:
                if not self._is_closing:
                    self._loop.stop()


@contextmanager
def _interrupt_after(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Ctrl-C stops the loop and is raised once the loop has returned: raised within a task, it would be that
    task's error. A second one is raised at once, for a task that never awaits.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    stop: asyncio.Handle | None = None

    def on_interrupt(signum: int, frame: object) -> None:
        nonlocal stop
        if stop is not None:
            raise KeyboardInterrupt
        stop = loop.call_soon_threadsafe(loop.stop)

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if stop is not None:
            stop.cancel()  # the loop may have returned before
            raise KeyboardInterrupt


# What `read` returns


def start_read(source: Source, since: Any = None) -> Any:
    """Calls `read`: an iterator, or an async one. A partitioned source is read from earliest to latest."""
    if isinstance(source, PartitionedSource):
        return _all_partitions(source)
    read: Any = source.read  # type: ignore[attr-defined]
    return _validate_iterator(source, read(since=since) if is_resumable(type(source)) else read())


def read_range(source: PartitionedSource, p: Any, start: int, end: int) -> Iterator[Any]:
    """What `read` yields for a range of offsets; TypeError if it does not return rows."""
    iterator = _validate_iterator(source, source.read(p, start, end))
    if is_async(iterator):
        raise TypeError(
            f"read of {source!r} is async, which only a source with a feed can be: write a generator"
        )
    return iter(iterator)


def yield_lines(items: Any) -> list[FrameSummary]:
    """The lines at which a generator's own code yields. Which of them has yielded a row is not known."""
    code = getattr(items, "gi_code", None) or getattr(items, "ag_code", None)
    if code is None:
        return []
    lines, previous = [], ""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = getattr(instruction, "line_number", instruction.starts_line) or line  # from 3.13 on, before
        is_await = hasattr(items, "ag_code") and previous == "SEND"
        if instruction.opname in _YIELDS and not is_await and line not in lines:
            lines.append(line)
        previous = instruction.opname
    return [FrameSummary(code.co_filename, line, code.co_name) for line in lines]


_YIELDS = ("YIELD_VALUE", "YIELD_FROM")  # the latter up to Python 3.10


def is_async(iterator: Any) -> bool:
    return hasattr(iterator, "__aiter__")


def _validate_iterator(source: Source, value: Any) -> Any:
    has_rows = hasattr(value, "__iter__") and not isinstance(value, str | bytes | dict)
    if is_async(value) or (has_rows and not hasattr(value, "iloc")):  # a DataFrame iterates over its columns
        return value
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(
            f"read of {source!r} is a coroutine that yields nothing: make it an async generator, which "
            "yields rows"
        )
    raise TypeError(
        f"read of {source!r} returned {shorten(value)} of type {type(value).__name__}, not rows: make it a "
        "generator, which yields rows one by one"
    )


# Partitions

PartitionKey = int | str

AT_IN_PARTITION = (
    "a partitioned source yields rows, not hw.At(cursor, rows): it resumes by offset and has no cursor"
)

_MAX_OFFSET = 2**63 - 1
_MAX_KEY_NUMBER, _MAX_KEY_LENGTH = 2**31 - 1, 255
_ALLOWED_KEYS = (
    f"unique keys of one type: strings of 1 to {_MAX_KEY_LENGTH} characters, or integers from 0 to "
    f"{_MAX_KEY_NUMBER}"
)


def validate_partitions(value: Any) -> list[PartitionKey]:
    """What `partitions()` returned, as plain ints or strs; ValueError if it is not valid.

    >>> validate_partitions((2, 0, 1))
    [2, 0, 1]
    """
    if not isinstance(value, list | tuple | set | frozenset):
        raise ValueError(
            f"partitions() returned {shorten(value)} of type {type(value).__name__}; it must return a list "
            f"of {_ALLOWED_KEYS}"
        )
    keys = [_validate_key(key) for key in value]
    if len({type(key) for key in keys}) > 1:
        raise ValueError(
            f"partitions() returned both strings and integers, {shorten(value)}; it must return "
            f"{_ALLOWED_KEYS}"
        )
    if len(set(keys)) < len(keys):
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"partitions() returned {repeated!r} more than once; it must return {_ALLOWED_KEYS}")
    return keys if isinstance(value, list | tuple) else sorted(keys)


def _validate_key(value: Any) -> PartitionKey:
    if isinstance(value, str):
        key = str.__str__(value)
        if 1 <= len(key) <= _MAX_KEY_LENGTH and not any("\ud800" <= c <= "\udfff" for c in key):
            return key
    number = _to_int(value)
    if number is None or not 0 <= number <= _MAX_KEY_NUMBER:
        raise ValueError(
            f"partitions() returned the key {shorten(value)} of type {type(value).__name__}; it must return "
            f"{_ALLOWED_KEYS}"
        )
    return number


def partition_key_type(keys: list[PartitionKey]) -> str | None:
    """`int` or `text`; None without keys."""
    return ("int" if isinstance(keys[0], int) else "text") if keys else None


def parse_partition_key(text: str, key_type: str) -> PartitionKey:
    """The key from its form in JSON, whose names are strings."""
    return int(text) if key_type == "int" else text


def validate_offset(value: Any, call: str) -> int:
    """What `call` returned, as an int; ValueError if it is not an offset.

    >>> validate_offset(17, "latest('a')")
    17
    """
    offset = _to_int(value)
    if offset is None or not 0 <= offset <= _MAX_OFFSET:
        raise ValueError(
            f"{call} returned {shorten(value)} of type {type(value).__name__}; an offset is an integer from "
            f"0 to {_MAX_OFFSET}"
        )
    return offset


def _to_int(value: Any) -> int | None:
    """An int of Python or numpy; None for anything else, also for a bool."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _all_partitions(source: PartitionedSource) -> Iterator[Any]:
    """Each partition in turn, from earliest to latest as they are now."""
    keys = validate_partitions(source.partitions())
    ends = {p: validate_offset(source.latest(p), f"latest({p!r})") for p in keys}
    starts = {p: validate_offset(source.earliest(p), f"earliest({p!r})") for p in keys}
    for p in keys:
        if starts[p] < ends[p]:
            for item in read_range(source, p, starts[p], ends[p]):
                if isinstance(item, At):
                    raise TypeError(AT_IN_PARTITION)
                yield item
