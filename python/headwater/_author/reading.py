"""Reading a source: the call of `read`, and its rows one by one where there is no Spark."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final

from headwater._author.source import Source, is_resumable

__all__ = ["CAUGHT_UP", "At", "begin", "is_async", "rows_of", "rows_of_async"]


@dataclass(frozen=True)
class At:
    """Rows, and the cursor to resume after them: any JSON. All rows under one `At` become durable together.

    >>> At("event-17", ("event-17", "hello"))
    At(cursor='event-17', rows=('event-17', 'hello'))
    """

    cursor: Any
    rows: Any


class _CaughtUp:
    def __repr__(self) -> str:
        return "headwater.CAUGHT_UP"


CAUGHT_UP: Final = _CaughtUp()
"""Yield this when all that the upstream has for now was given: an AvailableNow run then waits no longer."""


def begin(source: Source, since: Any = None) -> Any:
    """What `read` returns: an iterator, or an async one."""
    read = source.read  # type: ignore[attr-defined]
    items = read(since=since) if is_resumable(type(source)) else read()
    if hasattr(items, "__aiter__") or (
        hasattr(items, "__iter__") and not isinstance(items, str | bytes | dict)
    ):
        return items
    if inspect.iscoroutine(items):
        items.close()
        raise TypeError(
            f"read of {source!r} is a coroutine that yields nothing: an async generator yields its rows"
        )
    raise TypeError(
        f"read of {source!r} returned {items!r}, not rows: make it a generator, which yields them one by one"
    )


def is_async(items: Any) -> bool:
    return hasattr(items, "__aiter__")


def rows_of(source: Source) -> Iterator[object]:
    items = begin(source)
    try:
        for item in _from_async(items) if is_async(items) else items:
            yield from _rows_in(item)
    finally:
        source.close()


async def rows_of_async(source: Source) -> AsyncIterator[object]:
    items = begin(source)
    try:
        if is_async(items):
            async for item in items:
                for row in _rows_in(item):
                    yield row
        else:
            for item in items:
                for row in _rows_in(item):
                    yield row
    finally:
        source.close()


def _rows_in(item: Any) -> Iterator[object]:
    if isinstance(item, At):
        item = item.rows
    if item is CAUGHT_UP:
        return
    if isinstance(item, list):
        yield from item
    elif hasattr(item, "to_pylist"):  # Arrow
        yield from item.to_pylist()
    elif hasattr(item, "to_dict") and hasattr(item, "iloc"):  # pandas
        yield from item.to_dict("records")
    else:
        yield item


def _from_async(items: Any) -> Iterator[object]:
    """An async iterator, driven from code that is not async."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError("this source is async and an event loop runs in this thread: use `async for`")
    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                yield loop.run_until_complete(items.__anext__())
            except StopAsyncIteration:
                return
    finally:
        if hasattr(items, "aclose"):
            loop.run_until_complete(items.aclose())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
