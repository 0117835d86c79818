"""Times as Arrow columns: exact, checked, and several times as fast as pyarrow makes them of datetimes."""

import datetime as dt
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, sub
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from headwater._rows.bad_rows import Refused

__all__ = ["dates", "instants", "local_times", "spans", "times"]

_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1)
_FIRST, _LAST = (dt.datetime.min - _EPOCH) // _MICROSECOND, (dt.datetime.max - _EPOCH) // _MICROSECOND
_YEARS = "the time is outside of the years 1 to 9999 of UTC"


class _Timestamps:
    """A column of datetimes is the column of their distances from 1970.

    Subtraction tells naive times from aware ones by itself: Python refuses to mix them. It is also fast where
    both sides have the same zone, so the epoch takes the zone of the first value, if one that never changes.
    """

    def __init__(self, aware: bool) -> None:
        self._epoch = _EPOCH.replace(tzinfo=dt.timezone.utc) if aware else _EPOCH
        self._wrong_zone = "the datetime has no zone" if aware else "the datetime has a zone"

    def build(self, values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
        epoch = self._epoch_like(values[0]) if values else self._epoch
        try:
            distances = list(map(sub, values, repeat(epoch)))
        except TypeError:
            if None not in values:
                raise Refused(self._wrong_zone) from None
            distances = [None if value is None else value - epoch for value in values]
        return pa.array(distances, pa.duration("us")).view(arrow)

    def build_others(self, values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
        """Subclasses may subtract in ways of their own; pyarrow looks at what is in them."""
        _check_nanoseconds(values, "nanosecond")
        for value in values:
            if value is not None and (value.utcoffset() is None) != (self._epoch.tzinfo is None):
                raise Refused(self._wrong_zone)
        return pa.array(values, arrow)

    def _epoch_like(self, value: dt.datetime | None) -> dt.datetime:
        zone = value.tzinfo if value is not None and self._epoch.tzinfo else None
        if type(zone) is dt.timezone or (type(zone) is ZoneInfo and zone.key == "UTC"):
            return self._epoch.astimezone(zone)
        return self._epoch

    def check(self, array: pa.Array) -> None:
        _check_range(array.view(pa.int64()), _FIRST, _LAST)


class _Spans:
    """Columns of timedelta. Those of pandas are timedeltas too, but finer."""

    def build_others(self, values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
        _check_nanoseconds(values, "nanoseconds")
        return pa.array(values, arrow)

    def check_whole(self, array: pa.Array, unit: int) -> None:
        """Spark has intervals of whole days, hours and minutes, and would show others cut off."""
        _check_whole(array.view(pa.int64()), unit)


class _Times:
    """Columns of the time of a day."""

    def build(self, values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
        if set(map(attrgetter("tzinfo"), filter(None, values))) - {None}:
            raise Refused("the time has a zone, which would be lost")
        return pa.array(values, arrow)

    def check_whole(self, array: pa.Array, unit: int) -> None:
        _check_whole(array.view(pa.int64()), unit)


class _Dates:
    """Columns of dates. Python's own are all in range; those of Arrow need not be."""

    def check(self, array: pa.Array) -> None:
        _check_range(
            array.view(pa.int32()), (dt.date.min - _EPOCH.date()).days, (dt.date.max - _EPOCH.date()).days
        )


def _check_nanoseconds(values: Sequence[Any], name: str) -> None:
    if any(getattr(value, name, 0) for value in values):
        raise Refused("the value has nanoseconds, which Spark has not")


def _check_range(numbers: pa.Array, first: int, last: int) -> None:
    found = pc.min_max(numbers)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is not None and (least < first or most > last):
        raise Refused(_YEARS)


def _check_whole(numbers: pa.Array, unit: int) -> None:
    if unit > 1 and pc.equal(pc.multiply(pc.divide(numbers, unit), unit), numbers).false_count:
        raise Refused("the value is finer than the column")


instants, local_times = _Timestamps(aware=True), _Timestamps(aware=False)
spans, times, dates = _Spans(), _Times(), _Dates()
