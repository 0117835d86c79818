"""What an author writes: `source`, `Source`, `PartitionedSource`, `At`, `CAUGHT_UP`, `BadRow` and `shard`."""

from __future__ import annotations

import asyncio
import inspect
import operator
from abc import ABCMeta, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from types import new_class
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec, get_type_hints
from weakref import WeakKeyDictionary

from headwater.errors import shown
from headwater.options import Signature
from headwater.schema import of_row_type, row_type, struct_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "CAUGHT_UP",
    "LARGEST_OFFSET",
    "NO_AT",
    "At",
    "BadRow",
    "Name",
    "PartitionedSource",
    "Shard",
    "Source",
    "begin",
    "begin_range",
    "check_class",
    "check_read",
    "checked_items",
    "checked_names",
    "checked_offset",
    "from_text",
    "has_array_rows",
    "in_shard",
    "is_async",
    "is_resumable",
    "items_of",
    "items_of_partitions",
    "kind_of_names",
    "made_of",
    "rows_of",
    "rows_of_async",
    "schema_of_class",
    "schema_of_source",
    "shard",
    "signature_of",
    "source",
]

_signatures: WeakKeyDictionary[type[Source], Signature] = WeakKeyDictionary()
"""Beside the classes, and not in them: a class that is sent to executors is sent with all that is in it."""


class _SourceType(ABCMeta):
    """Checks a call against the signature, and keeps its arguments: a source is a value, to be made again."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        source: Any = cls
        return made_of(source, source._bind(args, kwargs))


class Source(metaclass=_SourceType):
    """What an author of a source subclasses. `read` is a generator, or an async generator, of rows:

    >>> import headwater as hw
    >>> class Countdown(hw.Source, name="countdown", schema="n INT"):
    ...     def __init__(self, start: int = 3):
    ...         self.start = start
    ...
    ...     def read(self):
    ...         yield from range(self.start, 0, -1)
    >>> print(list(Countdown(start=2)))
    [2, 1]

    With `name` it is a format of Spark. The parameters of `__init__` are its options, which it keeps; it does
    not connect, for Spark asks for the schema long before it wants rows. The schema is DDL, a StructType, a
    property `schema`, or left out where the return annotation of `read` names a dataclass or a NamedTuple.

    `read(self, since)` makes the source resumable: it yields `hw.At(cursor, row)`, and `since` is the cursor
    to go on after, None at the first start. Options that `identity=("url",)` names must not change while a
    checkpoint is used. Each feed runs on an instance of its own. The methods below may be defined.
    """

    _name: ClassVar[str]
    _schema: ClassVar[Any] = None
    _identity: ClassVar[tuple[str, ...]] = ()
    _is_partitioned: ClassVar[bool] = False
    _bound: dict[str, object]
    _shown: str | None = None

    def __init_subclass__(
        cls, *, name: str | None = None, schema: Any = None, identity: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if schema is not None:
            cls._schema = schema
        cls._identity += (identity,) if isinstance(identity, str) else tuple(identity)
        if name is not None:
            from headwater import registry  # which knows sources

            cls._name = registry.checked_name(name)
            check_class(cls)
            registry.define(cls)

    def on_start(self) -> None:
        """Called in the feed's thread before `read`."""

    def on_failure(self, error: BaseException) -> None:
        """Called in the feed's thread when `read` has raised, whatever `onError` says."""

    def on_stop(self) -> None:
        """Called in the feed's thread when `read` is over, whichever way."""

    def ack(self, cursor: Any) -> None:
        """Called from another thread when all rows up to that cursor are durable, even after `close`."""

    def close(self) -> None:
        """Called once; while `read` runs, from another thread, to unblock it: close what it waits for."""

    def __iter__(self) -> Iterator[object]:
        """The rows, without Spark."""

        return rows_of(self._again())

    def __aiter__(self) -> AsyncIterator[object]:

        return rows_of_async(self._again())

    def __repr__(self) -> str:
        if self._shown is not None:
            return self._shown
        name = getattr(type(self), "_name", type(self).__qualname__)
        return f"{name}({signature_of(type(self)).show(self._bound)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source) and type(other) is type(self) and other._bound == self._bound

    def __hash__(self) -> int:
        return hash((type(self), repr(self._bound)))

    def _again(self) -> Source:
        """A new instance of the same source with the same options."""
        return type(self)(**self._bound)

    def _begin(self, since: Any) -> Any:
        """What `read` returns."""
        read: Any = self.read  # type: ignore[attr-defined]
        return read(since=since) if is_resumable(type(self)) else read()

    @classmethod
    def _check_methods(cls) -> None:
        check_read(cls)

    @classmethod
    def _bind(cls, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        return signature_of(cls).check(args, kwargs)


def made_of(source: type[Source], bound: dict[str, object], shown: str | None = None) -> Any:
    """With arguments that were checked before; if elsewhere, names in annotations may be missing here."""
    made: Any = source.__new__(source)
    object.__setattr__(made, "_bound", bound)  # a frozen dataclass too
    object.__setattr__(made, "_shown", shown)
    made.__init__(**{k: list(v) if isinstance(v, list) else v for k, v in bound.items()})  # its own lists
    return made


def signature_of(cls: type[Source]) -> Signature:
    """Read when it is first asked for: a dataclass gets its `__init__` after the class is made."""
    if (found := _signatures.get(cls)) is None:
        owner = f"source '{getattr(cls, '_name', cls.__qualname__)}'"
        function = getattr(cls, "_written", None)
        written: Any = function or cls.__init__
        if written is object.__init__:
            written = _without_options
        elif function is None and "since" in inspect.signature(written).parameters:
            raise TypeError(
                f"`since` of {owner} is a parameter of read, which gets the cursor; not of __init__"
            )
        found = Signature.of(written, owner=owner, skip=("self", "since"))
        _signatures[cls] = found
    return found


def _reader(cls: Any) -> Any:
    """As the author wrote it: the function, or the method `read`."""
    return getattr(cls, "_written", None) or cls.read


def is_resumable(cls: type[Source]) -> bool:
    """Whether `read` takes the cursor to go on after."""
    return not cls._is_partitioned and "since" in inspect.signature(_reader(cls)).parameters


def schema_of_source(source: Source) -> StructType:
    """The schema of a configured source: its own, or else that of the rows that `read` says to give."""
    given = type(source)._schema
    if given is None:
        given = getattr(source, "schema", None)
    return _schema_of_rows(type(source)) if given is None else struct_type(given)


def schema_of_class(cls: type[Source]) -> StructType | None:
    """The same without an instance; None where it depends on the options."""
    given = cls._schema
    if given is None:
        given = inspect.getattr_static(cls, "schema", None)
        if given is not None and hasattr(given, "__get__"):
            return None
    return _schema_of_rows(cls) if given is None else struct_type(given)


def _schema_of_rows(cls: type[Source]) -> StructType:
    try:
        rows = row_type(get_type_hints(_reader(cls)).get("return"))
    except NameError as error:
        raise TypeError(f"the annotation of what it returns cannot be read: {error}") from None
    if rows is None:
        raise TypeError(
            "there is none. Give a DDL string such as 'id LONG, word STRING' or a StructType, define "
            "`schema` as a property, or annotate what read returns: Iterator[T], T a dataclass or NamedTuple"
        )
    return of_row_type(rows)


def _without_options() -> None:
    """The signature of a class without `__init__`."""


def check_class(cls: type[Source]) -> None:
    """TypeError or ValueError, with the name of the source, where its class cannot be one."""

    cls._check_methods()
    try:
        schema_of_class(cls)
    except (TypeError, ValueError) as error:
        raise type(error)(f"the schema of source '{cls._name}': {error}") from None
    if "__init__" in cls.__dict__ or hasattr(cls, "_written"):
        signature_of(cls)


def check_read(cls: type[Source]) -> None:
    """Of a source with a feed: its `read` takes `since` or nothing."""
    read: Any = getattr(cls, "read", None)
    if not callable(read):
        raise TypeError(f"source '{cls._name}' has no method read(self): the generator that yields its rows")
    if hasattr(cls, "_written"):
        return
    for parameter in list(inspect.signature(read).parameters.values())[1:]:
        if parameter.name != "since" and parameter.default is parameter.empty:
            raise TypeError(
                f"read of source '{cls._name}' has a parameter '{parameter.name}'; it may have `since`, the "
                "cursor to go on after, and no other: options are parameters of __init__"
            )


P = ParamSpec("P")


def source(
    schema: str | StructType | None = None, *, name: str | None = None, identity: Sequence[str] = ()
) -> Callable[[Callable[P, Any]], Callable[P, Source]]:
    """Make a source of a generator function; its name is the format, its parameters are the options.

    >>> import headwater as hw
    >>> @hw.source("n INT, square INT")
    ... def squares(count: int = 3):
    ...     for n in range(count):
    ...         yield n, n * n
    >>> print(squares(count=2), list(squares(count=2)))
    squares(count=2) [(0, 0), (1, 1)]

    What it makes is a subclass of `Source`, so `squares(count=2)` is a configured source. A parameter
    `since` makes it resumable. `identity=("url",)` names options that must stay as they are for as long as a
    checkpoint is used. The schema can be left out where the return annotation names a dataclass or a
    NamedTuple.
    """
    if callable(schema):
        raise TypeError('write @hw.source("column TYPE, …") or @hw.source(), not @hw.source alone')

    def define(function: Callable[P, Any]) -> Callable[P, Source]:
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"@hw.source makes a source of a generator function, not of {function!r}")
        body = {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "_written": staticmethod(function),
        }
        keywords = {
            "name": function.__name__ if name is None else name,
            "schema": schema,
            "identity": identity,
        }
        return new_class(function.__name__, (_FunctionSource,), keywords, lambda made: made.update(body))

    return define


class _FunctionSource(Source):
    """The class form of a function: reading calls it with the options."""

    _written: Callable[..., Any]

    def __init__(self, **options: object) -> None:
        """The options are kept with the value."""

    def read(self, **since: object) -> Any:
        return type(self)._written(**self._bound, **since)


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


@dataclass(frozen=True)
class BadRow:
    """Stands where a row would, for what cannot become one; `onBadRow` says what becomes of it.

    >>> import headwater as hw
    >>> print(hw.BadRow(b"{oops", "it is no JSON"))
    BadRow(value=b'{oops', reason='it is no JSON', row=None)

    `fail` fails the query, with value and reason; `drop` leaves it out; `null` puts `row` in its place, which
    has nulls where there is no value. Without `row` it is left out.
    """

    value: Any
    reason: str
    row: Any = None


@dataclass(frozen=True)
class Shard:
    """Which of the feeds that run side by side this is, from 0, and how many they are."""

    index: int
    count: int


_ALONE = Shard(0, 1)


_current: ContextVar[Shard] = ContextVar("headwater_shard", default=_ALONE)


def shard() -> Shard:
    """Called in `read`: which of `concurrency` feeds this is, to read a share of the upstream.

    >>> import headwater as hw
    >>> @hw.source("n LONG")
    ... def share():
    ...     mine = hw.shard()
    ...     yield from range(mine.index, 6, mine.count)
    >>> print(hw.shard(), list(share()))
    Shard(index=0, count=1) [0, 1, 2, 3, 4, 5]
    """
    return _current.get()


def in_shard(mine: Shard) -> None:
    """From now on, in this thread and what it starts, `shard()` is that one."""
    _current.set(mine)


Name = int | str

LARGEST_OFFSET = 2**63 - 1
_LARGEST_NUMBER, _LONGEST_NAME = 2**31 - 1, 255
_NAMES = (
    f"names of 1 to {_LONGEST_NAME} characters, or whole numbers from 0 to {_LARGEST_NUMBER}; of one kind, "
    "and none twice"
)


def checked_names(given: Any) -> list[Name]:
    """What `partitions()` gave, as Python's own ints or strs; ValueError where that cannot be.

    >>> checked_names((2, 0, 1))
    [2, 0, 1]
    """
    if not isinstance(given, list | tuple | set | frozenset):
        raise ValueError(
            f"partitions() gave {shown(given)} of type {type(given).__name__}; it must give a list: {_NAMES}"
        )
    names = [_name(name) for name in given]
    if len({type(name) for name in names}) > 1:
        raise ValueError(f"partitions() gave names and numbers, {shown(given)}; it must give {_NAMES}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"partitions() gave {twice!r} more than once; it must give {_NAMES}")
    return names if isinstance(given, list | tuple) else sorted(names)


def checked_offset(given: Any, call: str) -> int:
    """What `call` gave, as an int; ValueError where that is no offset.

    >>> checked_offset(17, "latest('a')")
    17
    """
    offset = _index(given)
    if offset is None or not 0 <= offset <= LARGEST_OFFSET:
        raise ValueError(
            f"{call} gave {shown(given)} of type {type(given).__name__}; an offset is a whole number from 0 "
            f"to {LARGEST_OFFSET}"
        )
    return offset


def kind_of_names(names: list[Name]) -> str | None:
    """`int` or `text`; None of none."""
    return ("int" if isinstance(names[0], int) else "text") if names else None


def from_text(text: str, kind: str) -> Name:
    """The name of a partition, out of how it is written in JSON."""
    return int(text) if kind == "int" else text


def _name(given: Any) -> Name:
    if isinstance(given, str):
        name = str.__str__(given)
        if 1 <= len(name) <= _LONGEST_NAME and not any("\ud800" <= c <= "\udfff" for c in name):
            return name
    number = _index(given)
    if number is None or not 0 <= number <= _LARGEST_NUMBER:
        raise ValueError(
            f"partitions() gave {shown(given)} of type {type(given).__name__}; it must give {_NAMES}"
        )
    return number


def _index(given: Any) -> int | None:
    """As an int, if it is one or one of numpy's; True is none."""
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)
    except TypeError:
        return None


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
