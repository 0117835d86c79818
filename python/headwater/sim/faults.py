"""Faults that a simulator injects."""

from __future__ import annotations

import random
import re
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, get_type_hints
from urllib.parse import quote

from headwater.sim.records import ENDLESS, LAST_NAMES, TITLES, TOPICS, WIKIS

__all__ = [
    "STREAMS",
    "Armed",
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
    "change",
    "fault",
    "forms",
    "offset_of",
    "stream_of",
]

STREAMS = ("recentchange", "page-create", "revision-create")

_PATTERN = "rrrrprrcrrrvrrrrprrrrvrr"
"""Which stream each of so many records in a row is of: r, p, v; c is a canary event of recentchange."""

_STREAM_OF = {"r": STREAMS[0], "c": STREAMS[0], "p": STREAMS[1], "v": STREAMS[2]}
_CYCLE = [_STREAM_OF[letter] for letter in _PATTERN]
_FIRST_OFFSET = {stream: 1_000_000 * number for number, stream in enumerate(STREAMS, 1)}
_COMMENTS = ("typo", "source added", "Überarbeitung", "誤字")
_TYPES = ("edit", "edit", "edit", "new", "log", "categorize")


def stream_of(n: int) -> str:
    """The stream that record n is of."""
    return _CYCLE[n % len(_CYCLE)]


def offset_of(stream: str, n: int) -> int:
    """How many records of a stream come before record n, counted from the stream's first offset.

    >>> [offset_of("page-create", n) for n in (0, 4, 5, 24, 29)]
    [2000000, 2000000, 2000001, 2000002, 2000003]
    """
    rounds, rest = divmod(n, len(_CYCLE))
    return _FIRST_OFFSET[stream] + rounds * _CYCLE.count(stream) + _CYCLE[:rest].count(stream)


def change(seed: int, n: int, stamp: int, prefix: str) -> dict[str, Any]:
    """Record n. A canary event has made-up fields, and `meta.domain` says what it is."""
    dice = random.Random(f"{seed}/{n}")  # noqa: S311
    stream = stream_of(n)
    domain, wiki = dice.choice(WIKIS)
    is_canary = _PATTERN[n % len(_PATTERN)] == "c"
    title = f"{dice.choice(TOPICS)[1]} ({dice.choice(TITLES)})"
    uri = f"https://{domain}/wiki/{quote(title.replace(' ', '_'))}"
    meta = {
        "uri": uri,
        "request_id": str(uuid.UUID(int=dice.getrandbits(128), version=4)),
        "id": str(uuid.UUID(int=dice.getrandbits(128), version=4)),
        "domain": "canary" if is_canary else domain,
        "stream": f"mediawiki.{stream}",
        "dt": _written(stamp, "milliseconds"),
        "topic": f"{prefix}{stream}",
        "partition": 0,
        "offset": offset_of(stream, n),
    }
    make = _recent_change if stream == STREAMS[0] else _revision
    return {"$schema": f"/mediawiki/{stream}/1.0.0", "meta": meta, **make(dice, wiki, title, stamp)}


def _recent_change(dice: random.Random, wiki: str, title: str, stamp: int) -> dict[str, Any]:
    size = dice.randrange(50, 100_000)
    return {
        "id": dice.randrange(10**8, 10**10),
        "type": dice.choice(_TYPES),
        "namespace": dice.choice((0, 0, 0, 1, 2, 14)),
        "title": title,
        "comment": f"/* {dice.choice(TOPICS)[1]} */ {dice.choice(_COMMENTS)}",
        "timestamp": stamp // 1000,
        "user": dice.choice(LAST_NAMES),
        "bot": dice.random() < 0.4,
        "minor": dice.random() < 0.3,
        "length": {"old": size, "new": max(0, size + dice.randrange(-200, 400))},
        "wiki": wiki,
    }


def _revision(dice: random.Random, wiki: str, title: str, stamp: int) -> dict[str, Any]:
    return {
        "database": wiki,
        "page_id": dice.randrange(1, 10**8),
        "page_title": title.replace(" ", "_"),
        "page_namespace": 0,
        "rev_id": dice.randrange(10**8, 10**10),
        "rev_timestamp": _written(stamp, "seconds"),
        "performer": {"user_text": dice.choice(LAST_NAMES), "user_is_bot": dice.random() < 0.4},
    }


def _written(stamp: int, unit: str) -> str:
    moment = datetime.fromtimestamp(stamp / 1000, timezone.utc)
    return moment.isoformat(timespec=unit).replace("+00:00", "Z")


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


class Armed:
    """Shared by all connections of a simulator: a fault that one has had is gone for the others."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._lock = threading.Lock()
        self._left = sorted(
            (fault for each in faults for fault in [each] * each.times), key=lambda fault: fault.after
        )
        self._come: list[Fault] = []
        self.next_record = 0
        """Before this record none comes: looked at without the lock, to be quick."""
        self._look_ahead()

    @property
    def come(self) -> list[Fault]:
        with self._lock:
            return list(self._come)

    def at_request(self, reached: int) -> Fault | None:
        """What a request is answered with when so many records were sent."""
        with self._lock:
            return self._take([fault for fault in self._left if fault.of_request and fault.after <= reached])

    def at_record(self, n: int, data: bytes) -> Fault | None:
        """What happens before record n, or to it."""
        if n < self.next_record:
            return None
        with self._lock:
            due = [fault for fault in self._left if not fault.of_request and fault.after <= n]
            return self._take([fault for fault in due if fault.fits(data)])

    def _take(self, due: list[Fault]) -> Fault | None:
        if not due:
            return None
        self._left.remove(due[0])
        self._come.append(due[0])
        self._look_ahead()
        return due[0]

    def _look_ahead(self) -> None:
        afters = [fault.after for fault in self._left if not fault.of_request]
        self.next_record = min(afters, default=ENDLESS)
