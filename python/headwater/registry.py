"""The sources that this process knows, by name."""

from __future__ import annotations

import inspect
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ParamSpec, TypeGuard

from headwater.ddl import to_ddl
from headwater.options import (
    Option,
    OptionError,
    OptionValue,
    Secret,
    Signature,
    camel,
    encode,
    plain,
    texts_of,
    write,
)
from headwater.source import Source, is_resumable, schema_of_source, signature_of

if TYPE_CHECKING:
    from headwater.source import Source

__all__ = [
    "JvmSource",
    "Registered",
    "all_sources",
    "built_in",
    "checked_name",
    "class_of",
    "define",
    "described",
    "described_source",
    "find",
    "hold",
    "identity_of",
    "is_class",
    "options_in",
    "registered",
    "revealed",
    "secrets_in",
    "secrets_of",
    "subscribe",
]

# Spark's own formats and those of its best known connectors. A running Spark is asked for all others.
_FORMATS = """
    avro binaryfile console csv delta headwater hive hudi iceberg image jdbc json kafka kinesis
    libsvm memory noop orc parquet protobuf python random_alpha rate redshift snowflake socket
    statestore text textfile xml
"""
_SPARKS = frozenset(_FORMATS.split())

_BUILT_IN = frozenset(("meetup_rsvp", "ndjson", "sse"))  # in Python; the jar has formats for them

_lock = threading.RLock()
_sources: dict[str, type[Source]] = {}
_held: dict[str, Source] = {}
_listeners: list[Callable[[str], None]] = []


@dataclass(frozen=True)
class Registered:
    """A source as `registered()` lists it."""

    name: str
    doc: str
    schema: str | None
    """As DDL; None where it depends on the options."""
    options: tuple[Option, ...]
    resumable: bool
    origin: str
    """Where it is defined, as `module:name`."""
    partitioned: bool = False


def checked_name(name: str) -> str:
    """The name, if a source can be called that."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name):
        raise ValueError(f"a source cannot be called {name!r}: a letter, then up to 63 letters, digits or _")
    if name.lower() in _SPARKS:
        raise ValueError(
            f"a source cannot be called {name!r}: that is a format of Spark's or one that comes with it"
        )
    return name


def define(cls: type[Source]) -> None:
    """Add a source. It replaces only an older definition of itself, as of a notebook's cell run again."""
    if cls._name.lower() in _BUILT_IN and not cls.__module__.startswith("headwater.sources."):
        raise ValueError(f"a source cannot be called {cls._name!r}: one that comes with headwater is")
    with _lock:
        before = _sources.get(cls._name.lower())
        if before is not None and _origin(before) != _origin(cls):
            raise ValueError(
                f"the name '{cls._name}' is taken: {_origin(before)} defines it too, and this is "
                f"{_origin(cls)}. Give one of them another name"
            )
        for listener in _listeners:  # which may refuse the name
            listener(cls._name)
        _sources[cls._name.lower()] = cls


def subscribe(listener: Callable[[str], None]) -> None:
    """From now on, call it with the name of each new source before that is added."""
    with _lock:
        if listener not in _listeners:
            _listeners.append(listener)


def all_sources() -> dict[str, type[Source]]:
    """The sources that are written in Python, by name."""
    with _lock:
        return {cls._name: cls for cls in _sources.values()}


def hold(source: Source) -> str:
    """A name under which `find` gives this very value; it is kept for as long as the process lives."""
    with _lock:
        token: str | None = source.__dict__.get("_held_as")
        if token is None:
            token = f"{type(source)._name}@{secrets.token_hex(8)}"
            source.__dict__["_held_as"] = token
            _held[token] = source
        return token


def class_of(name: str) -> type[Source] | None:
    """The source of that name; None for one that was handed over as a value, with its options."""
    return _known(name)[1]


def find(name: str, options: dict[str, str]) -> Source:
    """The configured source that Spark means. OptionError where there is none, or its options are wrong."""
    from headwater.source import signature_of

    held, cls = _known(name)
    if held is not None:
        if options:
            raise OptionError(f"{held!r} is configured already: set {', '.join(sorted(options))} there")
        return held._again()
    if cls is None:
        raise OptionError(_unknown(name))
    return cls(**signature_of(cls).parse(options))


def _known(name: str) -> tuple[Source | None, type[Source] | None]:
    """The value that is held under that name, and the source that has it."""
    if name.lower() in _BUILT_IN:
        import headwater.sources  # noqa: F401
    with _lock:
        return _held.get(name), _sources.get(name.lower())


def secrets_in(name: str, options: dict[str, str]) -> list[str]:
    """The secrets among the options, which nobody may be told."""
    from headwater.source import signature_of

    held, cls = _known(name)
    if held is not None:
        return secrets_of(held)
    signature = signature_of(cls) if cls else None
    marked = {plain(option.name) for option in signature.options if option.secret} if signature else set()
    written = [Secret(text) for option, text in options.items() if plain(option) in marked and text]
    texts = [text for secret in written for text in texts_of(secret)]
    with suppress(OptionError):  # each of a list, which its text may write in another way
        return [*texts, *revealed(signature.parse(options))] if signature else []
    return texts


def secrets_of(source: Source) -> list[str]:
    """Those of a configured source."""
    return revealed(source._bound)


def revealed(bound: dict[str, object]) -> list[str]:
    """The secrets among the arguments of a source."""
    values = [v for value in bound.values() for v in (value if isinstance(value, list) else [value])]
    return [text for value in values if isinstance(value, Secret) for text in texts_of(value)]


def registered() -> list[Registered]:
    """All sources that can be read: those that come with headwater, and those defined in this process.

    >>> import headwater as hw
    >>> print([found.schema for found in hw.registered() if found.name == "random_alpha"])
    ['timestamp TIMESTAMP, value STRING']
    """

    return sorted(described(all_sources()), key=lambda found: found.name)


def _origin(cls: type[Source]) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _unknown(name: str) -> str:
    names = sorted(all_sources())
    near = get_close_matches(name, names, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    there = f"Defined are: {', '.join(names)}." if names else "None is defined."
    return (
        f"No source '{name}' is defined in this Python process.{hint} {there} Import the module that defines "
        "it first."
    )


def identity_of(source: Source) -> dict[str, str]:
    """By name, as texts; TypeError where one is no option, or a secret."""
    cls = type(source)
    if not cls._identity:
        return {}
    signature = signature_of(cls)
    options = {option.name: option for option in signature.options}
    for name in cls._identity:
        if name not in options:
            raise TypeError(f"{signature.owner} has identity={cls._identity!r}, and no option '{name}'")
        if options[name].secret:
            raise TypeError(
                f"option '{name}' of {signature.owner} is a secret, and `identity` is written to disk"
            )
    bound = source._bound
    return {name: "" if bound[name] is None else write(bound[name]) for name in cls._identity}


def options_in(question: dict[str, Any]) -> dict[str, str]:
    """The options that Spark's JVM sent, and among them the schema; OptionError where that cannot be."""
    options: dict[str, str] = question["options"]
    if "schema" not in question:
        return options
    name = question["source"]
    cls = class_of(name)
    takes = cls is not None and any(option.name == "schema" for option in signature_of(cls).options)
    if cls is None or not takes:
        source = find(name, options)
        own = schema_of_source(source).simpleString()
        raise OptionError(
            f"Source '{type(source)._name}' has a schema of its own, {own}, and takes no other. "
            "Remove .schema(…)."
        )
    written = [option for option in options if plain(option) == "schema"]
    if written:
        raise OptionError(f"Source '{cls._name}' got .schema(…) and the option '{written[0]}': keep one")
    return {**options, "schema": _as_ddl(question["schema"])}


def _as_ddl(schema: str) -> str:
    from pyspark.sql.types import StructType

    return to_ddl(StructType.fromJson(json.loads(schema)))


def described(sources: dict[str, type[Source]]) -> Iterator[Registered]:
    """Those that come with headwater, and those given."""
    written = dict(sources)
    for made in built_in():
        if is_class(made):
            written[made._name] = made
        else:
            yield made.registered
    for cls in written.values():
        yield described_source(cls)


def built_in() -> list[Any]:
    """What `headwater.sources` offers: subclasses of Source, and functions with an attribute `registered`."""
    from headwater import sources

    return [getattr(sources, name) for name in sources.__all__]


def described_source(cls: type[Source]) -> Registered:
    """One that is written in Python."""
    return Registered(
        name=cls._name,
        doc=_doc(cls),
        schema=_schema(cls),
        options=signature_of(cls).options,
        resumable=is_resumable(cls),
        origin=f"{cls.__module__}:{cls.__qualname__}",
        partitioned=cls._is_partitioned,
    )


def is_class(made: Any) -> TypeGuard[type[Source]]:
    """Whether it is written in Python."""
    return isinstance(made, type)


def _doc(cls: type[Source]) -> str:
    """What the author wrote: not what a class inherits, nor what a dataclass gives itself."""
    text = inspect.cleandoc(cls.__doc__ or "")
    is_own = not (hasattr(cls, "__dataclass_fields__") and text.startswith(f"{cls.__name__}("))
    return text if is_own else ""


def _schema(cls: type[Source]) -> str | None:
    from headwater.ddl import to_ddl
    from headwater.source import schema_of_class

    schema = schema_of_class(cls)
    return None if schema is None else to_ddl(schema)


P = ParamSpec("P")


@dataclass(frozen=True, repr=False)
class JvmSource:
    """A configured source whose rows are made in the JVM, by the provider that is registered as `name`.

    Options are written in snake_case and reach the provider in camelCase; None leaves an option out. They are
    checked where they are defined, in the provider, when the stream is loaded.

    >>> JvmSource("random_alpha", {"len": 5, "rows_per_second": 100})
    random_alpha(len=5, rows_per_second=100)
    """

    name: str
    settings: Mapping[str, OptionValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kept = {key: value for key, value in self.settings.items() if value is not None}
        object.__setattr__(self, "settings", _Settings(kept))

    @staticmethod
    def of(schema: str) -> Callable[[Callable[P, JvmSource]], Callable[P, JvmSource]]:
        """Goes above the function that makes such a source, and says of it what is listed.

        >>> @JvmSource.of("value STRING")
        ... def words(length: int = 5) -> JvmSource:
        ...     return JvmSource("words", {"length": length})
        >>> words.registered.options[0].text
        'length: a whole number, default 5'
        """

        def describe(function: Callable[P, JvmSource]) -> Callable[P, JvmSource]:
            name = function.__name__
            function.registered = Registered(  # type: ignore[attr-defined]
                name=name,
                doc=inspect.getdoc(function) or "",
                schema=schema,
                options=Signature.of(function, owner=f"source '{name}'").options,
                resumable=False,
                origin=f"{function.__module__}:{function.__qualname__}",
            )
            return function

        return describe

    @property
    def options(self) -> dict[str, str]:
        """The options as the provider gets them."""
        return {camel(key): encode(key, value) for key, value in self.settings.items()}

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.settings.items())})"


class _Settings(Mapping[str, OptionValue]):
    """A mapping that cannot be changed and has a hash, so that a source can be a key."""

    def __init__(self, values: Mapping[str, OptionValue]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> OptionValue:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))
