"""How JSON values become the values of each Spark type.

A value is read in two steps, because JSON has no dates, no bytes and one kind of number. The first step reads
it as the type's `read_type`: pyarrow's JSON reader does that for whole columns, or `parse` for one value. The
second step, `convert`, turns an array of the `read_type` into the column, for instance strings into dates.
Both readers must accept the same values: a record is decoded the same, whichever reads it.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, Inexact
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at

from headwater.rows.columns import PlainColumn, insert_nulls
from headwater.rows.values import NOT_NULL, InvalidValueError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["JsonType", "RawNumber", "json_type", "parse_field", "to_object"]


class RawNumber(str):
    """A JSON number as it is written. Only the type of its column tells how to parse it."""

    __slots__ = ()


class _ObjectWithDuplicates(dict[str, Any]):
    """A JSON object in which some names occur more than once: it is unclear which value counts."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs)
        self.duplicates = {name for name, count in counts.items() if count > 1}


def to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The `object_pairs_hook` of Python's JSON reader."""
    value = dict(pairs)
    return value if len(value) == len(pairs) else _ObjectWithDuplicates(pairs)


class JsonType:
    """How one type is read from JSON."""

    read_type: pa.DataType
    pyarrow_can_read = True
    """Whether pyarrow's JSON reader supports `read_type`."""
    has_decimal = False
    """Whether the type is or contains a DECIMAL: pyarrow does not read exponents in those reliably."""
    needs_conversion = True
    """Whether `convert` does anything."""
    is_final = False
    """Whether an array of `read_type` is the column: there is nothing left to convert or to check."""

    def __init__(self, nullable: bool) -> None:
        self.nullable = nullable

    def parse(self, value: Any, *, as_row: bool = False) -> Any:
        """A value of Python's JSON reader, as `read_type` has it; InvalidValueError if it does not fit.

        With `as_row` both steps are done: the value is what a row would have.
        """
        if value is not None:
            return self._parse(value, as_row)
        if not self.nullable:
            raise InvalidValueError(NOT_NULL)
        return None

    def convert(self, array: pa.Array) -> pa.Array:
        """The second step, except for checks of nulls and ranges, which are those of every column.

        Accepts an array if and only if it accepts each of its values alone.
        """
        raise NotImplementedError

    def _parse(self, value: Any, as_row: bool) -> Any:
        raise NotImplementedError


def json_type(spark: DataType, arrow: pa.DataType, nullable: bool, path: str) -> JsonType:
    """The rules for a Spark type and the Arrow type that belongs to it.

    ValueError, with the path of the column, if JSON cannot represent the type.
    """
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(spark, ArrayType):
        elements = json_type(spark.elementType, arrow.value_type, spark.containsNull, f"{path}[]")
        return _JsonArray(arrow, nullable, elements)
    if isinstance(spark, MapType):
        if not isinstance(spark.keyType, StringType):
            name = spark.keyType.simpleString().upper()
            raise ValueError(f"column {path!r} is a MAP with keys of type {name}; JSON keys are STRING")
        keys = _plain_json_type(spark.keyType, arrow.key_type, False, path)
        items = json_type(spark.valueType, arrow.item_type, spark.valueContainsNull, f"{path}.value")
        return _JsonMap(arrow, nullable, keys, items)
    if isinstance(spark, StructType):
        fields = {
            field.name: json_type(field.dataType, arrow[i].type, field.nullable, f"{path}.{field.name}")
            for i, field in enumerate(spark.fields)
        }
        return _JsonStruct(arrow, nullable, fields)
    return _plain_json_type(spark, arrow, nullable, path)


def parse_field(name: str, kind: JsonType, value: dict[str, Any], *, as_row: bool = False) -> Any:
    """A field of a JSON object, parsed. A missing field is null."""
    try:
        if type(value) is _ObjectWithDuplicates and name in value.duplicates:
            raise InvalidValueError("the field occurs more than once")
        return kind.parse(value.get(name), as_row=as_row)
    except InvalidValueError as error:
        raise error.within(f".{name}") from None


# Plain types


class _PlainJsonType(JsonType):
    """A type without parts: `parse_value` is the first step, `convert_array` the second, if there is one.

    `parse_value` may raise InvalidValueError with a reason; all other exceptions of both mean "does not fit".
    """

    def __init__(
        self,
        column: tuple[DataType, pa.DataType, bool],
        accepts: str,
        read_type: pa.DataType,
        parse_value: Callable[[Any], Any],
        convert_array: Callable[[pa.Array], pa.Array] | None = None,
    ) -> None:
        spark, arrow, nullable = column
        super().__init__(nullable)
        self.read_type = read_type
        self._accepts = f"{spark.simpleString().upper()} accepts {accepts}"
        self._column = PlainColumn(spark, arrow, True)
        self._parse_value = parse_value
        self._convert_array = convert_array
        self.has_decimal = at.is_decimal(arrow)
        self.needs_conversion = convert_array is not None
        self.is_final = not self.needs_conversion and nullable and read_type == arrow

    def convert(self, array: pa.Array) -> pa.Array:
        return array if self._convert_array is None else self._convert_array(array)

    def _parse(self, value: Any, as_row: bool) -> Any:
        try:
            parsed = self._parse_value(value)
            if as_row and self.needs_conversion:
                return self._column.cast(self.convert(pa.array([parsed], self.read_type)))[0].as_py()
        except MemoryError:
            raise
        except Exception as error:
            has_reason = isinstance(error, InvalidValueError) and str(error) not in self._accepts
            raise InvalidValueError(f"{error}; {self._accepts}" if has_reason else self._accepts) from None
        return parsed


def _plain_json_type(spark: DataType, arrow: pa.DataType, nullable: bool, path: str) -> JsonType:
    column = spark, arrow, nullable
    if at.is_boolean(arrow):
        return _PlainJsonType(column, "true or false", arrow, _expect(bool))
    if at.is_integer(arrow):
        bits, limit = arrow.bit_width, 1 << (arrow.bit_width - 1)
        accepts = f"an integer from {-limit} to {limit - 1}"
        return _PlainJsonType(column, accepts, arrow, lambda v: _parse_int(_expect(RawNumber)(v), bits))
    if at.is_floating(arrow):
        bits = arrow.bit_width
        return _PlainJsonType(
            column, "a number", pa.float64(), lambda v: _parse_float(_expect(RawNumber)(v), bits)
        )
    if at.is_decimal(arrow):
        return _json_decimal(column, arrow)
    if at.is_string(arrow):
        return _PlainJsonType(column, "a string without lone surrogates", arrow, _parse_string)
    for is_kind, accepts in _STRING_FORMATS:
        if is_kind(arrow):
            convert = _string_converter(accepts, arrow)
            return _PlainJsonType(column, accepts, pa.string(), _parse_string, convert)
    name = spark.simpleString().upper()
    raise ValueError(f"column {path!r} has type {name}, which JSON cannot represent; declare another type")


def _expect(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError
        return value

    return check


def _parse_string(value: Any) -> str:
    _expect(str)(value).encode()  # raises for lone surrogates
    return str(value)


_MAX_INT_LENGTH = 20  # a 64-bit integer with its sign


def _parse_int(number: RawNumber, bits: int) -> int:
    limit = 1 << (bits - 1)
    if not number.lstrip("-").isdigit():
        raise InvalidValueError("not an integer")
    if len(number) > _MAX_INT_LENGTH or not -limit <= int(number) < limit:
        raise InvalidValueError("out of range")
    return int(number)


def _parse_float(number: RawNumber, bits: int) -> float:
    value = float(number)
    try:
        struct.pack("<f" if bits == 32 else "<d", value)  # "f" without "<" would give an infinity
    except OverflowError:
        raise InvalidValueError("too large") from None
    if not math.isfinite(value):
        raise InvalidValueError("too large")
    return value


def _json_decimal(column: tuple[DataType, pa.DataType, bool], arrow: pa.DataType) -> JsonType:
    before, after = arrow.precision - arrow.scale, arrow.scale
    accepts = f"a number, also in a string, with up to {before} digits before the point and {after} after it"

    def parse(value: Any) -> Any:
        number = value if type(value) is RawNumber else _expect(str)(value)
        return _parse_decimal(number, arrow.precision, arrow.scale)

    # pyarrow counts the digits of the number before it adds those of the scale, so it needs more room.
    return _PlainJsonType(column, accepts, pa.decimal256(76, arrow.scale), parse)


_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)


def _parse_decimal(number: str, precision: int, scale: int) -> Decimal:
    """Of a number, or of a string with one: many services send amounts as strings to keep them exact."""
    if not _DECIMAL.fullmatch(number):
        raise InvalidValueError("not a number")
    value = Decimal(number)
    if not value:
        return Decimal(0)
    if value.adjusted() >= precision - scale:
        raise InvalidValueError("out of range")
    exact = Context(prec=2 * precision + 1, Emin=-999999999, Emax=999999999, traps=[])
    rounded = value.quantize(Decimal(1).scaleb(-scale), context=exact)
    if exact.flags[Inexact]:
        raise InvalidValueError(f"more than {scale} digits after the point")
    return rounded


# Types that JSON writes as strings

_BASE64 = "a base64 string"
_DATE = "a date such as '2024-05-31'"
_TIME = "a time such as '12:30:00.5', with microseconds at most"
_TIMESTAMP_NTZ = (
    "a date and time without a time zone such as '2024-05-31T12:30:00.5', with microseconds at most"
)
_TIMESTAMP = "a date and time with a time zone such as '2024-05-31T12:30:00.5Z', with microseconds at most"

_STRING_FORMATS: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (at.is_binary, _BASE64),
    (at.is_date, _DATE),
    (at.is_time, _TIME),
    (lambda arrow: at.is_timestamp(arrow) and arrow.tz is None, _TIMESTAMP_NTZ),
    (at.is_timestamp, _TIMESTAMP),
]

_DAY = r"\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
_OFFSET = r"(Z|[+-](0\d|1[0-8])(:?[0-5]\d)?)"
_PATTERNS = {  # pyarrow accepts more: a date as its midnight, an hour without minutes
    _DATE: _DAY,
    _TIME: _CLOCK,
    _TIMESTAMP_NTZ: rf"{_DAY}[T ]{_CLOCK}",
    _TIMESTAMP: rf"{_DAY}[T ]{_CLOCK}{_OFFSET}",
}


def _string_converter(accepts: str, arrow: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """Converts strings of that format to an array of that type."""
    if accepts == _BASE64:
        return lambda strings: pa.array(
            [None if s is None else base64.b64decode(s, validate=True) for s in strings.to_pylist()], arrow
        )
    pattern = rf"\A{_PATTERNS[accepts]}\z"

    def convert(strings: pa.Array) -> pa.Array:
        if not pc.all(pc.match_substring_regex(strings, pattern), min_count=0).as_py():
            raise InvalidValueError(accepts)
        if accepts == _TIME:  # pyarrow requires seconds
            strings = pc.replace_substring_regex(strings, r"\A(\d\d:\d\d)\z", r"\1:00").cast(pa.time64("us"))
        return strings.cast(arrow)

    return convert


# Nested types


class _NestedJsonType(JsonType):
    """An array, map or struct. `convert` sets nulls aside, and converts the parts of the other values."""

    def __init__(self, arrow: pa.DataType, read_type: pa.DataType, nullable: bool, *parts: JsonType) -> None:
        super().__init__(nullable)
        self.read_type = read_type
        self.pyarrow_can_read = all(part.pyarrow_can_read for part in parts)
        self.has_decimal = any(part.has_decimal for part in parts)
        self.needs_conversion = any(part.needs_conversion for part in parts)
        self.is_final = nullable and read_type == arrow and all(part.is_final for part in parts)

    def convert(self, array: pa.Array) -> pa.Array:
        if not self.needs_conversion:
            return array
        if array.null_count:
            return insert_nulls(self._convert(array.drop_null()), array.is_valid())
        return self._convert(array)

    def _convert(self, array: pa.Array) -> pa.Array:
        raise NotImplementedError


class _JsonArray(_NestedJsonType):
    def __init__(self, arrow: pa.DataType, nullable: bool, elements: JsonType) -> None:
        super().__init__(arrow, pa.list_(_read_field(arrow.value_field, elements)), nullable, elements)
        self._elements = elements

    def _parse(self, value: Any, as_row: bool) -> Any:
        if type(value) is not list:
            raise InvalidValueError("ARRAY accepts a JSON array")
        elements = []
        for i, element in enumerate(value):
            try:
                elements.append(self._elements.parse(element, as_row=as_row))
            except InvalidValueError as error:
                raise error.within(f"[{i}]") from None
        return elements

    def _convert(self, array: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(array.offsets, self._elements.convert(array.values))


class _JsonMap(_NestedJsonType):
    def __init__(self, arrow: pa.DataType, nullable: bool, keys: JsonType, items: JsonType) -> None:
        super().__init__(arrow, pa.map_(keys.read_type, items.read_type), nullable, keys, items)
        self._keys = keys
        self._items = items
        self.pyarrow_can_read = False  # it reads maps from arrays of pairs

    def _parse(self, value: Any, as_row: bool) -> Any:
        if not isinstance(value, dict):
            raise InvalidValueError("MAP accepts a JSON object")
        if type(value) is _ObjectWithDuplicates:
            raise InvalidValueError(f"the key {min(value.duplicates)!r} occurs more than once")
        pairs = []
        for key, item in value.items():
            try:
                pairs.append((self._keys.parse(key), self._items.parse(item, as_row=as_row)))
            except InvalidValueError as error:
                raise error.within(f"[{key!r}]") from None
        return dict(pairs) if as_row else pairs

    def _convert(self, array: pa.Array) -> pa.Array:
        return pa.MapArray.from_arrays(array.offsets, array.keys, self._items.convert(array.items))


class _JsonStruct(_NestedJsonType):
    def __init__(self, arrow: pa.DataType, nullable: bool, fields: dict[str, JsonType]) -> None:
        read_type = pa.struct([_read_field(arrow[i], part) for i, part in enumerate(fields.values())])
        super().__init__(arrow, read_type, nullable, *fields.values())
        self._fields = fields

    def _parse(self, value: Any, as_row: bool) -> Any:
        if not isinstance(value, dict):
            raise InvalidValueError("STRUCT accepts a JSON object")
        return {name: parse_field(name, part, value, as_row=as_row) for name, part in self._fields.items()}

    def _convert(self, array: pa.Array) -> pa.Array:
        fields = zip(self._fields.values(), array.flatten(), strict=True)
        return pa.StructArray.from_arrays([part.convert(a) for part, a in fields], names=list(self._fields))


def _read_field(field: pa.Field, part: JsonType) -> pa.Field:
    """Nullable while it is read; nulls are checked later."""
    return field.with_type(part.read_type).with_nullable(True)
