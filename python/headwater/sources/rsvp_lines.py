"""The lines of Meetup's RSVP feed: which of them are new, and where to resume."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeGuard

__all__ = ["Line", "Position"]

_MAX_REMEMBERED = 10_000
_MAX_IDS = 1_000  # in a cursor


class Line(NamedTuple):
    """A line of the feed, and its JSON object; None if it is not one.

    >>> Line.parse(b'{"rsvp_id": 1}').record, Line.parse(b"[1]").record, Line.parse(b'{"rsvp_id":').record
    ({'rsvp_id': 1}, None, None)
    """

    data: bytes
    record: dict[str, Any] | None

    @staticmethod
    def parse(data: bytes) -> Line:
        try:
            record = json.loads(data)
        except (ValueError, RecursionError):
            return Line(data, None)
        return Line(data, record if isinstance(record, dict) else None)


class Position:
    """How far the feed was read: the newest `mtime`, and the ids of its RSVPs that have arrived.

    The feed serves records after an `mtime`, and several records may share one. So each request asks for the
    records after the millisecond before, which repeats some and loses none. A repeat has both the `rsvp_id`
    and the `mtime` of an earlier record; an RSVP that was changed has a new `mtime`. So that cursors stay
    small, they have at most 1,000 ids; of an `mtime` with more, some would be repeated after a restart.

    >>> position = Position(None)
    >>> position.params, position.cursor
    ({}, None)
    >>> one, two = b'{"rsvp_id": 1, "mtime": 1000}', b'{"rsvp_id": 2, "mtime": 1000}'
    >>> len(position.new_lines([one, one])), position.cursor, position.params
    (1, {'mtime': 1000, 'ids': [1]}, {'since_mtime': '999'})
    >>> [line.record["rsvp_id"] for line in Position({"mtime": 1000, "ids": [1]}).new_lines([one, two])]
    [2]
    """

    def __init__(self, cursor: Any, since_count: int | None = None) -> None:
        self._mtime, ids = _parse_cursor(cursor)
        self._ids = deque(ids, maxlen=_MAX_IDS)
        self._since_count = since_count
        # In order of arrival. A server may repeat older records than those of the newest `mtime`.
        self._remembered = dict.fromkeys((id, self._mtime) for id in self._ids)

    @property
    def cursor(self) -> dict[str, Any] | None:
        return None if self._mtime is None else {"mtime": self._mtime, "ids": list(self._ids)}

    @property
    def params(self) -> dict[str, str]:
        """The query parameters of the next request."""
        if self._mtime is not None:
            return {"since_mtime": str(max(0, self._mtime - 1))}
        return {} if self._since_count is None else {"since_count": str(self._since_count)}

    def new_lines(self, lines: Iterable[bytes]) -> list[Line]:
        """The lines that are not repeats. Without an id or an `mtime` a line always counts as new."""
        return [line for line in map(Line.parse, lines) if self._is_new(line.record or {})]

    def _is_new(self, record: dict[str, Any]) -> bool:
        id, mtime = record.get("rsvp_id"), record.get("mtime")
        if not _is_number(id) or not _is_number(mtime):
            return True
        if (id, mtime) in self._remembered:
            return False
        self._remembered[id, mtime] = None
        if len(self._remembered) > _MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        if self._mtime is None or mtime > self._mtime:
            self._mtime, self._ids = mtime, deque(maxlen=_MAX_IDS)
        if mtime == self._mtime:
            self._ids.append(id)
        return True


def _is_number(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 63


def _parse_cursor(cursor: Any) -> tuple[int | None, list[int]]:
    if cursor is None:
        return None, []
    fields = {"mtime": cursor, "ids": []} if type(cursor) is int else cursor
    if isinstance(fields, dict) and isinstance(fields.get("ids"), list):
        mtime, ids = fields.get("mtime"), fields["ids"]
        if all(_is_number(number) for number in (mtime, *ids)):
            return mtime, list(ids)
    raise ValueError(
        f"the cursor {cursor!r} is not a cursor of RSVPs; it must look like "
        '{"mtime": 1717156800000, "ids": [17]}, or be the mtime alone: milliseconds since 1970'
    )
