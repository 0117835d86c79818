"""Options: defined by signatures, held by Spark as strings; `Secret` hides those that must not be shown."""

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
from pathlib import Path
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

from headwater.errors import HeadwaterError

__all__ = [
    "RESERVED",
    "SUPPORTED",
    "UNFIT",
    "Kind",
    "Option",
    "OptionError",
    "OptionValue",
    "Secret",
    "Signature",
    "camel",
    "encode",
    "is_reference",
    "kind_of",
    "known",
    "plain",
    "resolved",
    "shown",
    "snake",
    "texts_of",
    "write",
]

_LARGEST = 1 << 20

_lock = threading.Lock()
_seen: dict[str, set[str]] = {}
"""What references have led to: a secret that was changed since may still stand in an error."""


def is_reference(text: str) -> bool:
    return text.startswith(("env:", "file:"))


def resolved(reference: str) -> str:
    """The text that it leads to now; HeadwaterError, with the reference and never with the text."""
    kind, _, place = reference.partition(":")
    text = _variable(reference, place) if kind == "env" else _content(reference, place)
    with _lock:
        _seen.setdefault(reference, set()).add(text)
    return text


def known(reference: str) -> list[str]:
    """What it leads to now, and what it has led to in this process."""
    with suppress(HeadwaterError):
        resolved(reference)
    with _lock:
        return list(_seen.get(reference, ()))


def _variable(reference: str, name: str) -> str:
    text = os.environ.get(name)
    if text is None:
        raise HeadwaterError(
            f"the secret {reference!r} is not there: the environment has no variable {name!r}",
            "set it for the process that drives Spark, before it is started; for tasks, in spark.executorEnv",
        )
    return text


def _content(reference: str, path: str) -> str:
    """Without the line break that editors leave at the end."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LARGEST + 1)
        text = data.decode()
    except UnicodeDecodeError:
        raise _unreadable(reference, "it is not in UTF-8") from None
    except (OSError, ValueError) as error:  # a ValueError for a path with a NUL in it
        raise _unreadable(reference, getattr(error, "strerror", None) or str(error)) from None
    if len(data) > _LARGEST:
        raise _unreadable(reference, f"it is larger than {_LARGEST:,} bytes")
    return text.removesuffix("\n").removesuffix("\r")


def _unreadable(reference: str, why: str) -> HeadwaterError:
    return HeadwaterError(
        f"the secret {reference!r} cannot be read: {why}",
        "name a file with the secret in it, which the process that drives Spark may read",
    )


@final
class Secret:
    """A text that shows itself to no one who does not ask: `reveal()` gives it, nothing else does.

    >>> import headwater as hw
    >>> token = hw.Secret("abc")
    >>> print(token, token.reveal())
    Secret(***) abc

    `env:NAME` and `file:PATH` are references: the text is in that variable of the environment, or in that
    file, and is looked up each time that it is revealed.

    Equal by value, compared in constant time. It can be copied, and not pickled: a pickle ends on a disk or
    on another machine.
    """

    __slots__ = ("_value",)
    _value: str

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError(f"a Secret is made of a str, not of a value of type {type(value).__name__}")
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """The text itself, for the call that needs it; HeadwaterError where a reference leads nowhere."""
        return resolved(self._value) if is_reference(self._value) else self._value

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
        raise AttributeError("a Secret cannot be changed: make another")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Secret cannot be changed: make another")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        _refuse()

    def __getstate__(self) -> NoReturn:
        _refuse()

    def _bytes(self) -> bytes:
        return self._value.encode("utf-8", "surrogatepass")  # a lone surrogate is a legal str


def _refuse() -> NoReturn:
    raise TypeError(
        "a Secret cannot be pickled: it must not reach a disk or another machine. Fix: read it where it is "
        "used, from the environment or a file; or pickle secret.reveal(), if that is what you want"
    )


def texts_of(secret: Secret) -> list[str]:
    """All that must not be told of it: each line too, and of `name: value` the value, as headers have it.

    Of a reference, what it has led to before counts as well.
    """
    value = secret._value
    texts = known(value) if is_reference(value) else [value]
    lines = [line for text in texts for line in text.splitlines()]
    values = [line.partition(": ")[2].strip() for line in lines]
    parts = [part for part in dict.fromkeys([*lines, *values]) if len(part) > 3 and part not in texts]
    return [text for text in [*texts, *parts] if text]


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


OptionValue = str | int | float | bool | timedelta | None


def camel(name: str) -> str:
    """`max_rows_per_trigger` → `maxRowsPerTrigger`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def snake(name: str) -> str:
    """`maxRowsPerTrigger` → `max_rows_per_trigger`."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def encode(name: str, value: OptionValue) -> str:
    """The value as Spark's options hold it. Ranges are checked where the option is defined, in the JVM."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        millis, rest = divmod(value, timedelta(milliseconds=1))
        if rest:
            raise ValueError(f"{name}={value!r} must be a whole number of milliseconds")
        return f"{millis}ms"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(
        f"{name}={value!r} is of type {type(value).__name__}; it must be a str, int, float, bool or timedelta"
    )


_EVERY = """durability bufferBytes bufferRows maxRowsPerTrigger maxBytesPerTrigger minRowsPerTrigger
    maxTriggerDelay availableNowWait failOnDataLoss logBytes logCompression logRetainBatches logRetainBytes
    onError maxRestarts onBadRow concurrency linger batchRows startCursor startFrom minPartitions"""
RESERVED: tuple[str, ...] = (*_EVERY.split(), "source")
"""What no source may call an option of its own; a promise to authors."""


class OptionError(ValueError):
    """An option that the source does not have or lacks, or a value that the option cannot have."""


def plain(name: str) -> str:
    """What is compared of an option's name: `baseUrl` and `base_url` are the same."""
    return name.lower().replace("_", "")


_OWN = {plain(name): name for name in RESERVED}


@dataclass(frozen=True)
class Option:
    """One option of a source: a parameter of its function."""

    name: str
    allowed: str
    required: bool
    default: object
    secret: bool

    @property
    def text(self) -> str:
        """`length: a whole number, default 5`."""
        default = "none" if self.default is None else "not shown"
        if self.default is not None and not self.secret:
            default = repr(self.default) if type(self.default) is str else write(self.default)
        return f"{self.name}: {self.allowed}, {'required' if self.required else f'default {default}'}"


@dataclass(frozen=True, eq=False)
class Signature:
    """The options of one source. `owner` is what messages call it: `source 'letters'`."""

    owner: str
    options: tuple[Option, ...]
    _kinds: Mapping[str, Kind] = field(repr=False)
    _call: inspect.Signature = field(repr=False)

    @classmethod
    def of(cls, function: Callable[..., object], *, owner: str, skip: Collection[str] = ()) -> Signature:
        """The parameters of `function` but for those in `skip`, which are no options.

        TypeError or ValueError where one cannot be an option, with where it stands and what to do.
        """
        inner = inspect.unwrap(function)
        code = getattr(inner, "__code__", None)
        place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        found = {} if function is object.__init__ else inspect.signature(function).parameters
        parameters = [parameter for name, parameter in found.items() if name not in skip]
        options, kinds, names = [], {}, dict(_OWN)
        for parameter in parameters:
            where = f"parameter '{parameter.name}' of {owner}{place}"
            _check_name(parameter, names, where)
            kind = _kind(parameter, getattr(inner, "__globals__", {}), where)
            kinds[parameter.name] = kind
            options.append(_option(parameter, kind, where))
        call = inspect.Signature([parameter.replace(annotation=parameter.empty) for parameter in parameters])
        return cls(owner, tuple(options), kinds, call)

    def parse(self, written: Mapping[str, str]) -> dict[str, object]:
        """Keyword arguments out of the option texts that Spark holds; OptionError where they do not fit."""
        known = {plain(name): name for name in self._kinds}
        spelt: dict[str, str] = {}
        for spelling in written:
            name = known.get(plain(spelling))
            if name is None:
                raise OptionError(f"{self.owner} has no option '{spelling}'. {self._instead(spelling)}")
            if name in spelt:
                raise OptionError(f"{self.owner} got '{spelt[name]}' and '{spelling}', one option: keep one")
            spelt[name] = spelling
        missing = [option.text for option in self.options if option.required and option.name not in spelt]
        if missing:
            raise OptionError(f"{self.owner} needs the option {'; '.join(missing)}")
        return self._complete({name: written[spelling] for name, spelling in spelt.items()}, texts=True)

    def check(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """All arguments of a call in Python, by name, with the defaults of those that were not given.

        TypeError as Python itself has it for a call that does not fit; TypeError or OptionError for a value.
        """
        for name in kwargs:
            if name not in self._kinds:
                raise TypeError(f"{self.owner} got an unexpected argument '{name}'. {self._instead(name)}")
        try:
            bound = self._call.bind(*args, **kwargs)
        except TypeError as error:
            listed = "; ".join(option.text for option in self.options)
            raise TypeError(f"{self.owner}: {error}. Its options are: {listed or 'none'}") from None
        return self._complete(bound.arguments, texts=False)

    def show(self, bound: Mapping[str, object]) -> str:
        """The arguments for a repr: what is required or not the default, without secrets."""
        return ", ".join(
            f"{o.name}={'***' if o.secret and bound[o.name] is not None else repr(bound[o.name])}"
            for o in self.options
            if o.name in bound and (o.required or bound[o.name] != o.default)
        )

    def _complete(self, given: Mapping[str, Any], *, texts: bool) -> dict[str, object]:
        """Values and defaults in the order of the signature; `take` makes a new list of a list each time."""
        return {
            name: _value(kind, given[name], f"option '{name}' of {self.owner}", texts=texts)
            if name in given
            else kind.take(option.default)
            for option, (name, kind) in zip(self.options, self._kinds.items(), strict=True)
        }

    def _instead(self, name: str) -> str:
        """What there is instead of an unknown option. Its value is not said: a misspelt secret is one too."""
        if plain(name) in _OWN:
            own = _OWN[plain(name)]
            return f"{own} is headwater's own: hw.stream(…, {snake(own)}=…) takes it, no source does"
        names = {plain(own): own for own in self._kinds} | _OWN
        near = [f"Did you mean '{names[found]}'? " for found in get_close_matches(plain(name), names, 1)]
        listed = "; ".join(option.text for option in self.options)
        every = ", ".join(_EVERY.split())
        return f"{''.join(near)}Its options are: {listed or 'none'}. Those of every source: {every}"


def _check_name(parameter: inspect.Parameter, names: dict[str, str], where: str) -> None:
    """`names` are those taken, by their plain form; the parameter's is added."""
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        what = f"{where} is {parameter.kind.description}, but an option has a name of its own"
        raise TypeError(f"{what}. Fix: make it a plain parameter, or one for each option; no *, ** or /")
    taken = names.setdefault(plain(parameter.name), parameter.name)
    if taken in RESERVED:
        raise ValueError(f"{where} has the name of headwater's own option {taken}: rename it")
    if taken != parameter.name:
        raise ValueError(f"{where} is the option '{taken}' too, as case and _ do not count: rename one")


def _kind(parameter: inspect.Parameter, scope: dict[str, Any], where: str) -> Kind:
    """Of the annotation; without one of the default; without both a text."""
    written, default = parameter.annotation, parameter.default
    if written is parameter.empty:
        try:
            return kind_of(type(default))
        except TypeError:
            return kind_of(str | None if default is None else str)

    def bare() -> None: ...

    bare.__annotations__ = {"option": written}  # alone, without its default: None would make it Optional
    try:
        hint = get_type_hints(bare, scope)["option"]
    except Exception as error:
        what = f"{where} has the annotation {written!r}, which cannot be read ({error})"
        raise TypeError(f"{what}. Fix: define or import its names at the top of the module") from error
    try:
        return kind_of(hint)
    except TypeError as error:
        what = written if isinstance(written, str) else inspect.formatannotation(written)
        why = f" ({error})" if str(error) else ""
        raise TypeError(
            f"{where} is of type {what}, as no option can be{why}. Fix: use {SUPPORTED}"
        ) from None


def _option(parameter: inspect.Parameter, kind: Kind, where: str) -> Option:
    required, default = parameter.default is parameter.empty, None
    if not required:
        remedy = ". Fix: annotate the parameter with what fits it, or change it"
        default = _value(kind, parameter.default, f"the default of {where}", texts=False, remedy=remedy)
    return Option(parameter.name, kind.allowed, required, default, kind.secret)


def _value(kind: Kind, given: Any, what: str, *, texts: bool, remedy: str = "") -> object:
    try:
        return kind.read(given) if texts else kind.take(given)
    except UNFIT as error:
        value = "***" if kind.secret else shown(given)
        of_type, python = ("", "") if texts else (f" of type {type(given).__name__}", f", as {kind.python}")
        why = f" ({error})" if str(error) and not kind.secret else ""
        raised = TypeError if isinstance(error, TypeError) and not texts else OptionError
        raise raised(f"{what} is {value}{of_type}, it must be {kind.allowed}{python}{why}{remedy}") from None
