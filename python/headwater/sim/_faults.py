"""What a simulator does wrong, as data, and how it is written on a command line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

__all__ = [
    "BadRecord",
    "Cut",
    "CutMidCharacter",
    "CutMidRecord",
    "End",
    "Fault",
    "Redirect",
    "Repeat",
    "Reset",
    "Skip",
    "Stall",
    "Status",
    "fault",
    "forms",
]


_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class Fault:
    """Comes `times` times: each time that record number `after`, or a later one, is about to be sent.

    Records are numbered from 0, so `after` of them went before, on whatever connections.
    >>> print(Repeat(after=100, count=3, times=2), isinstance(Cut(), Fault))
    Repeat(after=100, times=2, count=3) True
    """

    after: int = 0
    times: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        for name, least in (("after", 0), ("times", 1), ("count", 1), ("seconds", 0)):
            value = getattr(self, name, least)
            if value < least:
                raise ValueError(f"{name} of {type(self).__name__} is {value!r}, it must be {least} or more")

    @property
    def of_request(self) -> bool:
        """Whether it is the answer to a request, and does not come between records."""
        return isinstance(self, Status | Redirect)

    def fits(self, data: bytes) -> bool:
        """Whether it can be done to this record."""
        return True


class Cut(Fault):
    """The connection is closed, without the end that HTTP prescribes, before the record.
    >>> assert fault("cut@100") == Cut(after=100)"""


class CutMidRecord(Fault):
    """The connection is closed in the middle of the record.
    >>> assert fault("cut-mid-record@3") == CutMidRecord(3)"""


class CutMidCharacter(Fault):
    """The connection is closed within a character, of the first record from there on with one of two bytes.
    >>> assert fault("cut-mid-character@3") == CutMidCharacter(3)"""

    def fits(self, data: bytes) -> bool:
        return not data.isascii()


class End(Fault):
    """The response ends as it should, before the record.
    >>> assert fault("end@50:times=2") == End(50, times=2)"""


class Reset(Fault):
    """The connection is reset before the record, as when the server's process dies.
    >>> assert fault("reset@7") == Reset(after=7)"""


class BadRecord(Fault):
    """A record that is no JSON, before the record.
    >>> assert fault("bad-record@5") == BadRecord(after=5)"""


@dataclass(frozen=True)
class Stall(Fault):
    """The connection stays open, and nothing comes for so long.
    >>> assert fault("stall@10:seconds=2.5") == Stall(after=10, seconds=2.5)"""

    seconds: float = 3600.0


@dataclass(frozen=True)
class Repeat(Fault):
    """So many records that went before come once more.
    >>> assert fault("repeat@20:count=3") == Repeat(after=20, count=3)"""

    count: int = 5


@dataclass(frozen=True)
class Skip(Fault):
    """So many records are left out, on this connection.
    >>> assert fault("skip@20:count=2") == Skip(after=20, count=2)"""

    count: int = 1


@dataclass(frozen=True)
class Status(Fault):
    """A request is answered with this status once `after` records were sent.
    >>> assert fault("status:code=429,times=2") == Status(429, times=2)"""

    code: int = 503
    retry_after: int | str | None = None
    after: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 400 <= self.code <= 599 and self.code != 204:
            raise ValueError(f"code of Status is {self.code!r}, it must be 204, or 400 to 599")


@dataclass(frozen=True)
class Redirect(Fault):
    """A request is sent elsewhere: to this URL, or to another path of the simulator.
    >>> assert fault("redirect:code=302") == Redirect(code=302)"""

    to: str | None = None
    code: int = 307
    after: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.code not in _REDIRECTS:
            raise ValueError(f"code of Redirect is {self.code!r}, it must be one of {_REDIRECTS}")


_KINDS: dict[str, type[Fault]] = {
    re.sub(r"(?<!^)([A-Z])", r"-\1", kind.__name__).lower(): kind
    for kind in (
        *(Cut, CutMidRecord, CutMidCharacter, End, Reset, Stall),
        *(Status, Redirect, Repeat, Skip, BadRecord),
    )
}


def fault(text: str) -> Fault:
    """A fault as it is written on a command line: its name, `@` and where, and what else it takes.

    >>> print(fault("stall@10:seconds=2.5"), fault("cut@100"))
    Stall(after=10, times=1, seconds=2.5) Cut(after=100, times=1)
    """
    name, _, settings = text.partition(":")
    name, at, after = name.partition("@")
    kind = _KINDS.get(name)
    if kind is None:
        raise ValueError(f"'{text}' is no fault; there are: {', '.join(forms())}")
    given = {"after": after} if at else {}
    for setting in settings.split(",") if settings else ():
        key, _, value = setting.partition("=")
        given[key] = value
    return kind(**{key: _value(text, kind, key, value) for key, value in given.items()})


def forms() -> list[str]:
    """How each fault is written: `cut@N`, `stall@N:seconds=…`."""
    written = []
    for name, kind in _KINDS.items():
        own = [f"{key}=…" for key in _settings(kind) if key not in ("after", "times")]
        written.append(f"{name}@N{':' if own else ''}{','.join(own)}")
    return written


def _settings(kind: type[Fault]) -> list[str]:
    return [each.name for each in fields(kind)]


def _value(text: str, kind: type[Fault], key: str, value: str) -> Any:
    if key not in _settings(kind):
        raise ValueError(f"'{key}' in '{text}' is none of {', '.join(_settings(kind))}")
    wanted = get_type_hints(kind)[key]
    if wanted not in (int, float):
        return value
    try:
        return wanted(value)
    except ValueError:
        raise ValueError(f"'{key}' in '{text}' is '{value}', it must be a number") from None
