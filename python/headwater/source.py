"""What an author writes: `Source` or `@source`, `PartitionedSource`, and what their `read` may yield.

The contract is on these classes. `definition` checks a source when its class is created, `reading` reads one
without Spark, and `runtime` runs it in a query.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from types import new_class
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec
from urllib.parse import SplitResult

from headwater import definition, registry
from headwater.ddl import to_ddl
from headwater.notebook import html_table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "CAUGHT_UP",
    "At",
    "BadRow",
    "PartitionedSource",
    "Shard",
    "Source",
    "ack_on",
    "report_connection",
    "set_ack_on",
    "set_connection_reporter",
    "set_shard",
    "shard",
    "source",
]

P = ParamSpec("P")


class Source(metaclass=definition.SourceType):
    """Base class of sources. `read` is a generator, or an async generator, of rows:

    >>> import headwater as hw
    >>> class Countdown(hw.Source, name="countdown", schema="n INT"):
    ...     def __init__(self, start: int = 3):
    ...         self.start = start
    ...
    ...     def read(self):
    ...         yield from range(self.start, 0, -1)
    >>> print(list(Countdown(start=2)))
    [2, 1]

    `name` makes it a Spark format. The parameters of `__init__` are its options. `__init__` stores them and
    does not connect, because Spark asks for the schema long before it reads rows. The schema is DDL, a
    StructType or a property `schema`; it can be left out if the return annotation of `read` names a dataclass
    or a NamedTuple.

    `read(self, since)` makes the source resumable: it yields `hw.At(cursor, row)`, and `since` is the cursor
    to resume after, or None at the first start. Options named in `identity=("url",)` cannot change while a
    checkpoint is in use. Each feed runs on its own instance. The methods below are optional.

    `schemes=("weather", "weathers")` lets a URI name the source wherever a reference can, as in
    `hw.stream(spark, "weathers://host/berlin?interval=60s")`: its query sets options, and `uri_options` says
    which options the rest of it sets.
    """

    _name: ClassVar[str]
    _schema: ClassVar[Any] = None
    _identity: ClassVar[tuple[str, ...]] = ()
    _schemes: ClassVar[tuple[str, ...]] = ()
    _is_partitioned: ClassVar[bool] = False
    _bound: dict[str, object]
    _repr_on_driver: str | None = None

    def on_start(self) -> None:
        """Called in the feed's thread before `read`."""

    def on_failure(self, error: BaseException) -> None:
        """Called in the feed's thread after `read` has raised, whatever `onError` is set to."""

    def on_stop(self) -> None:
        """Called in the feed's thread after `read` has ended, with or without an error."""

    def ack(self, cursor: Any) -> None:
        """Called from another thread when all rows up to `cursor` are durable, even after `close`.

        With the option `ackOn` = `commit`: when Spark has committed the batch that they are in, which it does
        when it plans the next batch.
        """

    def close(self) -> None:
        """Called once, from another thread if `read` still runs: close what it waits for, to unblock it.

        An instance that Spark only asked for the schema is closed too; its `read` was never called.
        """

    @classmethod
    def uri_options(cls, uri: SplitResult, /) -> dict[str, str]:
        """The options that a URI with one of the source's schemes sets, as strings, by name.

        `uri` has no query: its parameters are options too, and a URI may not set an option twice. It has no
        password either: a URI that contains one is refused. `uri.path` is as it was written: it may contain
        `#`, and is not percent-decoded. Raise ValueError for a URI that makes no sense.

        By default the URI is the option `url`, without what is before a `+`: `sse+https://host/path` sets
        `url` to `https://host/path`.
        """
        return {"url": uri._replace(scheme=uri.scheme.rpartition("+")[2]).geturl()}

    def __iter__(self) -> Iterator[object]:
        """The rows, without Spark."""
        from headwater.reading import rows

        return rows(self._with_same_options())

    def __aiter__(self) -> AsyncIterator[object]:
        from headwater.reading import rows_async

        return rows_async(self._with_same_options())

    def __repr__(self) -> str:
        if self._repr_on_driver is not None:
            return self._repr_on_driver
        name = getattr(type(self), "_name", type(self).__qualname__)
        return f"{name}({definition.signature_of(type(self)).show(self._bound)})"

    def _repr_html_(self) -> str:
        """In a notebook: the schema and all options. Secrets are hidden."""
        options = definition.signature_of(type(self)).reprs(self._bound)
        name = getattr(type(self), "_name", type(self).__qualname__)
        try:
            name = f"{name}: {to_ddl(definition.schema_of_source(self))}"
        except Exception:  # the author's `schema` may fail, and then a query says why
            name = f"{name}: its schema is not valid"
        return html_table(("option", "value"), options.items(), name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source) and type(other) is type(self) and other._bound == self._bound

    def __hash__(self) -> int:
        return hash((type(self), repr(self._bound)))

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        schema: Any = None,
        identity: Sequence[str] = (),
        schemes: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        if schema is not None:
            cls._schema = schema
        cls._identity += (identity,) if isinstance(identity, str) else tuple(identity)
        cls._schemes = tuple(
            registry.validate_scheme(scheme)
            for scheme in ([schemes] if isinstance(schemes, str) else schemes)
        )
        if name is not None:
            cls._name = registry.validate_name(name)
            definition.check_class(cls)
            registry.register(cls)

    @classmethod
    def _bind(cls, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        """The valid arguments of a call, by name."""
        return definition.signature_of(cls).check(args, kwargs)

    @classmethod
    def _check_methods(cls) -> None:
        definition.check_read(cls)

    def _with_same_options(self) -> Source:
        """A new instance with the same options."""
        return type(self)(**self._bound)


def source(
    schema: str | StructType | None = None, *, name: str | None = None, identity: Sequence[str] = ()
) -> Callable[[Callable[P, Any]], Callable[P, Source]]:
    """Turns a generator function into a source: its name is the format, its parameters are the options.

    >>> import headwater as hw
    >>> @hw.source("n INT, square INT")
    ... def squares(count: int = 3):
    ...     for n in range(count):
    ...         yield n, n * n
    >>> print(squares(count=2), list(squares(count=2)))
    squares(count=2) [(0, 0), (1, 1)]

    The result is a subclass of `Source`, so `squares(count=2)` is a configured source. A parameter `since`
    makes it resumable. Options named in `identity=("url",)` cannot change while a checkpoint is in use. The
    schema can be left out if the return annotation names a dataclass or a NamedTuple.
    """
    if callable(schema):
        raise TypeError('write @hw.source("column TYPE, …") or @hw.source(), not @hw.source alone')

    def define(function: Callable[P, Any]) -> Callable[P, Source]:
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"@hw.source needs a generator function, not {function!r}")
        namespace = {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "_source_function": staticmethod(function),
        }
        keywords = {
            "name": function.__name__ if name is None else name,
            "schema": schema,
            "identity": identity,
        }
        return new_class(function.__name__, (_FunctionSource,), keywords, lambda body: body.update(namespace))

    return define


class _FunctionSource(Source):
    """The class that `@source` makes of a function: `read` calls it with the options."""

    _source_function: Callable[..., Any]

    def __init__(self, **options: object) -> None:
        """Nothing to store: `_bound` has the options."""

    def read(self, **since: object) -> Any:
        return type(self)._source_function(**self._bound, **since)


@dataclass(frozen=True)
class At:
    """Rows and the cursor to resume after them, any JSON. All rows of one `At` become durable together.

    >>> import headwater as hw
    >>> print(hw.At("event-17", ("event-17", "hello")))
    At(cursor='event-17', rows=('event-17', 'hello'))
    """

    cursor: Any
    rows: Any

    def __post_init__(self) -> None:
        """Copies lists and dicts: rows are sent later, and the author may reuse the same objects."""
        if type(self.cursor) is dict or type(self.cursor) is list:
            object.__setattr__(self, "cursor", _copy_json(self.cursor))
        if type(self.rows) is list or type(self.rows) is dict:
            object.__setattr__(self, "rows", self.rows.copy())


def _copy_json(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy_json(item) for key, item in value.items()}
    return [_copy_json(item) for item in value] if type(value) is list else value


class _CaughtUp:
    def __repr__(self) -> str:
        return "headwater.CAUGHT_UP"


CAUGHT_UP: Final = _CaughtUp()
"""Yield this when the upstream has no more rows for now: an AvailableNow query then stops waiting.
>>> from headwater.testing import END, ListSource
>>> print(list(ListSource([1, hw.CAUGHT_UP, 2, END])))
[1, 2]
"""


@dataclass(frozen=True)
class BadRow:
    """Yield this in place of a row for a malformed record; the `onBadRow` option decides what happens.

    >>> import headwater as hw
    >>> print(hw.BadRow(b"{oops", "not JSON"))
    BadRow(value=b'{oops', reason='not JSON', row=None)

    `fail` fails the query, with value and reason. `drop` skips it. `null` uses `row` in its place, with nulls
    for the missing values; without `row` it is skipped. `keep` puts value and reason into the column
    `_bad_row`.
    """

    value: Any
    reason: str
    row: Any = None


@dataclass(frozen=True)
class Shard:
    """The position of one of several feeds that run side by side: `index` from 0, of `count`."""

    index: int
    count: int


_ONLY_SHARD = Shard(0, 1)
_current_shard: ContextVar[Shard] = ContextVar("headwater_shard", default=_ONLY_SHARD)


def shard() -> Shard:
    """Call this in `read`: which of `concurrency` feeds this is, so that each reads its share.

    >>> import headwater as hw
    >>> @hw.source("n LONG")
    ... def share():
    ...     mine = hw.shard()
    ...     yield from range(mine.index, 6, mine.count)
    >>> print(hw.shard(), list(share()))
    Shard(index=0, count=1) [0, 1, 2, 3, 4, 5]
    """
    return _current_shard.get()


def set_shard(current: Shard) -> None:
    """Sets what `shard()` returns in this thread and in the tasks it starts."""
    _current_shard.set(current)


_current_ack_on: ContextVar[str | None] = ContextVar("headwater_ack_on", default=None)


def ack_on() -> str | None:
    """Call this in `read`: when the source's `ack` will be called, or None if it never will.

    `durable`: when rows are in the log of a query with a `checkpointLocation`. `commit`: when Spark has
    committed their batch, see the option `ackOn`. None: with `durability` = `memory`, without a
    `checkpointLocation`, and without Spark.

    >>> import headwater as hw
    >>> print(hw.ack_on())
    None
    """
    return _current_ack_on.get()


def set_ack_on(moment: str | None) -> None:
    """Sets what `ack_on()` returns in this thread and in the tasks it starts."""
    _current_ack_on.set(moment)


_connection_reporter: ContextVar[Callable[[bool, object], None] | None] = ContextVar(
    "headwater_connection_reporter", default=None
)


def report_connection(connected: bool, error: BaseException | str | None = None) -> None:
    """Call this in `read` of a source that reconnects by itself, when it has lost its connection or has one.

    While it has none, the state of the feed is `reconnecting` in `hw.feeds()` and in progress reports, and
    `error` is its last error. Outside of a feed nothing happens.

    >>> import headwater as hw
    >>> hw.report_connection(False, "the server is gone")
    """
    if (report := _connection_reporter.get()) is not None:
        report(connected, error)


def set_connection_reporter(report: Callable[[bool, object], None]) -> None:
    """Sets what `report_connection` calls in this thread and in the tasks it starts."""
    _connection_reporter.set(report)


class PartitionedSource(Source):
    """Base class of sources whose upstream has partitions, each with its own offsets:

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

    Offsets are integers from 0 that increase; there may be gaps between them. The same `read(p, start, end)`
    returns the same rows each time. Spark's executors call it for many ranges at once, each task on its own
    instance. The driver calls the other methods continuously from a few threads, each with its own instance.
    So no method needs to be thread-safe, and instances share nothing.

    Name, schema, options and `identity` work as for `Source`. Executors need the class too: Spark's
    serializer sends it by module name if its module can be imported there, else by value.
    """

    _is_partitioned: ClassVar[bool] = True

    @abstractmethod
    def partitions(self) -> Collection[int] | Collection[str]:
        """The keys of all partitions: strings, or integers from 0. Partitions may appear and disappear."""

    @abstractmethod
    def earliest(self, p: Any, /) -> int:
        """The first offset that can still be read. Executors call this too, before they read."""

    @abstractmethod
    def latest(self, p: Any, /) -> int:
        """One past the last offset: where the next row will be."""

    def at(self, p: Any, timestamp: datetime, /) -> int:
        """Optional, for `startFrom` with a time: the first offset at or after it, or `latest` if none."""
        raise NotImplementedError

    def after(self, p: Any, start: int, rows: int, /) -> int:
        """Optional, for offsets with gaps: an end so that `read(p, start, end)` yields at most `rows` rows,
        and at least one if there is one. Without this method, offsets are counted as rows."""
        raise NotImplementedError

    def committed(self, offsets: dict[Any, int], /) -> None:
        """Optional: Spark has committed a batch, which ends before these offsets, by partition.

        Called on the driver, in a thread that Spark does not wait for, together with `partitions_changed` one
        call at a time, on an instance of its own. Spark commits a batch when it plans the next one, so the
        last batch before a stop is not reported. If several commits wait, only the newest is. An error is
        logged, and the query goes on.
        """

    def partitions_changed(self, added: list[Any], removed: list[Any], /) -> None:
        """Optional: `partitions` has returned other keys than before. The first time all of them are added.

        Called as `committed` is.
        """

    @abstractmethod
    def read(self, p: Any, start: int, end: int, /) -> Iterator[Any]:
        """The rows with offsets start <= o < end, in order. Called on an executor."""

    def close(self) -> None:
        """Called once, to release resources; from another thread if a method still runs."""

    @classmethod
    def _check_methods(cls) -> None:
        definition.check_partition_methods(cls, PartitionedSource)

    @classmethod
    def _defines_method(cls, method: str) -> bool:
        """Whether the author has defined an optional method."""
        return definition.overrides(cls, PartitionedSource, method)
