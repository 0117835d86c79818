"""The types that an option can have: each reads the texts that Spark holds and takes the values Python gives.

What `take` accepts, `write` writes, and `read` reads it back equal; a Secret alone is never written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from headwater._author.secret import Secret

__all__ = ["SUPPORTED", "UNFIT", "Kind", "kind_of", "shown", "write"]

SUPPORTED = (
    "str, int, float, bool, datetime, timedelta, Literal of str, int or bool, an Enum, headwater.Secret, "
    "a list of one of these, or any of these | None"
)
UNFIT = (TypeError, ValueError, OverflowError, RecursionError)
T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """One type of option: `read` gives the value of a text, `take` a Python value as the source gets it.

    Both raise one of UNFIT, TypeError where the type is wrong; its text, if any, adds a reason to `allowed`.
    """

    allowed: str  # goes after "it must be"
    python: str  # the type, as an annotation has it
    read: Callable[[str], object]
    take: Callable[[object], object]
    secret: bool = False


def kind_of(annotation: object) -> Kind:
    """The kind for an annotation; TypeError, with a reason if there is one to give, where there is none."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Literal and {type(member) for member in members} <= {str, int, bool}:
        return _choice(f"Literal[{', '.join(map(repr, members))}]", ((write(m), m) for m in members))
    if origin is list and members and not (item := kind_of(members[0])).python.startswith("list["):
        return _list(item)
    if origin in (Union, UnionType) and len(members) == 2 and NoneType in members:
        return _nullable(kind_of(members[members[0] is NoneType]))
    if origin is None and isinstance(annotation, type):
        if annotation in _SIMPLE:
            return _SIMPLE[annotation]
        if issubclass(annotation, Enum) and annotation.__members__:
            named = annotation.__members__.items()
            texts = ((t, m) for name, m in named for t in (name, m.value) if isinstance(t, str))
            return _choice(annotation.__name__, texts)
    raise TypeError


def write(value: object) -> str:
    """The value as the text of an option; TypeError for what no option can be, and for a Secret."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        unit = next(unit for unit, size in _UNITS.items() if not value % size) if value else "s"
        return f"{value // _UNITS[unit]}{unit}"
    if isinstance(value, list):
        as_is = (NoneType, bool, int, float, str)
        return json.dumps([i if type(i) in as_is else write(i) for i in value], ensure_ascii=False)
    raise TypeError(f"a value of type {type(value).__name__} is not written as the text of an option")


def shown(value: object) -> str:
    """The value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}…"


def _read_datetime(text: str) -> datetime:
    """Put into the one form that `fromisoformat` of every Python reads, and reads to the last digit."""
    clock = r"((?:[01]\d|2[0-3]):\d\d)(?::(\d\d)(?:[.,](\d{1,6}))?)?"
    found = _match(rf"(\d{{4}}-\d\d-\d\d)(?:[T ]{clock}(?:(Z)|([+-]\d\d)(?::?(\d\d)(:\d\d)?)?)?)?", text)
    day, minute, second, fraction, utc, hours, minutes, seconds = found.groups(default="")
    zone = f"{hours or '+00'}:{minutes or '00'}{seconds}" if utc or hours else ""
    return datetime.fromisoformat(f"{day}T{minute or '00:00'}:{second or '00'}.{fraction:0<6}{zone}")


_MILLIS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_UNITS = {unit: timedelta(milliseconds=millis) for unit, millis in _MILLIS.items()}


def _read_timedelta(text: str) -> timedelta:
    count, unit = _match(r"(\d{1,18})\s*(ms|s|m|h|d)", text).groups()
    return int(count) * _UNITS[unit]


def _take_timedelta(value: object) -> timedelta:
    given = _only(value, timedelta)
    if given < timedelta(0) or given % _UNITS["ms"]:
        raise ValueError("it must be whole milliseconds, 0 or more")
    return given


def _take_float(value: object) -> float:
    number = float(value if isinstance(value, float) else _only(value, int))
    if not math.isfinite(number):
        raise ValueError
    return number


def _match(pattern: str, text: str) -> re.Match[str]:
    found = re.fullmatch(pattern, text.strip(), re.ASCII)
    if not found:
        raise ValueError
    return found


def _only(value: object, wanted: type[T]) -> T:
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise TypeError
    return value


def _choice(python: str, pairs: Iterable[tuple[str, object]]) -> Kind:
    """One of a few values, each with its texts."""
    texts: dict[str, object] = {}
    for text, member in pairs:
        if texts.setdefault(text, member) is not member:
            raise TypeError(f"the text {text!r} could mean {texts[text]!r} or {member!r}")

    def read(text: str) -> object:
        word = text if text in texts else text.strip()
        if word not in texts and isinstance(texts.get(word.lower()), bool):
            word = word.lower()
        if word not in texts:
            raise ValueError
        return texts[word]

    def take(value: object) -> object:
        same_type = [member for member in texts.values() if type(member) is type(value)]
        if value in same_type:
            return value
        raise ValueError if same_type else TypeError

    return Kind(f"one of: {', '.join(texts)}", python, read, take)


def _list(item: Kind) -> Kind:
    """In a JSON array a string is read as the text of an item, anything else is the item itself."""

    def each(one: Callable[[Any], object], values: list[Any]) -> list[object]:
        found = []
        for number, value in enumerate(values, 1):
            try:
                found.append(one(value))
            except UNFIT as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"item {number} is {shown(value)}") from None
        return found

    def read(text: str) -> object:
        if not text.strip().startswith("["):
            return each(item.read, [part.strip() for part in text.split(",")] if text.strip() else [])
        return each(lambda v: (item.read if isinstance(v, str) else item.take)(v), json.loads(text.strip()))

    allowed = f"a comma-separated list or a JSON array, each item {item.allowed}"
    return Kind(allowed, f"list[{item.python}]", read, lambda v: each(item.take, _only(v, list)), item.secret)


def _nullable(kind: Kind) -> Kind:
    """None in Python only: no text stands for it, and leaving the option out gives the default."""
    return replace(kind, python=f"{kind.python} | None", take=lambda v: None if v is None else kind.take(v))


_WHOLE = r"[+-]?\d+"
_REAL = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_ISO = "a date and time in ISO 8601 such as 2024-05-31T12:30:00Z, to the microsecond at most"
_HID = "a secret text"
_SPAN = "a duration such as 250ms, 10s, 15m, 2h or 1d"
_SIMPLE: dict[type, Kind] = {  # a subclass of str or int, such as a StrEnum, is taken as the plain value
    str: Kind("a text", "str", str, lambda v: str.__str__(_only(v, str))),
    int: Kind("a whole number", "int", lambda t: int(_match(_WHOLE, t)[0]), lambda v: int(_only(v, int))),
    float: Kind("a finite number", "float", lambda t: _take_float(float(_match(_REAL, t)[0])), _take_float),
    bool: replace(_choice("bool", [("true", True), ("false", False)]), allowed="true or false"),
    datetime: Kind(_ISO, "datetime", _read_datetime, lambda v: _only(v, datetime)),
    timedelta: Kind(_SPAN, "timedelta", _read_timedelta, _take_timedelta),
    Secret: Kind(_HID, "Secret", Secret, lambda v: v if type(v) is Secret else Secret(_only(v, str)), True),
}
