"""What fits columns of plain values: of which Python types, of which Arrow types, within which limits.

The types of values are looked at first. pyarrow alone would take 1.5 for the integer 1, bytes for a string
and a datetime for its day, and that silently.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as at

from headwater._rows.bad_rows import Refused
from headwater._rows.temporal import dates, instants, local_times, spans, times

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["Leaf", "leaf"]

Values = Sequence[object]


def _accept(array: pa.Array) -> None:
    pass


@dataclass(frozen=True)
class Leaf:
    """One kind of plain value. All that makes or looks at arrays raises for values outside of its limits.

    Most values are of the `exact` types; subclasses and numpy's own are asked for with `fits`, and a column
    with such in it is made by `build_others`.
    """

    takes: str
    exact: frozenset[type]
    fits: Callable[[type], bool]
    casts: Callable[[pa.DataType], bool]
    build: Callable[[Values, pa.DataType], pa.Array] = pa.array
    cast: Callable[[pa.Array, pa.DataType], pa.Array] = pa.Array.cast
    check: Callable[[pa.Array], None] = _accept
    build_others: Callable[[Values, pa.DataType], pa.Array] = pa.array


def leaf(kind: "DataType", arrow: pa.DataType) -> Leaf:
    """What fits a column of this type."""
    if at.is_integer(arrow):
        return _integers(arrow.bit_width)
    if at.is_decimal(arrow):
        return _decimals(arrow.precision, arrow.scale)
    if at.is_timestamp(arrow):
        return _timestamps(arrow)
    if at.is_duration(arrow):
        return _durations(kind)
    if at.is_time(arrow):
        return _times(getattr(kind, "precision", 6))
    return _PLAIN[arrow]


def _numpy(kind: type, *names: str) -> bool:
    """Asked by name: numpy need not be there."""
    return any(base.__module__ == "numpy" and base.__name__ in names for base in kind.__mro__)


def _is_int(kind: type) -> bool:
    return (issubclass(kind, int) and kind is not bool) or _numpy(kind, "integer")


def _is_float(kind: type) -> bool:
    return issubclass(kind, float) or _numpy(kind, "float16", "float32") or _is_int(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(at.is_integer(kind) or at.is_floating(kind))


def _integers(bits: int) -> Leaf:
    limit = 2 ** (bits - 1)
    return Leaf(f"an int from {-limit} to {limit - 1}", frozenset({int}), _is_int, at.is_integer)


def _decimals(precision: int, scale: int) -> Leaf:
    def cast(array: pa.Array, arrow: pa.DataType) -> pa.Array:
        # Integers need room for their largest value on the way, whatever is in the column.
        return (array.cast(pa.decimal256(76, scale)) if at.is_integer(array.type) else array).cast(arrow)

    return Leaf(
        f"a Decimal or int with at most {precision - scale} digits before the point and {scale} after it",
        frozenset({int, Decimal}),
        lambda kind: issubclass(kind, Decimal) or (issubclass(kind, int) and kind is not bool),
        lambda source: at.is_decimal(source) or at.is_integer(source),
        cast=cast,
    )


def _timestamps(arrow: pa.DataType) -> Leaf:
    temporal = local_times if arrow.tz is None else instants
    if arrow.tz is None:
        takes = "a datetime without a zone; one with a zone belongs into a TIMESTAMP column"
    else:
        takes = (
            "a datetime with a zone, for instance datetime.now(timezone.utc); without one, use TIMESTAMP_NTZ"
        )
    return Leaf(
        f"{takes}; in the years 1 to 9999 of UTC, to the microsecond",
        frozenset({dt.datetime}),
        lambda kind: issubclass(kind, dt.datetime) and kind.__name__ != "NaTType",
        lambda source: at.is_timestamp(source) and (source.tz is None) == (arrow.tz is None),
        build=temporal.build,
        check=temporal.check,
        build_others=temporal.build_others,
    )


def _durations(kind: "DataType") -> Leaf:
    unit = ("days", "hours", "minutes", "microseconds")[getattr(kind, "endField", 3)]
    days = 106751991
    return Leaf(
        f"a timedelta of whole {unit}, up to {days} days",
        frozenset({dt.timedelta}),
        lambda kind: issubclass(kind, dt.timedelta),
        at.is_duration,
        build_others=spans.build_others,
        check=lambda array: spans.check_whole(
            array, dt.timedelta(**{unit: 1}) // dt.timedelta(microseconds=1)
        ),
    )


def _times(precision: int) -> Leaf:
    return Leaf(
        f"a time without a zone, with at most {precision} digits after the second",
        frozenset({dt.time}),
        lambda kind: issubclass(kind, dt.time),
        at.is_time,
        build=times.build,
        build_others=times.build,
        check=lambda array: times.check_whole(array, 10 ** (9 - precision)),
    )


def _build_float32(values: Values, arrow: pa.DataType) -> pa.Array:
    return _finite(pa.array(values, arrow), lambda: pa.array(values, pa.float64()))


def _cast_float32(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    return _finite(array.cast(arrow), lambda: array.cast(pa.float64()))


def _finite(array: pa.Array, wide: Callable[[], pa.Array]) -> pa.Array:
    """A float takes the nearest value there is, as everywhere; but infinity is not near any."""
    import pyarrow.compute as pc

    infinite = pc.is_inf(array)
    if infinite.true_count and infinite.true_count > pc.is_inf(wide()).true_count:
        raise Refused("the value is too large")
    return array


def _is_binary(kind: pa.DataType) -> bool:
    return bool(at.is_binary(kind) or at.is_large_binary(kind) or at.is_fixed_size_binary(kind)) or (
        kind == pa.binary_view()
    )


def _is_string(kind: pa.DataType) -> bool:
    return bool(at.is_string(kind) or at.is_large_string(kind)) or kind == pa.string_view()


_PLAIN = {
    pa.bool_(): Leaf("a bool", frozenset({bool}), lambda kind: _numpy(kind, "bool", "bool_"), at.is_boolean),
    pa.float32(): Leaf(
        "a float up to 3.4e38, an infinity or NaN, or an int from -2**24 to 2**24",
        frozenset({float, int}), _is_float, _is_number, _build_float32, _cast_float32,
        build_others=_build_float32,
    ),
    pa.float64(): Leaf(
        "a float, or an int from -2**53 to 2**53", frozenset({float, int}), _is_float, _is_number
    ),
    pa.string(): Leaf(
        "a str of whole characters (no lone surrogates)",
        frozenset({str}), lambda kind: issubclass(kind, str), _is_string,
    ),
    pa.binary(): Leaf(
        "bytes or a bytearray",
        frozenset({bytes, bytearray}), lambda kind: issubclass(kind, bytes | bytearray), _is_binary,
    ),
    pa.date32(): Leaf(
        "a date (a datetime is none) in the years 1 to 9999",
        frozenset({dt.date}), lambda kind: issubclass(kind, dt.date) and not issubclass(kind, dt.datetime),
        at.is_date, check=dates.check,
    ),
    pa.null(): Leaf("None alone", frozenset(), lambda kind: False, at.is_null),
}  # fmt: skip
