"""The sources that are defined in this process, by name, and those that were handed over as values."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from headwater._author.secret import Secret, texts_of
from headwater._author.signature import Option, OptionError, plain

if TYPE_CHECKING:
    from headwater._author.source import Source

__all__ = [
    "Registered",
    "all_sources",
    "checked_name",
    "class_of",
    "define",
    "find",
    "hold",
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
    from headwater._author.source import signature_of

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
    from headwater._author.source import signature_of

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
    from headwater._author import describe

    return sorted(describe.described(all_sources()), key=lambda found: found.name)


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
