"""Reading a source: the call of `read`, and its rows one by one where there is no Spark."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headwater._author.source import Source, schema_of_source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "CAUGHT_UP",
    "At",
    "begin",
    "checked_items",
    "has_array_rows",
    "is_async",
    "items_of",
    "rows_of",
    "rows_of_async",
]


@dataclass(frozen=True)
class At:
    """Rows, and the cursor to resume after them: any JSON. All rows under one `At` become durable together.

    >>> import headwater as hw
    >>> print(hw.At("event-17", ("event-17", "hello")))
    At(cursor='event-17', rows=('event-17', 'hello'))
    """

    cursor: Any
    rows: Any

    def __post_init__(self) -> None:
        """Lists and dicts are copied: the author may go on with the same ones, and sending comes later."""
        if type(self.cursor) is dict or type(self.cursor) is list:
            object.__setattr__(self, "cursor", _copied(self.cursor))
        if type(self.rows) is list or type(self.rows) is dict:
            object.__setattr__(self, "rows", self.rows.copy())


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if type(value) is list else value


class _CaughtUp:
    def __repr__(self) -> str:
        return "headwater.CAUGHT_UP"


CAUGHT_UP: Final = _CaughtUp()
"""Yield this when all that the upstream has for now was given: an AvailableNow run then waits no longer.
>>> from headwater.testing import END, ListSource
>>> print(list(ListSource([1, hw.CAUGHT_UP, 2, END])))
[1, 2]
"""


def begin(source: Source, since: Any = None) -> Any:
    """What `read` returns: an iterator, or an async one."""
    return checked_items(source, source._begin(since))


def checked_items(source: Source, items: Any) -> Any:
    """What `read` has returned, if rows can come of it."""
    is_rows = hasattr(items, "__iter__") and not isinstance(items, str | bytes | dict)
    if hasattr(items, "__aiter__") or (is_rows and not hasattr(items, "iloc")):  # pandas gives its columns
        return items
    if inspect.iscoroutine(items):
        items.close()
        raise TypeError(
            f"read of {source!r} is a coroutine that yields nothing: an async generator yields its rows"
        )
    what = repr(items)
    if len(what) > 80 or "\n" in what:
        what = f"a value of type {type(items).__name__}"
    raise TypeError(
        f"read of {source!r} returned {what}, not rows: make it a generator, which yields them one by one"
    )


def is_async(items: Any) -> bool:
    return hasattr(items, "__aiter__")


def items_of(source: Source) -> Iterator[Any]:
    """What `read` yields, without Spark, with the calls before and after it that a feed makes."""
    with _running(source):
        items = begin(source)
        yield from _from_async(source, items) if is_async(items) else items


def rows_of(source: Source) -> Iterator[object]:
    for item in items_of(source):
        yield from _rows_in(item, source)


async def rows_of_async(source: Source) -> AsyncIterator[object]:
    with _running(source):
        items = begin(source)
        if not is_async(items):
            items = _as_async(items)
        try:
            async for item in items:
                for row in _rows_in(item, source):
                    yield row
        finally:
            if hasattr(items, "aclose"):
                await items.aclose()


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


def has_array_rows(schema: StructType) -> bool:
    """Whether a list is a value, of the one column, and not many rows."""
    return len(schema.fields) == 1 and schema.fields[0].dataType.typeName() == "array"


async def _as_async(items: Any) -> AsyncIterator[Any]:
    for item in items:
        yield item


def _from_async(source: Source, items: Any) -> Iterator[object]:
    """An async iterator, driven from code that is not async."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError(
            f"{source!r} is async and an event loop runs in this thread: use `async for` on it, or read it "
            "in another thread"
        )
    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                yield loop.run_until_complete(items.__anext__())
            except StopAsyncIteration:
                return
    finally:
        _end(loop, items)


async def _all(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _end(loop: asyncio.AbstractEventLoop, items: Any) -> None:
    """Also after Ctrl-C, which leaves the step that was awaited undone."""
    try:
        undone = asyncio.all_tasks(loop)
        for task in undone:
            task.cancel()
        loop.run_until_complete(_all(undone))
        if hasattr(items, "aclose"):
            loop.run_until_complete(items.aclose())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
