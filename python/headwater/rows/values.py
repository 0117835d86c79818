"""Plain Spark types: the values that each accepts, and how those become Arrow arrays.

A value is converted exactly or not at all. Nothing is rounded, truncated or guessed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import repeat
from operator import attrgetter, sub
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["NOT_NULL", "InvalidValueError", "PlainType", "Values", "plain_type"]

Values = Sequence[Any]

NOT_NULL = "null in a NOT NULL column"


class InvalidValueError(ValueError):
    """A value does not match the type of its column.

    Internal to headwater: users see a `BadRowError` or an `hw.BadRow` with its reason. `path` is the place of
    the value below its column: `.name`, `[3]`.
    """

    def __init__(self, reason: str, value: object = None, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.value = value
        self.path = path

    def within(self, path: str) -> InvalidValueError:
        """The same error, seen from the value that contains this one."""
        return InvalidValueError(self.reason, self.value, path + self.path)


def _accept(array: pa.Array) -> None:
    pass


@dataclass(frozen=True)
class PlainType:
    """A type without parts. `build`, `cast` and `check` raise for values that the type does not accept.

    Most values have one of the `exact_types`. Subclasses of these and numpy's scalars are accepted if
    `accepts_type` says so, and a column that contains some is built by `build_subclasses`.
    """

    accepts: str
    exact_types: frozenset[type]
    accepts_type: Callable[[type], bool]
    accepts_arrow: Callable[[pa.DataType], bool]
    build: Callable[[Values, pa.DataType], pa.Array] = pa.array
    cast: Callable[[pa.Array, pa.DataType], pa.Array] = pa.Array.cast
    check: Callable[[pa.Array], None] = _accept
    build_subclasses: Callable[[Values, pa.DataType], pa.Array] = pa.array


def plain_type(spark: DataType, arrow: pa.DataType) -> PlainType:
    """The rules for a Spark type and the Arrow type that belongs to it."""
    if at.is_integer(arrow):
        return _integer(arrow.bit_width)
    if at.is_decimal(arrow):
        return _decimal(arrow.precision, arrow.scale)
    if at.is_timestamp(arrow):
        return _timestamp(arrow)
    if at.is_duration(arrow):
        return _interval(spark)
    if at.is_time(arrow):
        return _time(getattr(spark, "precision", 6))
    return _OTHERS[arrow]


# Numbers


def _integer(bits: int) -> PlainType:
    limit = 2 ** (bits - 1)
    return PlainType(f"an int from {-limit} to {limit - 1}", frozenset({int}), _is_int, at.is_integer)


def _decimal(precision: int, scale: int) -> PlainType:
    def cast(array: pa.Array, arrow: pa.DataType) -> pa.Array:
        # pyarrow demands room for the largest value of an integer type, whatever the array contains.
        return (array.cast(pa.decimal256(76, scale)) if at.is_integer(array.type) else array).cast(arrow)

    return PlainType(
        f"a Decimal or int with at most {precision - scale} digits before the point and {scale} after it",
        frozenset({int, Decimal}),
        lambda kind: issubclass(kind, Decimal) or (issubclass(kind, int) and kind is not bool),
        lambda arrow: at.is_decimal(arrow) or at.is_integer(arrow),
        cast=cast,
    )


def _is_int(kind: type) -> bool:
    return (issubclass(kind, int) and kind is not bool) or _is_numpy(kind, "integer")


def _is_float(kind: type) -> bool:
    return issubclass(kind, float) or _is_numpy(kind, "float16", "float32") or _is_int(kind)


def _is_numpy(kind: type, *names: str) -> bool:
    """By name, because numpy need not be installed."""
    return any(base.__module__ == "numpy" and base.__name__ in names for base in kind.__mro__)


def _is_number(arrow: pa.DataType) -> bool:
    return bool(at.is_integer(arrow) or at.is_floating(arrow))


def _build_float32(values: Values, arrow: pa.DataType) -> pa.Array:
    return _check_overflow(pa.array(values, arrow), lambda: pa.array(values, pa.float64()))


def _cast_float32(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    return _check_overflow(array.cast(arrow), lambda: array.cast(pa.float64()))


def _check_overflow(array: pa.Array, as_double: Callable[[], pa.Array]) -> pa.Array:
    """Rounding to the nearest FLOAT is expected; a finite value that becomes infinite is an error."""
    infinite = pc.is_inf(array)
    if infinite.true_count and infinite.true_count > pc.is_inf(as_double()).true_count:
        raise InvalidValueError("the value is too large")
    return array


# Dates and times

_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_MIN_MICROSECONDS = (dt.datetime.min - _EPOCH) // _MICROSECOND
_MAX_MICROSECONDS = (dt.datetime.max - _EPOCH) // _MICROSECOND
_MIN_DAYS, _MAX_DAYS = (dt.date.min - _EPOCH.date()).days, (dt.date.max - _EPOCH.date()).days


def _timestamp(arrow: pa.DataType) -> PlainType:
    has_time_zone = arrow.tz is not None
    timestamps = _Timestamps(has_time_zone)
    if has_time_zone:
        accepts = (
            "a datetime with a time zone, for instance datetime.now(timezone.utc); for one without, use "
            "TIMESTAMP_NTZ"
        )
    else:
        accepts = "a datetime without a time zone; for one with a time zone, use TIMESTAMP"
    return PlainType(
        f"{accepts}; in the years 1 to 9999 of UTC, with microseconds at most",
        frozenset({dt.datetime}),
        lambda kind: issubclass(kind, dt.datetime) and kind.__name__ != "NaTType",
        lambda other: at.is_timestamp(other) and (other.tz is not None) == has_time_zone,
        build=timestamps.build,
        check=timestamps.check,
        build_subclasses=timestamps.build_subclasses,
    )


class _Timestamps:
    """Converts datetimes by subtracting the epoch, which is faster than pyarrow's own conversion.

    Python raises TypeError where a datetime with a time zone meets one without, so that needs no check. The
    subtraction is fastest where both have the same time zone: the epoch takes that of the first value, if it
    has a constant offset.
    """

    def __init__(self, has_time_zone: bool) -> None:
        self._epoch = _EPOCH.replace(tzinfo=dt.timezone.utc) if has_time_zone else _EPOCH
        self._wrong_time_zone = f"the datetime has {'no' if has_time_zone else 'a'} time zone"

    def build(self, values: Values, arrow: pa.DataType) -> pa.Array:
        epoch = self._epoch_like(values[0]) if values else self._epoch
        try:
            durations = list(map(sub, values, repeat(epoch)))
        except TypeError:
            if None not in values:
                raise InvalidValueError(self._wrong_time_zone) from None
            durations = [None if value is None else value - epoch for value in values]
        return pa.array(durations, pa.duration("us")).view(arrow)

    def build_subclasses(self, values: Values, arrow: pa.DataType) -> pa.Array:
        """Subclasses may define subtraction differently, so pyarrow converts them."""
        _check_nanoseconds(values, "nanosecond")
        for value in values:
            if value is not None and (value.utcoffset() is None) != (self._epoch.tzinfo is None):
                raise InvalidValueError(self._wrong_time_zone)
        return pa.array(values, arrow)

    def _epoch_like(self, value: dt.datetime | None) -> dt.datetime:
        time_zone = value.tzinfo if value is not None and self._epoch.tzinfo else None
        if type(time_zone) is dt.timezone or (type(time_zone) is ZoneInfo and time_zone.key == "UTC"):
            return self._epoch.astimezone(time_zone)
        return self._epoch

    def check(self, array: pa.Array) -> None:
        _check_range(array.view(pa.int64()), _MIN_MICROSECONDS, _MAX_MICROSECONDS)


def _interval(spark: DataType) -> PlainType:
    unit = ("days", "hours", "minutes", "microseconds")[getattr(spark, "endField", 3)]
    microseconds = dt.timedelta(**{unit: 1}) // _MICROSECOND

    def build_subclasses(values: Values, arrow: pa.DataType) -> pa.Array:
        _check_nanoseconds(values, "nanoseconds")  # of pandas, whose Timedelta is a timedelta
        return pa.array(values, arrow)

    return PlainType(
        f"a timedelta of whole {unit}, up to 106751991 days",
        frozenset({dt.timedelta}),
        lambda kind: issubclass(kind, dt.timedelta),
        at.is_duration,
        build_subclasses=build_subclasses,
        check=lambda array: _check_multiple(array, microseconds),
    )


def _time(precision: int) -> PlainType:
    def build(values: Values, arrow: pa.DataType) -> pa.Array:
        if set(map(attrgetter("tzinfo"), filter(None, values))) - {None}:
            raise InvalidValueError("the time has a time zone, which would be lost")
        return pa.array(values, arrow)

    return PlainType(
        f"a time without a time zone, with at most {precision} digits after the second",
        frozenset({dt.time}),
        lambda kind: issubclass(kind, dt.time),
        at.is_time,
        build=build,
        build_subclasses=build,
        check=lambda array: _check_multiple(array, 10 ** (9 - precision)),
    )


def _check_dates(array: pa.Array) -> None:
    """Every Python date is in range, but not every Arrow date."""
    _check_range(array.view(pa.int32()), _MIN_DAYS, _MAX_DAYS)


def _check_nanoseconds(values: Values, attribute: str) -> None:
    if any(getattr(value, attribute, 0) for value in values):
        raise InvalidValueError("the value has nanoseconds; Spark stores microseconds")


def _check_range(numbers: pa.Array, smallest: int, largest: int) -> None:
    limits = pc.min_max(numbers)
    minimum, maximum = limits["min"].as_py(), limits["max"].as_py()
    if minimum is not None and (minimum < smallest or maximum > largest):
        raise InvalidValueError("the time is outside the years 1 to 9999 of UTC")


def _check_multiple(array: pa.Array, unit: int) -> None:
    """Spark would show a value that is finer than its column truncated."""
    numbers = array.view(pa.int64())
    if unit > 1 and pc.equal(pc.multiply(pc.divide(numbers, unit), unit), numbers).false_count:
        raise InvalidValueError("the value is finer than the column")


# The others


def _is_binary(arrow: pa.DataType) -> bool:
    return bool(at.is_binary(arrow) or at.is_large_binary(arrow) or at.is_fixed_size_binary(arrow)) or (
        arrow == pa.binary_view()
    )


def _is_string(arrow: pa.DataType) -> bool:
    return bool(at.is_string(arrow) or at.is_large_string(arrow)) or arrow == pa.string_view()


_OTHERS = {
    pa.bool_(): PlainType(
        "a bool", frozenset({bool}), lambda kind: _is_numpy(kind, "bool", "bool_"), at.is_boolean
    ),
    pa.float32(): PlainType(
        "a float up to 3.4e38, an infinity or NaN, or an int from -2**24 to 2**24",
        frozenset({float, int}),
        _is_float,
        _is_number,
        build=_build_float32,
        cast=_cast_float32,
        build_subclasses=_build_float32,
    ),
    pa.float64(): PlainType(
        "a float, or an int from -2**53 to 2**53", frozenset({float, int}), _is_float, _is_number
    ),
    pa.string(): PlainType(
        "a str without lone surrogates", frozenset({str}), lambda kind: issubclass(kind, str), _is_string
    ),
    pa.binary(): PlainType(
        "bytes or a bytearray",
        frozenset({bytes, bytearray}),
        lambda kind: issubclass(kind, bytes | bytearray),
        _is_binary,
    ),
    pa.date32(): PlainType(
        "a date (not a datetime) in the years 1 to 9999",
        frozenset({dt.date}),
        lambda kind: issubclass(kind, dt.date) and not issubclass(kind, dt.datetime),
        at.is_date,
        check=_check_dates,
    ),
    pa.null(): PlainType("only None", frozenset(), lambda kind: False, at.is_null),
}
