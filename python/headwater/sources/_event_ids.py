"""What the ids of events tell: which were here before, and which never came. No I/O."""

from __future__ import annotations

import logging
from typing import Protocol

from headwater.sources._event_columns import Events

__all__ = ["IDS", "EventIds"]

_LOG = logging.getLogger("headwater.sources.sse")
_MOST_KEPT = 20_000
_MOST_BYTES = 32 << 20  # of data that is kept as it is
_Known = Events | tuple[int, ...]  # the events among which an id is, or hashes of its data: one or more


class EventIds(Protocol):
    """Made with the id to go on after, None if there is none."""

    def fresh(self, events: Events) -> Events:
        """Those that were not here before."""
        ...


class _Free:
    """Ids that mean nothing."""

    def __init__(self, last: str | None) -> None: ...

    def fresh(self, events: Events) -> Events:
        return events


class _Any:
    """An event with id and data of an earlier one is a repeat. The last 10,000 ids at least are known.

    To hash all data takes longer than to read it. So data is kept, if it is not too much, and hashed when one
    of its ids comes again.
    """

    def __init__(self, last: str | None) -> None:
        self._resumed_at = last  # a server may begin with the very event that it is to go on after
        self._newer: dict[str | None, _Known] = {}
        self._older: dict[str | None, _Known] = {}
        self._bytes = 0  # in the newer ones

    def fresh(self, events: Events) -> Events:
        if not any(events.own):
            return events
        if self._resumed_at is None and all(events.own):
            made: dict[str | None, _Known] = dict.fromkeys(events.id, events)
            are_new = self._newer.keys().isdisjoint(made) and self._older.keys().isdisjoint(made)
            if are_new and len(made) == len(events.id):
                self._keep(made, events)
                return events
        each = zip(events.id, events.own, map(hash, events.records), strict=True)
        return events.chosen([not own or self._is_new(id, found) for id, own, found in each])

    def _keep(self, made: dict[str | None, _Known], events: Events) -> None:
        self._bytes += events.data.nbytes + events.event.nbytes
        self._newer.update(made if self._bytes <= _MOST_BYTES // 2 else _hashes(events))
        self._forget()

    def _is_new(self, id: str | None, found: int) -> bool:
        if self._resumed_at == id:
            return False
        self._resumed_at = None
        known = self._hashes_of(id)
        if found in known:
            return False
        self._newer[id] = (*known, found)
        self._forget()
        return True

    def _hashes_of(self, id: str | None) -> tuple[int, ...]:
        place = self._newer if id in self._newer else self._older
        if isinstance(known := place.get(id, ()), Events):
            place.update(hashes := _hashes(known))
            return hashes[id]
        return known

    def _forget(self) -> None:
        if len(self._newer) >= _MOST_KEPT // 2:
            self._older, self._newer, self._bytes = self._newer, {}, 0


def _hashes(events: Events) -> dict[str | None, tuple[int, ...]]:
    return {id: (hash(data),) for id, data in zip(events.id, events.records, strict=True)}


class _Sequence:
    """Ids are whole numbers, each one more than the one before: less is a repeat, more is a gap."""

    def __init__(self, last: str | None) -> None:
        self._last = None if last is None else _number(last)

    def fresh(self, events: Events) -> Events:
        each = zip(events.id, events.own, strict=True)
        numbers = [_number(id) if own else None for id, own in each]
        last = self._last
        if numbers and last is not None and numbers == list(range(last + 1, last + 1 + len(numbers))):
            self._last = numbers[-1]
            return events
        return events.chosen([number is None or self._is_new(number) for number in numbers])

    def _is_new(self, number: int) -> bool:
        last = self._last
        if last is not None and number <= last:
            _LOG.info("event %d is dropped: %d was here already", number, last)
            return False
        if last is not None and number > last + 1:
            _LOG.warning("events %d to %d are missing: %d follows %d", last + 1, number - 1, number, last)
        self._last = number
        return True


def _number(id: str | None) -> int:
    if id is None or not (id.isascii() and id.isdigit()):
        raise ValueError(f"the id of an event is {id!r}; with ids=sequence it must be a whole number")
    return int(id)


IDS: dict[str, type[_Any] | type[_Sequence] | type[_Free]] = {
    "any": _Any,
    "sequence": _Sequence,
    "free": _Free,
}
