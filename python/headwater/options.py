"""Options: a source's parameters define them, Spark holds them as strings, and `Secret` hides some of them.

`Signature` turns the parameters of an author's function into options. It parses Spark's strings into
arguments, and validates the arguments of a call in Python.
"""

from __future__ import annotations

import hmac
import inspect
import json
import math
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from importlib import resources
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NoReturn,
    SupportsIndex,
    TypeVar,
    Union,
    final,
    get_args,
    get_origin,
    get_type_hints,
)
from urllib.parse import quote, unquote

from headwater import trust
from headwater.errors import HeadwaterError, shorten

__all__ = [
    "COMMON",
    "RESERVED",
    "CommonOption",
    "Option",
    "OptionError",
    "OptionValue",
    "Secret",
    "Signature",
    "camel",
    "encode",
    "format_value",
    "normalize",
    "parse_query",
    "snake",
    "strings_to_mask",
]

# Names


def camel(name: str) -> str:
    """`max_rows_per_trigger` → `maxRowsPerTrigger`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def snake(name: str) -> str:
    """`maxRowsPerTrigger` → `max_rows_per_trigger`."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def normalize(name: str) -> str:
    """The form in which names are compared: `baseUrl` and `base_url` are the same option."""
    return name.lower().replace("_", "")


# The options of every source


@dataclass(frozen=True)
class CommonOption:
    """An option that `hw.stream` takes as a keyword. The JVM validates its value."""

    name: str
    type: str
    """One of the types in the table: `integer`, `bytes`, `duration`, …"""

    @property
    def keyword(self) -> str:
        """`max_rows_per_trigger` for `maxRowsPerTrigger`."""
        return snake(self.name)


def _load_common() -> tuple[CommonOption, ...]:
    """Reads the package's table. The build copies it into the jar, where the JVM reads it."""
    table = (resources.files("headwater") / "options.json").read_text(encoding="utf-8")
    return tuple(CommonOption(entry["name"], entry["type"]) for entry in json.loads(table))


COMMON: tuple[CommonOption, ...] = _load_common()
RESERVED: tuple[str, ...] = (*(option.name for option in COMMON), "source")
"""Names that no source may give to an option of its own. The list is a promise to authors."""
_RESERVED = {normalize(name): name for name in RESERVED}

OptionValue = str | int | float | bool | timedelta | None


def encode(name: str, value: object) -> str:
    """The value as Spark's options hold it. The JVM, where these options are defined, checks ranges."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        millis, rest = divmod(value, timedelta(milliseconds=1))
        if rest:
            raise ValueError(f"{name}={value!r} must be a multiple of one millisecond")
        return f"{millis}ms"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(
        f"{name}={value!r} is of type {type(value).__name__}; it must be a str, int, float, bool or timedelta"
    )


def parse_query(query: str, subject: str = "the query of a reference") -> dict[str, str]:
    """The options in a query; OptionError if there cannot be such. A `+` is no space: times have it."""
    options: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, equals, value = pair.partition("=")
        try:
            name, value = unquote(name, errors="strict"), unquote(value, errors="strict")
        except UnicodeDecodeError:
            raise OptionError(f"{subject} is not in UTF-8, percent-encoded") from None
        if not equals or not name:
            raise OptionError(f"{subject} has a part that is not NAME=VALUE")
        if name in options:
            raise OptionError(f"{subject} sets the option '{name}' twice: keep one")
        options[name] = value
    return options


# Secrets


@final
class Secret:
    """A string that is never shown: only `reveal()` returns it.

    >>> import headwater as hw
    >>> token = hw.Secret("abc")
    >>> print(token, token.reveal())
    Secret(***) abc

    `env:NAME` and `file:PATH` are references: the secret is in that environment variable or in that file, and
    is read each time `reveal()` is called.

    Secrets are equal by value, compared in constant time. They can be copied, but not pickled: a pickle may
    end up on a disk or on another machine.
    """

    __slots__ = ("_value",)
    _value: str

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError(f"Secret() takes a str, not a value of type {type(value).__name__}")
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """The secret itself. Raises HeadwaterError if it is a reference that cannot be read."""
        return _resolve(self._value) if self._is_reference else self._value

    @property
    def _is_reference(self) -> bool:
        return _is_reference(self._value)

    def __repr__(self) -> str:
        return "Secret(***)"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._bytes(), other._bytes())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret cannot be changed: create another")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Secret cannot be changed: create another")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        _refuse_pickling()

    def __getstate__(self) -> NoReturn:
        _refuse_pickling()

    def _bytes(self) -> bytes:
        return self._value.encode("utf-8", "surrogatepass")  # a lone surrogate is a legal str


def _refuse_pickling() -> NoReturn:
    raise TypeError(
        "a Secret cannot be pickled: it must not reach a disk or another machine. Fix: read it where it is "
        "used, from the environment or a file; or pickle secret.reveal(), if that is what you want"
    )


def strings_to_mask(arguments: Mapping[str, object]) -> list[str]:
    """Every string that messages must mask because of the secrets among these arguments.

    These are each secret, each of its lines, and the value of each line of the form `name: value`, as headers
    have it. For a reference, values that it had earlier in this process count as well.
    """
    values = [v for value in arguments.values() for v in (value if isinstance(value, list) else [value])]
    return [text for value in values if isinstance(value, Secret) for text in _secret_strings(value._value)]


def _secret_strings(value: str) -> list[str]:
    whole = _resolved_so_far(value) if _is_reference(value) else [value]
    lines = [line for text in whole for line in text.splitlines()]
    header_values = [line.partition(": ")[2].strip() for line in lines]
    parts = [part for part in dict.fromkeys([*lines, *header_values]) if len(part) > 3 and part not in whole]
    return [text for text in [*whole, *parts] if text]


_MAX_SECRET_BYTES = 1 << 20

_lock = threading.Lock()
_resolved: dict[str, set[str]] = {}
"""Values by reference. A secret that has changed since may still appear in an error."""


def _is_reference(value: str) -> bool:
    return value.startswith(("env:", "file:"))


def _resolve(reference: str) -> str:
    """The current value. The error names the reference, never the value."""
    kind, _, place = reference.partition(":")
    value = _environment_variable(reference, place) if kind == "env" else _file_content(reference, place)
    with _lock:
        _resolved.setdefault(reference, set()).add(value)
    return value


def _resolved_so_far(reference: str) -> list[str]:
    """The current value and all earlier ones."""
    with suppress(HeadwaterError):
        _resolve(reference)
    with _lock:
        return list(_resolved.get(reference, ()))


def _environment_variable(reference: str, name: str) -> str:
    try:
        trust.current.check_environment()
    except ValueError as error:
        raise _unreadable(reference, str(error)) from None
    value = os.environ.get(name)
    if value is None:
        raise HeadwaterError(
            f"cannot read the secret {reference!r}: the environment variable {name!r} is not set",
            "set it before the driver process starts; for tasks, set it in spark.executorEnv",
        )
    return value


def _file_content(reference: str, path: str) -> str:
    """Without the line break that editors leave at the end."""
    try:
        with trust.current.file(path).open("rb") as file:
            data = file.read(_MAX_SECRET_BYTES + 1)
        text = data.decode()
    except UnicodeDecodeError:
        raise _unreadable(reference, "the file is not in UTF-8") from None
    except (OSError, ValueError) as error:  # a ValueError for a path that contains a NUL
        raise _unreadable(reference, getattr(error, "strerror", None) or str(error)) from None
    if len(data) > _MAX_SECRET_BYTES:
        raise _unreadable(reference, f"the file is larger than {_MAX_SECRET_BYTES:,} bytes")
    return text.removesuffix("\n").removesuffix("\r")


def _unreadable(reference: str, reason: str) -> HeadwaterError:
    return HeadwaterError(
        f"cannot read the secret {reference!r}: {reason}",
        "name a file that contains the secret and that the driver process may read",
    )


# Types

SUPPORTED_TYPES = (
    "str, int, float, bool, datetime, timedelta, Literal of str, int or bool, an Enum, headwater.Secret, "
    "a list of one of these, or any of these | None"
)
_INVALID = (TypeError, ValueError, OverflowError, RecursionError)
T = TypeVar("T")


@dataclass(frozen=True)
class OptionType:
    """The type of an option: `parse` reads its value from a string, `validate` accepts a value from Python.

    Both raise one of `_INVALID`, TypeError if the type is wrong. The error's message, if any, is a reason.
    """

    allowed: str
    """Follows "it must be" in messages."""
    annotation: str
    """The type as an author writes it."""
    parse: Callable[[str], object]
    validate: Callable[[object], object]
    secret: bool = False


def option_type(annotation: object) -> OptionType:
    """The option type for an annotation; TypeError, perhaps with a reason, if there is none."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Literal and {type(member) for member in members} <= {str, int, bool}:
        return _choice(f"Literal[{', '.join(map(repr, members))}]", ((format_value(m), m) for m in members))
    if origin is list and members and not (item := option_type(members[0])).annotation.startswith("list["):
        return _list(item)
    if origin in (Union, UnionType) and len(members) == 2 and NoneType in members:
        return _nullable(option_type(members[members[0] is NoneType]))
    if origin is None and isinstance(annotation, type):
        if annotation in _SIMPLE_TYPES:
            return _SIMPLE_TYPES[annotation]
        if issubclass(annotation, Enum) and annotation.__members__:
            members_by_name = annotation.__members__.items()
            pairs = ((s, m) for name, m in members_by_name for s in (name, m.value) if isinstance(s, str))
            return _choice(annotation.__name__, pairs)
    raise TypeError


def format_value(value: object) -> str:
    """The value as an option string; TypeError for a Secret and for values that no option can have."""
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
        json_types = (NoneType, bool, int, float, str)
        items = [item if type(item) in json_types else format_value(item) for item in value]
        return json.dumps(items, ensure_ascii=False)
    raise TypeError(f"a value of type {type(value).__name__} cannot be an option string")


def _parse_datetime(text: str) -> datetime:
    """Rewritten to the one form that `fromisoformat` reads completely in every Python version."""
    clock = r"((?:[01]\d|2[0-3]):\d\d)(?::(\d\d)(?:[.,](\d{1,6}))?)?"
    match = _match(rf"(\d{{4}}-\d\d-\d\d)(?:[T ]{clock}(?:(Z)|([+-]\d\d)(?::?(\d\d)(:\d\d)?)?)?)?", text)
    day, minute, second, fraction, utc, hours, minutes, seconds = match.groups(default="")
    zone = f"{hours or '+00'}:{minutes or '00'}{seconds}" if utc or hours else ""
    return datetime.fromisoformat(f"{day}T{minute or '00:00'}:{second or '00'}.{fraction:0<6}{zone}")


_MILLIS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_UNITS = {unit: timedelta(milliseconds=millis) for unit, millis in _MILLIS.items()}


def _parse_timedelta(text: str) -> timedelta:
    count, unit = _match(r"(\d{1,18})\s*(ms|s|m|h|d)", text).groups()
    return int(count) * _UNITS[unit]


def _validate_timedelta(value: object) -> timedelta:
    duration = _require_type(value, timedelta)
    if duration < timedelta(0) or duration % _UNITS["ms"]:
        raise ValueError("it must be a multiple of one millisecond and not negative")
    return duration


def _validate_float(value: object) -> float:
    number = float(value if isinstance(value, float) else _require_type(value, int))
    if not math.isfinite(number):
        raise ValueError
    return number


def _match(pattern: str, text: str) -> re.Match[str]:
    match = re.fullmatch(pattern, text.strip(), re.ASCII)
    if not match:
        raise ValueError
    return match


def _require_type(value: object, required: type[T]) -> T:
    """The value, if it is of that type. A bool is not an int here."""
    if not isinstance(value, required) or (isinstance(value, bool) and required is not bool):
        raise TypeError
    return value


def _choice(annotation: str, pairs: Iterable[tuple[str, object]]) -> OptionType:
    """One of a few values, each with the strings that stand for it."""
    members: dict[str, object] = {}
    for text, member in pairs:
        if members.setdefault(text, member) is not member:
            raise TypeError(f"the string {text!r} could mean {members[text]!r} or {member!r}")

    def parse(text: str) -> object:
        word = text if text in members else text.strip()
        if word not in members and isinstance(members.get(word.lower()), bool):
            word = word.lower()
        if word not in members:
            raise ValueError
        return members[word]

    def validate(value: object) -> object:
        same_type = [member for member in members.values() if type(member) is type(value)]
        if value in same_type:
            return value
        raise ValueError if same_type else TypeError

    return OptionType(f"one of: {', '.join(members)}", annotation, parse, validate)


def _list(item: OptionType) -> OptionType:
    """In a JSON array a string is parsed like the string of an option; any other value is the item itself."""

    def each(convert: Callable[[Any], object], values: list[Any]) -> list[object]:
        items = []
        for number, value in enumerate(values, 1):
            try:
                items.append(convert(value))
            except _INVALID as error:
                error_type = TypeError if isinstance(error, TypeError) else ValueError
                raise error_type(f"item {number} is {shorten(value)}") from None
        return items

    def parse(text: str) -> object:
        if not text.strip().startswith("["):
            return each(item.parse, [part.strip() for part in text.split(",")] if text.strip() else [])
        return each(
            lambda v: (item.parse if isinstance(v, str) else item.validate)(v), json.loads(text.strip())
        )

    def validate(value: object) -> object:
        return each(item.validate, _require_type(value, list))

    allowed = f"a comma-separated list or a JSON array, each item {item.allowed}"
    return OptionType(allowed, f"list[{item.annotation}]", parse, validate, item.secret)


def _nullable(inner: OptionType) -> OptionType:
    """None can only be passed in Python. No string stands for it: left out, the option has its default."""
    return replace(
        inner,
        annotation=f"{inner.annotation} | None",
        validate=lambda v: None if v is None else inner.validate(v),
    )


_INTEGER = r"[+-]?\d+"
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_SIMPLE_TYPES: dict[type, OptionType] = {
    # A subclass of str or int, such as a StrEnum, becomes the plain value.
    str: OptionType("a string", "str", str, lambda v: str.__str__(_require_type(v, str))),
    int: OptionType(
        "an integer", "int", lambda s: int(_match(_INTEGER, s)[0]), lambda v: int(_require_type(v, int))
    ),
    float: OptionType(
        "a finite number", "float", lambda s: _validate_float(float(_match(_NUMBER, s)[0])), _validate_float
    ),
    bool: replace(_choice("bool", [("true", True), ("false", False)]), allowed="true or false"),
    datetime: OptionType(
        "an ISO 8601 date and time such as 2024-05-31T12:30:00Z, with at most microseconds",
        "datetime",
        _parse_datetime,
        lambda v: _require_type(v, datetime),
    ),
    timedelta: OptionType(
        "a duration such as 250ms, 10s, 15m, 2h or 1d", "timedelta", _parse_timedelta, _validate_timedelta
    ),
    Secret: OptionType(
        "a secret string",
        "Secret",
        Secret,
        lambda v: v if type(v) is Secret else Secret(_require_type(v, str)),
        secret=True,
    ),
}


# Signatures


class OptionError(ValueError):
    """An option is unknown or missing, or its value is not allowed."""


@dataclass(frozen=True)
class Option:
    """One option of a source: a parameter of its function or of its `__init__`."""

    name: str
    allowed: str
    required: bool
    default: object
    secret: bool

    @property
    def text(self) -> str:
        """`length: an integer, default 5`."""
        default = "none" if self.default is None else "not shown"
        if self.default is not None and not self.secret:
            default = repr(self.default) if type(self.default) is str else format_value(self.default)
        return f"{self.name}: {self.allowed}, {'required' if self.required else f'default {default}'}"


@dataclass(frozen=True, eq=False)
class Signature:
    """The options of one source, or the properties of a decoder.

    `owner` is what messages call it: `source 'letters'`.
    """

    owner: str
    options: tuple[Option, ...]
    _types: Mapping[str, OptionType] = field(repr=False)
    _call: inspect.Signature = field(repr=False)
    _reserved: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(
        cls,
        function: Callable[..., object],
        *,
        owner: str,
        skip: Collection[str] = (),
        reserved: Mapping[str, str] = _RESERVED,
    ) -> Signature:
        """The parameters of `function` except those in `skip`. Names are `reserved` for every source.

        TypeError or ValueError if a parameter cannot be an option; the message says where and what to do.
        """
        unwrapped = inspect.unwrap(function)
        code = getattr(unwrapped, "__code__", None)
        place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        all_parameters = {} if function is object.__init__ else inspect.signature(function).parameters
        parameters = [parameter for name, parameter in all_parameters.items() if name not in skip]
        options, types, names = [], {}, dict(reserved)
        for parameter in parameters:
            where = f"parameter '{parameter.name}' of {owner}{place}"
            _check_parameter(parameter, names, where)
            kind = _parameter_type(parameter, getattr(unwrapped, "__globals__", {}), where)
            types[parameter.name] = kind
            options.append(_option(parameter, kind, where))
        call = inspect.Signature([parameter.replace(annotation=parameter.empty) for parameter in parameters])
        return cls(owner, tuple(options), types, call, reserved)

    def parse(self, strings: Mapping[str, str]) -> dict[str, object]:
        """Keyword arguments from the option strings that Spark holds; OptionError if they are not valid."""
        strings = self._with_properties(strings)
        spellings = self._spellings(strings)
        missing = [option.text for option in self.options if option.required and option.name not in spellings]
        if missing:
            raise OptionError(f"{self.owner} needs the option {'; '.join(missing)}")
        return self._complete(
            {name: strings[spelling] for name, spelling in spellings.items()}, are_strings=True
        )

    def check_public(self, strings: Mapping[str, str]) -> None:
        """For options in a reference, which others can read: OptionError for an unknown one, or for a secret.

        A reference to a secret, such as `env:NAME`, is allowed.
        """
        for name, spelling in self._spellings(self._with_properties(strings)).items():
            if not self._types[name].secret:
                continue
            value: Any = _convert(
                self._types[name], strings[spelling], f"option '{name}' of {self.owner}", is_string=True
            )
            if not all(
                _is_reference(secret._value) for secret in (value if type(value) is list else [value])
            ):
                raise OptionError(
                    f"option '{name}' of {self.owner} is a secret, which must not be in a reference, because "
                    f"logs would show it: write where it is, as in {name}=env:NAME or {name}=file:PATH"
                )

    def _with_properties(self, strings: Mapping[str, str]) -> Mapping[str, str]:
        """With `decode.sep` as part of the option `decode`, whose query has the properties of a decoder."""
        properties = {name[7:]: name for name in strings if name.lower().startswith("decode.")}
        if not properties or "decode" not in self._types:
            return strings
        others = {name: value for name, value in strings.items() if name not in properties.values()}
        spelling = next((name for name in others if normalize(name) == "decode"), "decode")
        default = next(option.default for option in self.options if option.name == "decode")
        query = "&".join(f"{quote(name)}={quote(strings[full])}" for name, full in properties.items())
        decode = str(others.get(spelling, default or ""))
        return {**others, spelling: f"{decode}{'&' if '?' in decode else '?'}{query}"}

    def _spellings(self, strings: Mapping[str, str]) -> dict[str, str]:
        """How each option is spelt, by its name; OptionError if one is unknown or set twice."""
        names = {normalize(name): name for name in self._types}
        spellings: dict[str, str] = {}
        for spelling in strings:
            name = names.get(normalize(spelling))
            if name is None:
                raise OptionError(f"{self.owner} has no option '{spelling}'. {self._alternatives(spelling)}")
            if name in spellings:
                raise OptionError(
                    f"{self.owner} got '{spellings[name]}' and '{spelling}', which are one option: keep one"
                )
            spellings[name] = spelling
        return spellings

    def check(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """All arguments of a call in Python by name, with defaults for those left out.

        TypeError if the call does not match the signature, as in any Python call; TypeError or OptionError
        if a value is not valid.
        """
        for name in kwargs:
            if name not in self._types:
                raise TypeError(
                    f"{self.owner} got an unexpected argument '{name}'. {self._alternatives(name)}"
                )
        try:
            bound = self._call.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.owner}: {error}. {self._list_options()}") from None
        return self._complete(bound.arguments, are_strings=False)

    def show(self, bound: Mapping[str, object]) -> str:
        """The arguments for a repr: those that are required or not the default. Secrets are hidden."""
        values = self.reprs(bound)
        return ", ".join(
            f"{o.name}={values[o.name]}"
            for o in self.options
            if o.name in bound and (o.required or bound[o.name] != o.default)
        )

    def reprs(self, bound: Mapping[str, object]) -> dict[str, str]:
        """The repr of each argument, by option. Secrets are hidden."""
        return {
            o.name: "***" if o.secret and bound[o.name] is not None else repr(bound[o.name])
            for o in self.options
            if o.name in bound
        }

    def _complete(self, values: Mapping[str, Any], *, are_strings: bool) -> dict[str, object]:
        """Values and defaults in the order of the signature. `validate` copies a list, so none is shared."""
        return {
            name: _convert(kind, values[name], f"option '{name}' of {self.owner}", is_string=are_strings)
            if name in values
            else kind.validate(option.default)
            for option, (name, kind) in zip(self.options, self._types.items(), strict=True)
        }

    def _alternatives(self, name: str) -> str:
        """What to use instead of an unknown option. Its value is not shown: it may be a misspelt secret."""
        if normalize(name) in self._reserved:
            reserved = self._reserved[normalize(name)]
            return (
                f"{reserved} is an option of every source: pass it to hw.stream(…, {snake(reserved)}=…), not "
                "to the source"
            )
        names = {normalize(known): known for known in self._types} | dict(self._reserved)
        matches = get_close_matches(normalize(name), names, 1)
        hint = f"Did you mean '{names[matches[0]]}'? " if matches else ""
        common = ", ".join(option.name for option in COMMON)
        others = f". Those of every source: {common}" if self._reserved else ""
        return f"{hint}{self._list_options()}{others}"

    def _list_options(self) -> str:
        return f"Its options are: {'; '.join(option.text for option in self.options) or 'none'}"


def _check_parameter(parameter: inspect.Parameter, names: dict[str, str], where: str) -> None:
    """`names` are those in use, by their normalized form; the parameter's name is added."""
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(
            f"{where} is {parameter.kind.description}, but an option needs a name of its own. Fix: write one "
            "plain parameter for each option, without *, ** or /"
        )
    taken = names.setdefault(normalize(parameter.name), parameter.name)
    if taken in RESERVED:
        raise ValueError(f"{where} has the reserved name {taken}, an option of every source: rename it")
    if taken != parameter.name:
        raise ValueError(
            f"{where} is the same option as '{taken}', because case and _ are ignored: rename one"
        )


def _parameter_type(parameter: inspect.Parameter, scope: dict[str, Any], where: str) -> OptionType:
    """From the annotation, else from the default, else str."""
    annotation, default = parameter.annotation, parameter.default
    if annotation is parameter.empty:
        try:
            return option_type(type(default))
        except TypeError:
            return option_type(str | None if default is None else str)

    def bare() -> None: ...

    bare.__annotations__ = {"option": annotation}  # without the default: None would make it Optional
    try:
        hint = get_type_hints(bare, scope)["option"]
    except Exception as error:
        raise TypeError(
            f"{where} has the annotation {annotation!r}, which cannot be evaluated ({error}). Fix: define or "
            "import its names at the top of the module"
        ) from error
    try:
        return option_type(hint)
    except TypeError as error:
        name = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        reason = f" ({error})" if str(error) else ""
        raise TypeError(
            f"{where} has the unsupported option type {name}{reason}. Fix: use {SUPPORTED_TYPES}"
        ) from None


def _option(parameter: inspect.Parameter, kind: OptionType, where: str) -> Option:
    required, default = parameter.default is parameter.empty, None
    if not required:
        remedy = ". Fix: change the default or the annotation so that they match"
        default = _convert(kind, parameter.default, f"the default of {where}", is_string=False, remedy=remedy)
    return Option(parameter.name, kind.allowed, required, default, kind.secret)


def _convert(kind: OptionType, value: Any, name: str, *, is_string: bool, remedy: str = "") -> object:
    try:
        return kind.parse(value) if is_string else kind.validate(value)
    except _INVALID as error:
        shown = "***" if kind.secret else shorten(value)
        value_type = "" if is_string else f" of type {type(value).__name__}"
        allowed = kind.allowed if is_string else f"{kind.allowed}, of type {kind.annotation}"
        reason = f" ({error})" if str(error) and not kind.secret else ""
        error_type = TypeError if isinstance(error, TypeError) and not is_string else OptionError
        raise error_type(f"{name} is {shown}{value_type}, it must be {allowed}{reason}{remedy}") from None
