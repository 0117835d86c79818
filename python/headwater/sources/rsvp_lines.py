"""RSVPs as they come, one JSON object per line: which of them are new, and where to go on after them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["Line", "Position"]

_REMEMBERED = 10_000


class Line(NamedTuple):
    """One line of the feed, and the JSON object that it is, if it is one.

    >>> Line.of(b'{"rsvp_id": 1}').record, Line.of(b"[1]").record, Line.of(b'{"rsvp_id":').record
    ({'rsvp_id': 1}, None, None)
    """

    data: bytes
    record: dict[str, Any] | None

    @staticmethod
    def of(data: bytes) -> Line:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            return Line(data, None)
        return Line(data, found if isinstance(found, dict) else None)


class Position:
    """How far the feed was read: up to an `mtime`, and which RSVPs of that very time have come.

    The feed gives records after an `mtime`, and several may have the same: asked for those after the
    millisecond before, it repeats some, and loses none. A repeat has both `rsvp_id` and `mtime` of a record
    that has come; an RSVP that was changed has a new `mtime`.

    >>> position = Position(None)
    >>> position.params, position.cursor
    ({}, None)
    >>> one, two = b'{"rsvp_id": 1, "mtime": 1000}', b'{"rsvp_id": 2, "mtime": 1000}'
    >>> len(position.new([one, one])), position.cursor, position.params
    (1, {'mtime': 1000, 'ids': [1]}, {'since_mtime': '999'})
    >>> [line.record["rsvp_id"] for line in Position({"mtime": 1000, "ids": [1]}).new([one, two])]
    [2]
    """

    def __init__(self, cursor: Any, since_count: int | None = None) -> None:
        self._mtime: int | None
        self._mtime, ids = _read(cursor)
        self._ids = list(ids)
        self._since_count = since_count
        self._come = dict.fromkeys((id, self._mtime) for id in ids)
        """The newest records that have come, in order: a server may repeat older ones as well."""

    @property
    def cursor(self) -> dict[str, Any] | None:
        return None if self._mtime is None else {"mtime": self._mtime, "ids": list(self._ids)}

    @property
    def params(self) -> dict[str, str]:
        """What to ask for."""
        if self._mtime is not None:
            return {"since_mtime": str(max(0, self._mtime - 1))}
        return {} if self._since_count is None else {"since_count": str(self._since_count)}

    def new(self, lines: Iterable[bytes]) -> list[Line]:
        """The lines that have not come before. One that says neither id nor time cannot be known again."""
        return [line for line in map(Line.of, lines) if self._is_new(line.record or {})]

    def _is_new(self, record: dict[str, Any]) -> bool:
        id, mtime = record.get("rsvp_id"), record.get("mtime")
        if type(id) is not int or type(mtime) is not int:
            return True
        if (id, mtime) in self._come:
            return False
        self._come[id, mtime] = None
        if len(self._come) > _REMEMBERED:
            del self._come[next(iter(self._come))]
        if self._mtime is None or mtime > self._mtime:
            self._mtime, self._ids = mtime, []
        if mtime == self._mtime:
            self._ids.append(id)
        return True


def _read(cursor: Any) -> tuple[int | None, list[int]]:
    if cursor is None:
        return None, []
    found = {"mtime": cursor, "ids": []} if type(cursor) is int else cursor
    if isinstance(found, dict) and isinstance(found.get("ids"), list):
        mtime, ids = found.get("mtime"), found["ids"]
        if all(type(number) is int and number >= 0 for number in (mtime, *ids)):
            return mtime, ids
    raise ValueError(
        f"the cursor {cursor!r} is none of RSVPs; it must be as "
        '{"mtime": 1717156800000, "ids": [17]}, or the mtime alone: milliseconds since 1970'
    )
