"""The sources that this process knows: how they are registered, found by name, and listed.

A source of a plugin is registered when its module is imported, as any other. The first use imports it.
"""

from __future__ import annotations

import inspect
import json
import re
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeGuard

from headwater import plugins
from headwater.ddl import to_ddl
from headwater.definition import is_resumable, schema_of_class, schema_of_source, signature_of
from headwater.errors import HeadwaterError
from headwater.notebook import HtmlList
from headwater.options import Option, OptionError, Secret, format_value, normalize, strings_to_mask

if TYPE_CHECKING:
    from headwater.source import Source

__all__ = [
    "Registered",
    "all_sources",
    "built_in",
    "describe",
    "find",
    "format_names",
    "hold",
    "identity_of",
    "is_class",
    "known_schemes",
    "literal_secrets",
    "name_of",
    "plugin_names",
    "register",
    "registered",
    "request_options",
    "secrets_in",
    "secrets_of",
    "subscribe",
    "validate_name",
    "validate_scheme",
    "with_name",
    "with_scheme",
]

# Formats of Spark and of well-known connectors. `attach` asks the running Spark for all others.
_SPARK_FORMATS = frozenset(
    """
    avro binaryfile console csv delta headwater hive hudi iceberg image jdbc json kafka kinesis
    libsvm memory noop orc parquet protobuf python random_alpha rate redshift snowflake socket
    statestore text textfile xml
    """.split()  # noqa: SIM905
)
_BUILT_IN = frozenset(
    """
    meetup_rsvp mqtt ndjson poll redis redis_group sse tail webhook websocket
    """.split()  # noqa: SIM905
)  # in Python; the jar has formats for them

# Known schemes win over modules of the same name, so no other source may take one of these.
_BUILT_IN_SCHEMES = frozenset(
    """
    mqtt mqtts ndjson+http ndjson+https poll+http poll+https redis rediss sse+http sse+https
    tail webhook ws wss
    """.split()  # noqa: SIM905
)
_RESERVED_SCHEMES = frozenset(("env", "file", "http", "https", "kafka", "recording"))

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")

_lock = threading.RLock()
_sources: dict[str, type[Source]] = {}
_schemes: dict[str, type[Source]] = {}
_held: dict[str, Source] = {}
_listeners: list[Callable[[str], None]] = []


# Registering


def validate_name(name: str) -> str:
    """The name, if a source can have it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be the name of a source: use a letter, then up to 63 letters, digits or _"
        )
    if name.lower() in _SPARK_FORMATS:
        raise ValueError(
            f"{name!r} is a format of Spark or of one of its connectors; choose another name for the source"
        )
    return name


def validate_scheme(scheme: str) -> str:
    """The scheme, if URIs of a source can have it."""
    if not isinstance(scheme, str) or not re.fullmatch(r"[a-z][a-z0-9+.-]{1,63}", scheme):
        raise ValueError(
            f"{scheme!r} cannot be a scheme: use a lower-case letter, then 1 to 63 letters, digits, +, - or ."
        )
    if scheme in _RESERVED_SCHEMES:
        raise ValueError(f"the scheme {scheme!r} has another meaning; choose another one for the source")
    return scheme


def register(cls: type[Source]) -> None:
    """Add a source. It may replace only an earlier definition of itself, as when a notebook cell is rerun."""
    if not cls.__module__.startswith("headwater.sources."):
        if cls._name.lower() in _BUILT_IN:
            raise ValueError(f"{cls._name!r} is a built-in source; choose another name for the source")
        for scheme in _BUILT_IN_SCHEMES.intersection(cls._schemes):
            raise ValueError(f"the scheme {scheme!r} is that of a built-in source; choose another one")
    with _lock:
        earlier = _sources.get(cls._name.lower())
        if earlier is not None and _origin(earlier) != _origin(cls):
            raise ValueError(
                f"both {_origin(earlier)} and {_origin(cls)} define a source '{cls._name}'; choose another "
                "name for one of them"
            )
        for scheme in cls._schemes:
            other = _schemes.get(scheme)
            if other is not None and _origin(other) != _origin(cls):
                raise ValueError(
                    f"both {_origin(other)} and {_origin(cls)} have the scheme '{scheme}'; choose another "
                    "for one of them"
                )
        for listener in _listeners:  # may reject the name
            listener(cls._name)
        _sources[cls._name.lower()] = cls
        for scheme in [] if earlier is None else earlier._schemes:
            _schemes.pop(scheme, None)
        _schemes.update(dict.fromkeys(cls._schemes, cls))


def subscribe(listener: Callable[[str], None]) -> None:
    """From now on, call `listener` with the name of each new source before it is added."""
    with _lock:
        if listener not in _listeners:
            _listeners.append(listener)


def hold(source: Source) -> str:
    """A name under which `find` returns a copy of this configured source, until the process ends."""
    with _lock:
        token: str | None = source.__dict__.get("_held_as")
        if token is None:
            token = f"{type(source)._name}@{secrets.token_hex(8)}"
            source.__dict__["_held_as"] = token
            _held[token] = source
        return token


# Finding


def find(name: str, options: dict[str, str]) -> Source:
    """The configured source for a format name; OptionError if it is unknown or its options are not valid."""
    held, cls = _lookup(name)
    if held is not None:
        if options:
            raise OptionError(f"{held!r} is already configured: set {', '.join(sorted(options))} there")
        return held._with_same_options()
    if cls is None:
        raise OptionError(_unknown(name))
    return cls(**signature_of(cls).parse(options))


def with_name(name: str) -> Any:
    """The source with that name, ignoring case: a class, or a function that returns a JvmSource. Or None."""
    _, cls = _lookup(name)
    return cls or next((source for source in built_in() if name_of(source).lower() == name.lower()), None)


def request_options(request: dict[str, Any]) -> dict[str, str]:
    """The options in a request of the JVM, and the schema of `.schema(…)` among them.

    OptionError if the source has no option `schema`.
    """
    options: dict[str, str] = request["options"]
    if "schema" not in request:
        return options
    name = request["source"]
    _, cls = _lookup(name)
    if cls is None or all(option.name != "schema" for option in signature_of(cls).options):
        source = find(name, options)
        raise OptionError(
            f"Source '{type(source)._name}' has a fixed schema, {to_ddl(schema_of_source(source))}. "
            "Remove .schema(…)."
        )
    spellings = [option for option in options if normalize(option) == "schema"]
    if spellings:
        raise OptionError(f"Source '{cls._name}' got .schema(…) and the option '{spellings[0]}': keep one")
    return {**options, "schema": _json_to_ddl(request["schema"])}


def with_scheme(scheme: str) -> type[Source] | None:
    """The source that URIs with this scheme, in lower case, name."""
    if scheme in _BUILT_IN_SCHEMES:
        import headwater.sources  # noqa: F401
    with _lock:
        known = _schemes.get(scheme)
    if known is None and scheme not in _RESERVED_SCHEMES:
        _lookup(scheme.partition("+")[0])  # imports the plugin of that name
        with _lock:
            known = _schemes.get(scheme)
    return known


def known_schemes() -> list[str]:
    """The schemes of the built-in sources and of those that are defined so far, and `kafka`."""
    import headwater.sources  # noqa: F401

    with _lock:
        return sorted({*_schemes, "kafka"})


def _json_to_ddl(schema: str) -> str:
    from pyspark.sql.types import StructType

    return to_ddl(StructType.fromJson(json.loads(schema)))


def _lookup(name: str) -> tuple[Source | None, type[Source] | None]:
    """The configured source that is held under that name, and the class with that name.

    OptionError if it is a plugin that cannot be loaded.
    """
    if name.lower() in _BUILT_IN:
        import headwater.sources  # noqa: F401
    with _lock:
        held, cls = _held.get(name), _sources.get(name.lower())
    if held is None and cls is None and name.lower() in {known.lower() for known in plugin_names()}:
        try:
            plugin = plugins.find(name)
            cls = None if plugin is None else plugin.load()
        except HeadwaterError as error:
            raise OptionError(str(error)) from None
    return held, cls


def _unknown(name: str) -> str:
    names = sorted({*all_sources(), *plugin_names()})
    matches = get_close_matches(name, names, n=1)
    hint = f" Did you mean '{matches[0]}'?" if matches else ""
    defined = f"Defined are: {', '.join(names)}." if names else "None is defined."
    return (
        f"No source '{name}' is defined in this Python process.{hint} {defined} Import the module that "
        "defines it first."
    )


def secrets_in(name: str, options: dict[str, str]) -> list[str]:
    """The strings that messages about this source must mask, even if its options are not valid."""
    held, cls = _lookup(name)
    if held is not None:
        return secrets_of(held)
    if cls is None:
        return []
    signature = signature_of(cls)
    secret_names = {normalize(option.name) for option in signature.options if option.secret}
    strings = strings_to_mask(
        {name: Secret(value) for name, value in options.items() if normalize(name) in secret_names and value}
    )
    with suppress(OptionError):  # parsing also finds each item of a list
        strings += strings_to_mask(signature.parse(options))
    return strings


def secrets_of(source: Source) -> list[str]:
    """The strings that messages about a configured source must mask."""
    return strings_to_mask(source._bound)


def literal_secrets(source: Source) -> list[str]:
    """The options that hold a secret itself, not a reference to it. Nothing that is stored may have one."""

    def is_literal(value: object) -> bool:
        if isinstance(value, list):
            return any(map(is_literal, value))
        return isinstance(value, Secret) and not value._is_reference

    return [name for name, value in source._bound.items() if is_literal(value)]


def identity_of(source: Source) -> dict[str, str]:
    """The identity options as strings, by name; TypeError if one does not exist or is a secret."""
    cls = type(source)
    if not cls._identity:
        return {}
    signature = signature_of(cls)
    options = {option.name: option for option in signature.options}
    for name in cls._identity:
        if name not in options:
            raise TypeError(f"{signature.owner} has identity={cls._identity!r}, but no option '{name}'")
        if options[name].secret:
            raise TypeError(
                f"option '{name}' of {signature.owner} is a secret, so it cannot be in `identity`, which is "
                "written to disk"
            )
    bound = source._bound
    return {name: "" if bound[name] is None else format_value(bound[name]) for name in cls._identity}


# Listing


@dataclass(frozen=True)
class Registered:
    """A source as `registered()` lists it."""

    name: str
    doc: str
    schema: str | None
    """As DDL; None if it depends on the options."""
    options: tuple[Option, ...]
    resumable: bool
    origin: str
    """Where it is defined, as `module:name`."""
    partitioned: bool = False


def registered() -> list[Registered]:
    """All sources that can be read: the built-in ones and those defined in this process.

    A plugin is among them once it has been used. A notebook shows the list as a table.

    >>> import headwater as hw
    >>> print([source.schema for source in hw.registered() if source.name == "random_alpha"])
    ['timestamp TIMESTAMP, value STRING']
    """
    sources: dict[str, Any] = {name_of(source): source for source in built_in()} | all_sources()
    return HtmlList(sorted(map(describe, sources.values()), key=lambda source: source.name))


def all_sources() -> dict[str, type[Source]]:
    """The sources that are written in Python and defined so far, by name."""
    with _lock:
        return {cls._name: cls for cls in _sources.values()}


def format_names() -> set[str]:
    """Everything that `format()` may name: the sources, and `headwater` with the option `source`."""
    return {*all_sources(), *plugin_names(), *_BUILT_IN, "random_alpha", "headwater"}


def plugin_names() -> set[str]:
    """The names of the plugins that are installed, except those that are taken. Nothing is imported."""
    taken = {*_SPARK_FORMATS, *_BUILT_IN}
    return {p.name for p in plugins.plugins() if _NAME.fullmatch(p.name) and p.name.lower() not in taken}


def built_in() -> list[Any]:
    """What `headwater.sources` offers: subclasses of Source, and functions that return a JvmSource."""
    from headwater import sources

    return [getattr(sources, name) for name in sources.__all__]


def is_class(source: Any) -> TypeGuard[type[Source]]:
    """Whether it is a class in Python; otherwise it is a function that returns a JvmSource."""
    return isinstance(source, type)


def name_of(source: Any) -> str:
    """The format name, as the author writes it."""
    return str(source._name if is_class(source) else source.registered.name)


def describe(source: Any) -> Registered:
    """The entry of a subclass of Source, or of a function that returns a JvmSource."""
    if not is_class(source):
        entry: Registered = source.registered
        return entry
    schema = schema_of_class(source)
    return Registered(
        name=source._name,
        doc=_doc(source),
        schema=None if schema is None else to_ddl(schema),
        options=signature_of(source).options,
        resumable=is_resumable(source),
        origin=_origin(source),
        partitioned=source._is_partitioned,
    )


def _doc(cls: type[Source]) -> str:
    """The author's docstring, not the one that a dataclass generates."""
    text = inspect.cleandoc(cls.__doc__ or "")
    is_generated = hasattr(cls, "__dataclass_fields__") and text.startswith(f"{cls.__name__}(")
    return "" if is_generated else text


def _origin(cls: type[Source]) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
