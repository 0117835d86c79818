"""A source, as its author writes it: `class Letters(Source, name="letters", schema="value STRING")`."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints
from weakref import WeakKeyDictionary

from headwater._author import registry
from headwater._author.checks import check_class, check_read
from headwater._author.schema import of_row_type, row_type, struct_type
from headwater._author.signature import Signature

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Source", "is_resumable", "made_of", "schema_of_class", "schema_of_source", "signature_of"]


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
        from headwater._author.reading import rows_of

        return rows_of(self._again())

    def __aiter__(self) -> AsyncIterator[object]:
        from headwater._author.reading import rows_of_async

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
