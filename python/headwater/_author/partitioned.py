"""A partitioned source, as its author writes it: each partition has offsets of its own, and tasks read it."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any, ClassVar

from headwater._author.partition_values import checked_names, checked_offset
from headwater._author.reading import At, checked_items
from headwater._author.source import Source

__all__ = ["NO_AT", "PartitionedSource", "begin_range", "items_of_partitions"]

NO_AT = "a partitioned source yields rows alone, and no hw.At(cursor, rows): it goes on by its offsets"

_PARAMETERS = {
    "partitions": "",
    "earliest": "p",
    "latest": "p",
    "at": "p, timestamp",
    "after": "p, start, rows",
    "read": "p, start, end",
}
_NEEDED = {
    "partitions": "the names of its partitions",
    "earliest": "the first offset of a partition that can still be read",
    "latest": "one past the last offset of a partition",
    "read": "the generator that yields the rows of a partition with offsets start <= o < end",
}
_OF_FEEDS = ("on_start", "on_failure", "on_stop", "ack")


class PartitionedSource(Source):
    """What an author subclasses where the upstream has partitions, each with offsets of its own:

    >>> import headwater as hw
    >>> class Shelves(hw.PartitionedSource, name="shelves", schema="shelf STRING, number LONG"):
    ...     def partitions(self):
    ...         return ["a", "b"]
    ...
    ...     def earliest(self, p):
    ...         return 0
    ...
    ...     def latest(self, p):
    ...         return 2
    ...
    ...     def read(self, p, start, end):
    ...         for number in range(start, end):
    ...             yield p, number
    >>> print(list(Shelves()))
    [('a', 0), ('a', 1), ('b', 0), ('b', 1)]

    Offsets are whole numbers from 0, and increase; there may be gaps between them. The same `read(p, start,
    end)` gives the same rows each time. Spark's executors call it, for many ranges at once, each task on an
    instance of its own. The driver calls the other methods, all the time, from a few threads, each with an
    instance of its own. So no method has to be thread-safe, and instances share nothing.

    Name, schema, options and `identity` are as for `Source`. Executors need the source too: its class is sent
    there as Spark sends functions, by the name of its module where that can be imported, else as it is.
    """

    _is_partitioned: ClassVar[bool] = True

    @abstractmethod
    def partitions(self) -> Collection[int] | Collection[str]:
        """The names of all partitions, texts or numbers from 0. New ones may come, and old ones go."""

    @abstractmethod
    def earliest(self, p: Any, /) -> int:
        """The first offset that can still be read. Executors ask for it too, before they read."""

    @abstractmethod
    def latest(self, p: Any, /) -> int:
        """One past the last offset: where the next row will be."""

    def at(self, p: Any, timestamp: datetime, /) -> int:
        """May be defined, for `startFrom` with a time: the first offset at or after it, else `latest`."""
        raise NotImplementedError

    def after(self, p: Any, start: int, rows: int, /) -> int:
        """May be defined, where offsets have gaps: an end for which `read(p, start, end)` has at most so many
        rows, and one at least if there is one. Without it offsets are counted as rows."""
        raise NotImplementedError

    @abstractmethod
    def read(self, p: Any, start: int, end: int, /) -> Iterator[Any]:
        """The rows with offsets start <= o < end, in order. Called on an executor."""

    def close(self) -> None:
        """Called once, to give back what the instance holds; while a method runs, from another thread."""

    def _begin(self, since: Any) -> Any:
        return items_of_partitions(self)

    @classmethod
    def _check_methods(cls) -> None:
        for name, what in _NEEDED.items():
            if not callable(getattr(cls, name)) or not _defines(cls, name):
                raise TypeError(f"partitioned source '{cls._name}' has no method {_call(name)}: {what}")
        for name in _PARAMETERS:
            if _defines(cls, name):
                _check_method(cls, name)
        for name in _OF_FEEDS:
            if getattr(cls, name) is not getattr(Source, name):
                raise TypeError(
                    f"partitioned source '{cls._name}' has a method {name}, which is for sources with a "
                    "feed, and would never be called: do its work in the methods that need it, or in close"
                )

    @classmethod
    def _can(cls, name: str) -> bool:
        """Whether the author has defined a method that may be left out."""
        return _defines(cls, name)


def begin_range(source: PartitionedSource, p: Any, start: int, end: int) -> Iterator[Any]:
    """What `read` yields of a range; TypeError where it gives no rows."""
    items = checked_items(source, source.read(p, start, end))
    if hasattr(items, "__aiter__"):
        raise TypeError(f"read of {source!r} is async, and tasks read rows one after the other: yield them")
    return iter(items)


def items_of_partitions(source: PartitionedSource) -> Iterator[Any]:
    """All partitions, from earliest to latest as they are now, one after the other."""
    names = checked_names(source.partitions())
    ends = {p: checked_offset(source.latest(p), f"latest({p!r})") for p in names}
    starts = {p: checked_offset(source.earliest(p), f"earliest({p!r})") for p in names}
    for p in names:
        if starts[p] < ends[p]:
            for item in begin_range(source, p, starts[p], ends[p]):
                if isinstance(item, At):
                    raise TypeError(NO_AT)
                yield item


def _defines(cls: type[PartitionedSource], name: str) -> bool:
    return getattr(cls, name) is not getattr(PartitionedSource, name)


def _check_method(cls: type[PartitionedSource], name: str) -> None:
    method = getattr(cls, name)
    if inspect.isasyncgenfunction(method) or inspect.iscoroutinefunction(method):
        raise TypeError(
            f"{name} of partitioned source '{cls._name}' is async, and its methods are called one after the "
            "other: write def in place of async def"
        )
    is_static = isinstance(inspect.getattr_static(cls, name), staticmethod | classmethod)
    given = len(list(filter(None, _PARAMETERS[name].split(", ")))) + (not is_static)
    try:
        inspect.signature(method).bind(*[None] * given)
    except TypeError:
        raise TypeError(
            f"{name} of partitioned source '{cls._name}' is {name}{inspect.signature(method)}; it is called "
            f"as {_call(name)}, and options are parameters of __init__"
        ) from None


def _call(name: str) -> str:
    return f"{name}({', '.join(filter(None, ('self', _PARAMETERS[name])))})"
