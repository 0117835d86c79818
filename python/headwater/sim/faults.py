"""Faults that a simulator injects, and how a command line spells them."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from headwater.sim.timeline import ENDLESS

__all__ = [
    "FAULT_TYPES",
    "BadRecord",
    "BadSignature",
    "Cut",
    "CutMidCharacter",
    "CutMidRecord",
    "End",
    "Fault",
    "FaultPlan",
    "Redirect",
    "Repeat",
    "Reset",
    "Skip",
    "Stall",
    "Status",
    "fault",
    "spellings",
]

_REDIRECT_STATUSES = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class Fault:
    """Happens `times` times: each time that record number `after`, or a later one, is about to be sent.

    Records are numbered from 0 across all connections, so `after` records come before the fault.
    >>> print(Repeat(after=100, count=3, times=2), isinstance(Cut(), Fault))
    Repeat(after=100, times=2, count=3) True
    """

    after: int = 0
    times: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        for name, minimum in (("after", 0), ("times", 1), ("count", 1), ("seconds", 0)):
            value = getattr(self, name, minimum)
            if value < minimum:
                raise ValueError(
                    f"{name} of {type(self).__name__} is {value!r}, it must be {minimum} or more"
                )

    @property
    def of_request(self) -> bool:
        """Whether it is the response to a request, rather than something that happens between records."""
        return isinstance(self, Status | Redirect)

    def fits(self, data: bytes) -> bool:
        """Whether it can happen to this record."""
        return True


class Cut(Fault):
    """The connection is closed before the record, without the end that HTTP requires.
    >>> assert fault("cut@100") == Cut(after=100)"""


class CutMidRecord(Fault):
    """The connection is closed in the middle of the record.
    >>> assert fault("cut-mid-record@3") == CutMidRecord(3)"""


class CutMidCharacter(Fault):
    """The connection is closed within a character: in the first record from there on that is not ASCII.
    >>> assert fault("cut-mid-character@3") == CutMidCharacter(3)"""

    def fits(self, data: bytes) -> bool:
        return not data.isascii()


class End(Fault):
    """The response ends properly before the record.
    >>> assert fault("end@50:times=2") == End(50, times=2)"""


class Reset(Fault):
    """The connection is reset before the record, as when the server's process dies.
    >>> assert fault("reset@7") == Reset(after=7)"""


class BadRecord(Fault):
    """A record that is not JSON comes before the record.
    >>> assert fault("bad-record@5") == BadRecord(after=5)"""


class BadSignature(Fault):
    """Of the callers of a webhook: a request that is signed with a wrong secret comes before the record.
    >>> assert fault("bad-signature@5") == BadSignature(after=5)"""


@dataclass(frozen=True)
class Stall(Fault):
    """The connection stays open, and nothing is sent for `seconds`.
    >>> assert fault("stall@10:seconds=2.5") == Stall(after=10, seconds=2.5)"""

    seconds: float = 3600.0


@dataclass(frozen=True)
class Repeat(Fault):
    """The last `count` records are sent again.
    >>> assert fault("repeat@20:count=3") == Repeat(after=20, count=3)"""

    count: int = 5


@dataclass(frozen=True)
class Skip(Fault):
    """`count` records are left out on this connection.
    >>> assert fault("skip@20:count=2") == Skip(after=20, count=2)"""

    count: int = 1


@dataclass(frozen=True)
class Status(Fault):
    """A request gets this status once `after` records were sent.
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
    """A request is redirected: to this URL, or to another path of the simulator.
    >>> assert fault("redirect:code=302") == Redirect(code=302)"""

    to: str | None = None
    code: int = 307
    after: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.code not in _REDIRECT_STATUSES:
            raise ValueError(f"code of Redirect is {self.code!r}, it must be one of {_REDIRECT_STATUSES}")


class FaultPlan:
    """The faults still to come. All connections of a simulator share it, so each happens only once."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._lock = threading.Lock()
        self._left = sorted(
            (fault for each in faults for fault in [each] * each.times), key=lambda fault: fault.after
        )
        self._happened: list[Fault] = []
        self._update_next_record()

    @property
    def happened(self) -> list[Fault]:
        with self._lock:
            return list(self._happened)

    def at_request(self, sent: int) -> Fault | None:
        """The fault of a request that comes when so many records were sent."""
        with self._lock:
            return self._take([fault for fault in self._left if fault.of_request and fault.after <= sent])

    def at_record(self, n: int, data: bytes) -> Fault | None:
        """The fault that happens before record n, or to it."""
        if n < self._next_record:  # read without the lock, because this is asked for every record
            return None
        with self._lock:
            due = [fault for fault in self._left if not fault.of_request and fault.after <= n]
            return self._take([fault for fault in due if fault.fits(data)])

    def _take(self, due: list[Fault]) -> Fault | None:
        if not due:
            return None
        self._left.remove(due[0])
        self._happened.append(due[0])
        self._update_next_record()
        return due[0]

    def _update_next_record(self) -> None:
        self._next_record = min(
            (fault.after for fault in self._left if not fault.of_request), default=ENDLESS
        )


FAULT_TYPES: tuple[type[Fault], ...] = (
    *(Cut, CutMidRecord, CutMidCharacter, End, Reset, Stall),
    *(Status, Redirect, Repeat, Skip, BadRecord, BadSignature),
)
_TYPES: dict[str, type[Fault]] = {
    re.sub(r"(?<!^)([A-Z])", r"-\1", type_.__name__).lower(): type_ for type_ in FAULT_TYPES
}


def fault(text: str) -> Fault:
    """Parses a fault as on a command line: its name, `@` and the record, and its other settings.

    >>> print(fault("stall@10:seconds=2.5"), fault("cut@100"))
    Stall(after=10, times=1, seconds=2.5) Cut(after=100, times=1)
    """
    name, _, settings_text = text.partition(":")
    name, at, after = name.partition("@")
    type_ = _TYPES.get(name)
    if type_ is None:
        raise ValueError(f"'{text}' is not a fault; there are: {', '.join(spellings())}")
    settings = {"after": after} if at else {}
    for setting in settings_text.split(",") if settings_text else ():
        key, _, value = setting.partition("=")
        settings[key] = value
    return type_(**{key: _parse_value(text, type_, key, value) for key, value in settings.items()})


def spellings(types: Collection[type[Fault]] | None = None) -> list[str]:
    """How each fault, or each of these, is written: `cut@N`, `stall@N:seconds=…`."""
    spellings = []
    for name, type_ in _TYPES.items():
        if types is not None and type_ not in types:
            continue
        settings = [f"{key}=…" for key in _setting_names(type_) if key not in ("after", "times")]
        spellings.append(f"{name}@N{':' if settings else ''}{','.join(settings)}")
    return spellings


def _setting_names(type_: type[Fault]) -> list[str]:
    return [field.name for field in fields(type_)]


def _parse_value(text: str, type_: type[Fault], key: str, value: str) -> Any:
    if key not in _setting_names(type_):
        raise ValueError(f"'{key}' in '{text}' is not one of {', '.join(_setting_names(type_))}")
    value_type = get_type_hints(type_)[key]
    if value_type not in (int, float):
        return value
    try:
        return value_type(value)
    except ValueError:
        raise ValueError(f"'{key}' in '{text}' is '{value}', it must be a number") from None
