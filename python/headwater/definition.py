"""What a source's class defines, checked when the class is created: its options, schema and methods."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from typing import TYPE_CHECKING, Any, get_type_hints
from weakref import WeakKeyDictionary

from headwater.options import Signature
from headwater.schema import row_type, schema_of_row_type, struct_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headwater.source import Source

__all__ = [
    "SourceType",
    "check_class",
    "check_partition_methods",
    "check_read",
    "instantiate",
    "is_resumable",
    "overrides",
    "schema_of_class",
    "schema_of_source",
    "signature_of",
]


class SourceType(ABCMeta):
    """Validates the arguments when a source is created, and stores them, so that it can be created again."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        source: Any = cls
        return instantiate(source, source._bind(args, kwargs))


def instantiate(cls: type[Source], bound: dict[str, object], shown: str | None = None) -> Any:
    """An instance with arguments that are already valid.

    Executors use this directly: the names in the author's annotations may be missing there. `shown` is the
    `repr` of the source on the driver.
    """
    source: Any = cls.__new__(cls)
    object.__setattr__(source, "_bound", bound)  # works for a frozen dataclass too
    object.__setattr__(source, "_repr_on_driver", shown)
    # The instance gets its own lists, so that it cannot change the stored arguments.
    source.__init__(**{k: list(v) if isinstance(v, list) else v for k, v in bound.items()})
    return source


# Kept outside the classes: a class that is sent to executors is sent with all its attributes.
_signatures: WeakKeyDictionary[type[Source], Signature] = WeakKeyDictionary()


def signature_of(cls: type[Source]) -> Signature:
    """The options. Computed on first use, because a dataclass gets its `__init__` after the class exists."""
    signature = _signatures.get(cls)
    if signature is None:
        owner = f"source '{getattr(cls, '_name', cls.__qualname__)}'"
        function: Any = getattr(cls, "_source_function", None)
        if function is None:
            function = cls.__init__ if cls.__init__ is not object.__init__ else _no_options
            if "since" in inspect.signature(function).parameters:
                raise TypeError(
                    f"`since` of {owner} must be a parameter of read, not of __init__: read gets the cursor"
                )
        signature = _signatures[cls] = Signature.of(function, owner=owner, skip=("self", "since"))
    return signature


def _no_options() -> None:
    """The signature of a class without `__init__`."""


def _written_by_author(cls: Any) -> Any:
    """The function of `@source`, or else the method `read`."""
    return getattr(cls, "_source_function", None) or cls.read


def is_resumable(cls: type[Source]) -> bool:
    """Whether `read` takes the cursor to resume after."""
    return not cls._is_partitioned and "since" in inspect.signature(_written_by_author(cls)).parameters


# Schemas


def schema_of_source(source: Source) -> StructType:
    """The schema of a configured source: declared, or else derived from the annotation of `read`."""
    schema = type(source)._schema
    if schema is None:
        schema = getattr(source, "schema", None)
    return _schema_of_rows(type(source)) if schema is None else struct_type(schema)


def schema_of_class(cls: type[Source]) -> StructType | None:
    """The same without an instance; None if the schema depends on the options."""
    schema = cls._schema
    if schema is None:
        schema = inspect.getattr_static(cls, "schema", None)
        if schema is not None and hasattr(schema, "__get__"):
            return None
    return _schema_of_rows(cls) if schema is None else struct_type(schema)


def _schema_of_rows(cls: type[Source]) -> StructType:
    try:
        rows = row_type(get_type_hints(_written_by_author(cls)).get("return"))
    except NameError as error:
        raise TypeError(f"the return annotation of read cannot be evaluated: {error}") from None
    if rows is None:
        raise TypeError(
            "there is none. Pass a DDL string such as 'id LONG, word STRING' or a StructType, define a "
            "property `schema`, or annotate read to return Iterator[T], where T is a dataclass or NamedTuple"
        )
    return schema_of_row_type(rows)


# Checks


def check_class(cls: type[Source]) -> None:
    """TypeError or ValueError, with the source's name, if the class cannot be a source."""
    cls._check_methods()
    try:
        schema_of_class(cls)
    except (TypeError, ValueError) as error:
        raise type(error)(f"the schema of source '{cls._name}': {error}") from None
    if "__init__" in cls.__dict__ or hasattr(cls, "_source_function"):
        signature_of(cls)


def check_read(cls: type[Source]) -> None:
    """`read` of a source that is not partitioned takes `since` or nothing."""
    read: Any = getattr(cls, "read", None)
    if not callable(read):
        raise TypeError(
            f"source '{cls._name}' has no method read(self): define it as a generator that yields rows"
        )
    if hasattr(cls, "_source_function"):
        return
    for parameter in list(inspect.signature(read).parameters.values())[1:]:
        if parameter.name != "since" and parameter.default is parameter.empty:
            raise TypeError(
                f"read of source '{cls._name}' has a parameter '{parameter.name}'; its only parameter can be "
                "`since`, the cursor to resume after: options are parameters of __init__"
            )


_PARTITION_METHODS = {
    "partitions": "",
    "earliest": "p",
    "latest": "p",
    "at": "p, timestamp",
    "after": "p, start, rows",
    "committed": "offsets",
    "partitions_changed": "added, removed",
    "read": "p, start, end",
}
_REQUIRED_METHODS = {
    "partitions": "it returns the keys of all partitions",
    "earliest": "it returns the first offset of a partition that can still be read",
    "latest": "it returns one past the last offset of a partition",
    "read": "a generator that yields the rows of a partition with offsets start <= o < end",
}
_FEED_METHODS = ("on_start", "on_failure", "on_stop", "ack")


def check_partition_methods(cls: type[Source], base: type[Source]) -> None:
    """A partitioned source defines the required methods, with the right parameters, and no method of a feed.

    `base` is PartitionedSource.
    """
    for name, purpose in _REQUIRED_METHODS.items():
        if not callable(getattr(cls, name)) or not overrides(cls, base, name):
            raise TypeError(f"partitioned source '{cls._name}' has no method {_call(name)}: {purpose}")
    for name in _PARTITION_METHODS:
        if overrides(cls, base, name):
            _check_parameters(cls, name)
    for name in _FEED_METHODS:
        if overrides(cls, base, name):
            raise TypeError(
                f"partitioned source '{cls._name}' has a method {name}, which only a source with a feed can "
                "have and which would never be called: do its work in the methods that need it, or in close"
            )


def overrides(cls: type[Source], base: type[Source], method: str) -> bool:
    """Whether `cls` defines the method itself or inherits it from a class other than `base`."""
    return getattr(cls, method) is not getattr(base, method)


def _check_parameters(cls: type[Source], name: str) -> None:
    method = getattr(cls, name)
    if inspect.isasyncgenfunction(method) or inspect.iscoroutinefunction(method):
        raise TypeError(
            f"{name} of partitioned source '{cls._name}' is async, which only a source with a feed can be: "
            "write def instead of async def"
        )
    is_static = isinstance(inspect.getattr_static(cls, name), staticmethod | classmethod)
    arguments = len(list(filter(None, _PARTITION_METHODS[name].split(", ")))) + (not is_static)
    try:
        inspect.signature(method).bind(*[None] * arguments)
    except TypeError:
        raise TypeError(
            f"{name} of partitioned source '{cls._name}' is defined as {name}{inspect.signature(method)}; it "
            f"is called as {_call(name)}, and options are parameters of __init__"
        ) from None


def _call(method: str) -> str:
    return f"{method}({', '.join(filter(None, ('self', _PARTITION_METHODS[method])))})"
