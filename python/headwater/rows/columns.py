"""Columns of Python or Arrow values, converted to Arrow arrays of exactly the type of the schema."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate, chain, repeat
from operator import attrgetter, sub
from typing import TYPE_CHECKING, Any, Protocol
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at

from headwater.rows.bad_values import Blame, Refused
from headwater.rows.records import Records, Values

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = [
    "NULL",
    "Column",
    "Leaf",
    "PlainColumn",
    "column",
    "dates",
    "fits",
    "instants",
    "leaf",
    "local_times",
    "misfits",
    "spans",
    "spread",
    "times",
]

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


def leaf(kind: DataType, arrow: pa.DataType) -> Leaf:
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


def _durations(kind: DataType) -> Leaf:
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


NULL = "a null, where the column is NOT NULL"
_MISFITS = (pa.ArrowException, OverflowError, UnicodeError)


class Column(Protocol):
    """What a column of the schema, or of a part of it, can do."""

    nullable: bool

    def build(self, values: Values) -> pa.Array:
        """Of Python values."""

    def cast(self, array: pa.Array) -> pa.Array:
        """Of an Arrow array of this type, or of one that can become it without loss."""

    def explain(self, value: object) -> Blame:
        """Why `build` refuses this value."""


class PlainColumn:
    """A column of values without parts."""

    def __init__(self, kind: DataType, arrow: pa.DataType, nullable: bool) -> None:
        self.nullable = nullable
        self._name = kind.simpleString().upper()
        self._arrow = arrow
        self._leaf = leaf(kind, arrow)
        self._exact = self._leaf.exact | ({type(None)} if nullable else set())

    def build(self, values: Values) -> pa.Array:
        others = set(map(type, values)) - self._exact
        for kind in others:
            if kind is type(None):
                raise Refused(NULL)
            if not self._leaf.fits(kind):
                raise Refused(f"{kind.__name__} does not fit")
        array = (self._leaf.build_others if others else self._leaf.build)(values, self._arrow)
        if isinstance(array, pa.ChunkedArray):
            raise Refused("the values of these rows are together larger than 2 GB; give fewer rows at a time")
        self._leaf.check(array)
        return array

    def cast(self, array: pa.Array) -> pa.Array:
        if at.is_dictionary(array.type):
            array = array.dictionary_decode()
        if array.null_count and not self.nullable:
            raise Refused(NULL)
        if array.type != self._arrow:
            if at.is_null(array.type):
                return pa.nulls(len(array), self._arrow)
            if not self._leaf.casts(array.type):
                return self.build(array.to_pylist())
            array = self._leaf.cast(array, self._arrow)
        array.validate()  # in full it would read every byte, to find what pyarrow itself never makes
        self._leaf.check(array)
        return array

    def explain(self, value: object) -> Blame:
        reason = "the value does not fit"
        try:
            self.build([value])
        except Refused as refusal:
            reason = str(refusal)
        except _MISFITS:
            pass  # what pyarrow says is about its own types
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        return Blame("", value, f"{reason}; {self._name} takes {self._leaf.takes}")


def fits(action: Callable[[Any], object], values: Any) -> bool:
    """Whether `action` takes the values.

    Any exception is a no, but for one: foreign code may run in it, that of a `tzinfo` or a property.
    """
    try:
        action(values)
    except MemoryError:
        raise
    except Exception:
        return False
    return True


def misfits(action: Callable[[Any], object], values: Any, first: int = 0) -> Iterator[int]:
    """The places of what `action` does not take, by halves: where few are bad, few tries find them."""
    if len(values) == 0 or fits(action, values):
        return
    if len(values) == 1:
        yield first
        return
    half = len(values) // 2
    yield from misfits(action, values[:half], first)
    yield from misfits(action, values[half:], first + half)


def spread(dense: pa.Array, valid: Iterable[bool] | pa.Array) -> pa.Array:
    """The values with nulls between them: `valid` says where a value is."""
    mask = pa.array(valid, pa.bool_())
    places = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return dense.take(pc.if_else(mask, places, None))


Parts = Iterable[tuple[str, object, Column]]


def column(kind: DataType, arrow: pa.DataType, nullable: bool) -> Column:
    """The column of a Spark type and of the Arrow type that belongs to it."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return _Arrays(arrow, nullable, column(kind.elementType, arrow.value_type, kind.containsNull))
    if isinstance(kind, MapType):
        keys = column(kind.keyType, arrow.key_type, False)
        return _Maps(arrow, nullable, keys, column(kind.valueType, arrow.item_type, kind.valueContainsNull))
    if isinstance(kind, StructType):
        kinds = [field.dataType for field in kind.fields]
        children = [column(part, arrow[i].type, arrow[i].nullable) for i, part in enumerate(kinds)]
        return _Structs(arrow, nullable, dict(zip(kind.names, children, strict=True)))
    return PlainColumn(kind, arrow, nullable)


class _Nested:
    """What the three share: nulls are set aside, and the others come apart."""

    def __init__(self, arrow: pa.DataType, nullable: bool) -> None:
        self.nullable = nullable
        self._arrow = arrow

    def build(self, values: Values) -> pa.Array:
        if type(None) not in set(map(type, values)):
            return self._build(values)
        if not self.nullable:
            raise Refused(NULL)
        dense = self._build([value for value in values if value is not None])
        return spread(dense, [value is not None for value in values])

    def cast(self, array: pa.Array) -> pa.Array:
        if array.null_count and not self.nullable:
            raise Refused(NULL)
        if array.null_count == len(array):
            return pa.nulls(len(array), self._arrow)
        if not self._casts(array.type):
            raise Refused(f"Arrow's {array.type} does not fit {self._arrow}")
        if array.null_count:
            return spread(self._cast(array.drop_null()), array.is_valid())
        return self._cast(array)

    def explain(self, value: object) -> Blame:
        try:
            if value is None:
                raise Refused(NULL)
            parts = list(self._parts(value))
        except Refused as refusal:
            return Blame("", value, str(refusal))
        for path, part, child in parts:
            if not fits(child.build, [part]):
                inner = child.explain(part)
                return inner._replace(path=path + inner.path)
        return Blame("", value, "the value does not fit")

    def _build(self, values: Values) -> pa.Array:
        raise NotImplementedError

    def _casts(self, source: pa.DataType) -> bool:
        raise NotImplementedError

    def _cast(self, array: pa.Array) -> pa.Array:
        raise NotImplementedError

    def _parts(self, value: object) -> Parts:
        raise NotImplementedError


class _Arrays(_Nested):
    def __init__(self, arrow: pa.DataType, nullable: bool, elements: Column) -> None:
        super().__init__(arrow, nullable)
        self._elements = elements

    def _build(self, values: Values) -> pa.Array:
        lists = _of_kinds(values, (list, tuple), "an ARRAY takes a list or a tuple")
        elements = self._elements.build(list(chain.from_iterable(lists)))
        return pa.ListArray.from_arrays(_offsets(map(len, lists)), elements, type=self._arrow)

    def _casts(self, source: pa.DataType) -> bool:
        kinds = (at.is_list, at.is_large_list, at.is_fixed_size_list, at.is_list_view, at.is_large_list_view)
        return any(is_kind(source) for is_kind in kinds)

    def _cast(self, array: pa.Array) -> pa.Array:
        elements, lengths = self._elements.cast(array.flatten()), pc.list_value_length(array)
        return pa.ListArray.from_arrays(_offsets(lengths.to_pylist()), elements, type=self._arrow)

    def _parts(self, value: object) -> Parts:
        (elements,) = _of_kinds([value], (list, tuple), "an ARRAY takes a list or a tuple")
        return ((f"[{i}]", element, self._elements) for i, element in enumerate(elements))


class _Maps(_Nested):
    def __init__(self, arrow: pa.DataType, nullable: bool, keys: Column, values: Column) -> None:
        super().__init__(arrow, nullable)
        self._keys = keys
        self._values = values

    def _build(self, values: Values) -> pa.Array:
        maps = _of_kinds(values, (dict,), "a MAP takes a dict")
        keys = self._keys.build(list(chain.from_iterable(maps)))
        items = self._values.build(list(chain.from_iterable(map(dict.values, maps))))
        return pa.MapArray.from_arrays(_offsets(map(len, maps)), keys, items, type=self._arrow)

    def _casts(self, source: pa.DataType) -> bool:
        return bool(at.is_map(source))

    def _cast(self, array: pa.Array) -> pa.Array:
        # A slice of a map array still has the keys and items of all of it.
        places = array.offsets.to_pylist()
        keys, items = (part.slice(places[0], places[-1] - places[0]) for part in (array.keys, array.items))
        offsets = pa.array([place - places[0] for place in places], pa.int32())
        return pa.MapArray.from_arrays(
            offsets, self._keys.cast(keys), self._values.cast(items), type=self._arrow
        )

    def _parts(self, value: object) -> Parts:
        (pairs,) = _of_kinds([value], (dict,), "a MAP takes a dict")
        for key, item in pairs.items():
            yield ".key", key, self._keys
            yield f"[{key!r}]", item, self._values


class _Structs(_Nested):
    def __init__(self, arrow: pa.DataType, nullable: bool, children: Mapping[str, Column]) -> None:
        super().__init__(arrow, nullable)
        self._children = children
        self._records = Records(list(children))

    def _build(self, values: Values) -> pa.Array:
        columns = zip(self._children.values(), self._records.split(values), strict=True)
        return self._of_arrays([child.build(part) for child, part in columns])

    def _casts(self, source: pa.DataType) -> bool:
        return bool(at.is_struct(source))

    def _cast(self, array: pa.Array) -> pa.Array:
        names = [field.name for field in array.type]
        found = dict(zip(names, array.flatten(), strict=True))
        self._records.check_keys(names)
        nothing = pa.nulls(len(array))
        return self._of_arrays(
            [child.cast(found.get(name, nothing)) for name, child in self._children.items()]
        )

    def _of_arrays(self, arrays: list[pa.Array]) -> pa.Array:
        return pa.StructArray.from_arrays(arrays, fields=list(self._arrow))

    def _parts(self, value: object) -> Parts:
        columns = zip(self._children.items(), self._records.split([value]), strict=True)
        return [(f".{name}", part[0], child) for (name, child), part in columns]


def _of_kinds(values: Values, kinds: tuple[type, ...], wanted: str) -> list[Any]:
    """The values, all of these types. A tuple with names is a struct, and no array."""
    for kind in set(map(type, values)):
        if not issubclass(kind, kinds) or hasattr(kind, "_fields"):
            raise Refused(f"{kind.__name__} does not fit; {wanted}")
    return list(values)


def _offsets(lengths: Iterable[int]) -> pa.Array:
    return pa.array(accumulate(lengths, initial=0), pa.int32())
