"""JSON records to Arrow columns."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal, Inexact
from json import JSONDecodeError, loads
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.types as at

from headwater.rows.bad_values import Refused
from headwater.rows.columns import PlainColumn, column, misfits, spread
from headwater.rows.records import in_one_piece
from headwater.schema import arrow_schema
from headwater.source import BadRow

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "BYTES",
    "DAY",
    "INSTANT",
    "LOCAL",
    "NULL",
    "TIME",
    "Given",
    "JsonDecoder",
    "LeafShape",
    "Misfit",
    "Number",
    "Piece",
    "RecordDecoder",
    "Repeated",
    "Shape",
    "as_object",
    "leaf_shape",
    "may_be_deep",
    "one_by_one",
    "parsed",
    "python_rows",
    "python_value",
    "read_texts",
    "shape",
    "take_field",
    "to_decimal",
    "to_float",
    "to_int",
]

_REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_LONGEST = 20  # characters of a whole number of 64 bits, with its sign


class Number(str):
    """A number of a JSON text: not read yet, since only its column knows what it should be."""

    __slots__ = ()


def to_int(text: Number, bits: int) -> int:
    limit = 1 << (bits - 1)
    if not text.lstrip("-").isdigit():
        raise Refused("it is not a whole number")
    if len(text) > _LONGEST or not -limit <= int(text) < limit:
        raise Refused("it is out of range")
    return int(text)


def to_float(text: Number, bits: int) -> float:
    number = float(text)
    try:
        struct.pack("<f" if bits == 32 else "<d", number)  # "f" alone would give an infinity
    except OverflowError:
        raise Refused("it is too large") from None
    if not math.isfinite(number):
        raise Refused("it is too large")
    return number


def to_decimal(text: str, precision: int, scale: int) -> Decimal:
    """Of a number, or of a string that writes one: many put money into strings, to keep it exact."""
    if not _REAL.fullmatch(text):
        raise Refused("it is no number")
    value = Decimal(text)
    if not value:
        return Decimal(0)
    if value.adjusted() >= precision - scale:
        raise Refused("it is out of range")
    exact = Context(prec=2 * precision + 1, Emin=-999999999, Emax=999999999, traps=[])
    rounded = value.quantize(Decimal(1).scaleb(-scale), context=exact)
    if exact.flags[Inexact]:
        raise Refused(f"it has more than {scale} digits after the point")
    return rounded


_DATE = r"\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
_ZONE = r"(Z|[+-](0\d|1[0-8])(:?[0-5]\d)?)"

DAY = "a date such as '2024-05-31'"
TIME = "a time such as '12:30:00.5', to the microsecond at most"
LOCAL = "a date and time without a zone such as '2024-05-31T12:30:00.5', to the microsecond at most"
INSTANT = "a date and time with a zone such as '2024-05-31T12:30:00.5Z', to the microsecond at most"
BYTES = "a text in base64"

_FORMS = {  # Arrow alone would read more than that: a day for its midnight, an hour without minutes
    DAY: _DATE,
    TIME: _CLOCK,
    LOCAL: rf"{_DATE}[T ]{_CLOCK}",
    INSTANT: rf"{_DATE}[T ]{_CLOCK}{_ZONE}",
}


def read_texts(what: str, texts: pa.Array, arrow: pa.DataType) -> pa.Array:
    """The column that the texts stand for; an exception where one of them is none of `what`."""
    if what == BYTES:
        return _from_base64(texts, arrow)
    if not pc.all(pc.match_substring_regex(texts, rf"\A{_FORMS[what]}\z"), min_count=0).as_py():
        raise Refused(what)
    if what == TIME:  # Arrow wants the seconds
        texts = pc.replace_substring_regex(texts, r"\A(\d\d:\d\d)\z", r"\1:00").cast(pa.time64("us"))
    return texts.cast(arrow)


def _from_base64(texts: pa.Array, arrow: pa.DataType) -> pa.Array:
    decoded = [None if t is None else base64.b64decode(t, validate=True) for t in texts.to_pylist()]
    return pa.array(decoded, arrow)


Given: TypeAlias = Sequence[bytes] | pa.Array
"""Records one by one, or as a column: of binaries, or of strings, which are known to be in UTF-8 then."""

Piece: TypeAlias = pa.RecordBatch | BadRow | list[tuple[Any, ...]]
"""Of several records a row each; of one that is bad; of one that gave so many rows."""


class RecordDecoder(Protocol):
    """How records become rows."""

    schema: Any

    def pieces(self, records: Given) -> Iterator[Piece]:
        """In the order of the records. What becomes of a record does not depend on those around it."""


def one_by_one(records: Given) -> Sequence[bytes]:
    if not isinstance(records, pa.Array):
        return records
    found: list[bytes] = records.cast(pa.binary()).to_pylist()
    return found


def python_rows(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    columns = [
        [python_value(value) for value in array] if _has_map(array.type) else array.to_pylist()
        for array in batch.columns
    ]
    return list(zip(*columns, strict=True))


def python_value(scalar: Any) -> Any:
    """As a row has it: a map is a dict, also where pyarrow would give pairs."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if at.is_map(kind):
        return {python_value(entry[0]): python_value(entry[1]) for entry in scalar.values}
    if at.is_struct(kind):
        return {kind[i].name: python_value(scalar[i]) for i in range(kind.num_fields)}
    if at.is_list(kind):
        return [python_value(item) for item in scalar.values]
    return scalar.as_py()


def _has_map(kind: pa.DataType) -> bool:
    return bool(at.is_map(kind)) or any(_has_map(kind.field(i).type) for i in range(kind.num_fields))


NULL = "null, where the field is NOT NULL"


class Misfit(Exception):  # noqa: N818
    """A value that does not fit: where it is in the record, and why. It does not leave this package."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def within(self, path: str) -> Misfit:
        return Misfit(self.reason, path + self.path)


class Shape:
    """One type, and whether a null may be there."""

    carrier: pa.DataType
    is_fast = True
    """Whether pyarrow can read the carrier."""
    has_decimal = False
    """Whether there is a DECIMAL in it: pyarrow cannot be trusted with exponents in those."""
    is_done = False
    """Whether there is no second step of its own."""
    is_settled = False
    """Whether the carrier is the column, to the letter: nothing is left to do or to check."""

    def __init__(self, nullable: bool) -> None:
        self.nullable = nullable

    def take(self, value: Any, *, whole: bool = False) -> Any:
        """A value that Python's json gave, as the carrier has it; Misfit where it does not fit.

        With `whole` it is what a row has, and what only the second step sees is looked at, too.
        """
        if value is not None:
            return self._take(value, whole)
        if not self.nullable:
            raise Misfit(NULL)
        return None

    def finish(self, array: pa.Array) -> pa.Array:
        """The second step, but for nulls and ranges, which `_rows` checks.

        It takes a column if and only if it takes each value of it alone.
        """
        raise NotImplementedError

    def _take(self, value: Any, whole: bool) -> Any:
        raise NotImplementedError


class LeafShape(Shape):
    """A type without parts. `read` may raise Refused, and what raises in `step` is not said to anyone."""

    def __init__(
        self,
        column: tuple[DataType, pa.DataType, bool],
        takes: str,
        carrier: pa.DataType,
        read: Callable[[Any], Any],
        step: Callable[[pa.Array], pa.Array] | None = None,
    ) -> None:
        kind, arrow, nullable = column
        super().__init__(nullable)
        self.carrier = carrier
        self._takes = f"{kind.simpleString().upper()} takes {takes}"
        self._column = PlainColumn(kind, arrow, True)
        self._read = read
        self._step = step
        self.has_decimal = at.is_decimal(arrow)
        self.is_done = step is None
        self.is_settled = self.is_done and nullable and carrier == arrow

    def finish(self, array: pa.Array) -> pa.Array:
        return array if self._step is None else self._step(array)

    def _take(self, value: Any, whole: bool) -> Any:
        try:
            taken = self._read(value)
            if whole and not self.is_done:
                return self._column.cast(self.finish(pa.array([taken], self.carrier)))[0].as_py()
        except MemoryError:
            raise
        except Exception as error:
            why = f"{error}; " if type(error) is Refused and str(error) not in self._takes else ""
            raise Misfit(f"{why}{self._takes}") from None
        return taken


def leaf_shape(kind: DataType, arrow: pa.DataType, nullable: bool, path: str) -> Shape:
    """The shape of a type without parts; ValueError for one that JSON cannot carry."""
    column = kind, arrow, nullable
    if at.is_boolean(arrow):
        return LeafShape(column, "true or false", arrow, _only(bool))
    if at.is_integer(arrow):
        limit = 1 << (arrow.bit_width - 1)
        takes = f"a whole number from {-limit} to {limit - 1}"
        return LeafShape(column, takes, arrow, lambda v: to_int(_only(Number)(v), arrow.bit_width))
    if at.is_floating(arrow):
        bits = arrow.bit_width
        return LeafShape(column, "a number", pa.float64(), lambda v: to_float(_only(Number)(v), bits))
    if at.is_decimal(arrow):
        return _decimal(column, arrow)
    if at.is_string(arrow):
        return LeafShape(column, "a string of whole characters", arrow, _text)
    what = next((what for is_kind, what in _IN_TEXTS if is_kind(arrow)), None)
    if what is not None:
        return LeafShape(column, what, pa.string(), _text, lambda a: read_texts(what, a, arrow))
    name = kind.simpleString().upper()
    raise ValueError(f"column {path!r} is of type {name}, for which JSON has nothing; declare another type")


def _decimal(column: tuple[DataType, pa.DataType, bool], arrow: pa.DataType) -> Shape:
    before, after = arrow.precision - arrow.scale, arrow.scale
    takes = f"a number, also in a string, with up to {before} digits before the point and {after} after it"

    def read(value: Any) -> Any:
        text = value if type(value) is Number else _only(str)(value)
        return to_decimal(text, arrow.precision, arrow.scale)

    # pyarrow counts the digits of a number, and not those that its column's scale adds: it needs the room.
    return LeafShape(column, takes, pa.decimal256(76, arrow.scale), read)


def _only(wanted: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not wanted:
            raise TypeError
        return value

    return read


def _text(value: Any) -> str:
    _only(str)(value).encode()  # a str may have lone surrogates
    return str(value)


_IN_TEXTS: list[tuple[Callable[[pa.DataType], bool], str]] = [
    (at.is_binary, BYTES),
    (at.is_date, DAY),
    (at.is_time, TIME),
    (lambda arrow: at.is_timestamp(arrow) and arrow.tz is None, LOCAL),
    (at.is_timestamp, INSTANT),
]


class Repeated(dict[str, Any]):
    """An object of JSON that has some names more than once: which value counts, nobody has said."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.names = {name for name in self if names.count(name) > 1}


def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What Python's json makes of an object."""
    made = dict(pairs)
    return made if len(made) == len(pairs) else Repeated(pairs)


def shape(kind: DataType, arrow: pa.DataType, nullable: bool, path: str) -> Shape:
    """The shape of a Spark type and of the Arrow type that belongs to it; ValueError where JSON has none."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, ArrayType):
        elements = shape(kind.elementType, arrow.value_type, kind.containsNull, f"{path}[]")
        return _Arrays(arrow, nullable, elements)
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            what = kind.keyType.simpleString().upper()
            raise ValueError(f"column {path!r} is a MAP with keys of type {what}; those of JSON are STRING")
        values = shape(kind.valueType, arrow.item_type, kind.valueContainsNull, f"{path}.value")
        return _Maps(arrow, nullable, leaf_shape(kind.keyType, arrow.key_type, False, path), values)
    if isinstance(kind, StructType):
        parts = {
            field.name: shape(field.dataType, arrow[i].type, field.nullable, f"{path}.{field.name}")
            for i, field in enumerate(kind.fields)
        }
        return _Structs(arrow, nullable, parts)
    return leaf_shape(kind, arrow, nullable, path)


def take_field(name: str, part: Shape, value: dict[str, Any], *, whole: bool = False) -> Any:
    """What that field of an object is as a carrier. One that is not there is a null."""
    try:
        if type(value) is Repeated and name in value.names:
            raise Misfit("it is there more than once")
        return part.take(value.get(name), whole=whole)
    except Misfit as misfit:
        raise misfit.within(f".{name}") from None


def _carrier(field: pa.Field, part: Shape) -> pa.Field:
    """Nulls are looked for later."""
    return field.with_type(part.carrier).with_nullable(True)


class _Nested(Shape):
    """What the three share: nulls are set aside for the second step."""

    def __init__(self, arrow: pa.DataType, carrier: pa.DataType, nullable: bool, *parts: Shape) -> None:
        super().__init__(nullable)
        self.carrier = carrier
        self.is_fast = all(part.is_fast for part in parts)
        self.has_decimal = any(part.has_decimal for part in parts)
        self.is_done = all(part.is_done for part in parts)
        self.is_settled = nullable and carrier == arrow and all(part.is_settled for part in parts)

    def finish(self, array: pa.Array) -> pa.Array:
        if self.is_done:
            return array
        if array.null_count:
            return spread(self._finish(array.drop_null()), array.is_valid())
        return self._finish(array)

    def _finish(self, array: pa.Array) -> pa.Array:
        raise NotImplementedError


class _Arrays(_Nested):
    def __init__(self, arrow: pa.DataType, nullable: bool, elements: Shape) -> None:
        carrier = pa.list_(_carrier(arrow.value_field, elements))
        super().__init__(arrow, carrier, nullable, elements)
        self._elements = elements

    def _take(self, value: Any, whole: bool) -> Any:
        if type(value) is not list:
            raise Misfit("an ARRAY takes an array")
        taken = []
        for i, element in enumerate(value):
            try:
                taken.append(self._elements.take(element, whole=whole))
            except Misfit as misfit:
                raise misfit.within(f"[{i}]") from None
        return taken

    def _finish(self, array: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(array.offsets, self._elements.finish(array.values))


class _Maps(_Nested):
    def __init__(self, arrow: pa.DataType, nullable: bool, keys: Shape, values: Shape) -> None:
        super().__init__(arrow, pa.map_(keys.carrier, values.carrier), nullable, keys, values)
        self._keys = keys
        self._values = values
        self.is_fast = False  # pyarrow reads maps as arrays of pairs

    def _take(self, value: Any, whole: bool) -> Any:
        if not isinstance(value, dict):
            raise Misfit("a MAP takes an object")
        if type(value) is Repeated:
            raise Misfit(f"the key {min(value.names)!r} is there more than once")
        taken = []
        for key, item in value.items():
            try:
                taken.append((self._keys.take(key), self._values.take(item, whole=whole)))
            except Misfit as misfit:
                raise misfit.within(f"[{key!r}]") from None
        return dict(taken) if whole else taken

    def _finish(self, array: pa.Array) -> pa.Array:
        return pa.MapArray.from_arrays(array.offsets, array.keys, self._values.finish(array.items))


class _Structs(_Nested):
    def __init__(self, arrow: pa.DataType, nullable: bool, parts: dict[str, Shape]) -> None:
        carrier = pa.struct([_carrier(arrow[i], part) for i, part in enumerate(parts.values())])
        super().__init__(arrow, carrier, nullable, *parts.values())
        self._parts = parts

    def _take(self, value: Any, whole: bool) -> Any:
        if not isinstance(value, dict):
            raise Misfit("a STRUCT takes an object")
        return {name: take_field(name, part, value, whole=whole) for name, part in self._parts.items()}

    def _finish(self, array: pa.Array) -> pa.Array:
        columns = zip(self._parts.values(), array.flatten(), strict=True)
        return pa.StructArray.from_arrays([part.finish(a) for part, a in columns], names=list(self._parts))


_DEEPEST = 500
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def parsed(record: bytes) -> dict[str, Any]:
    """The object that a record is; Misfit where it is none."""
    if not record:
        raise Misfit("it is blank, and not a JSON object")
    if record.startswith(b"\xef\xbb\xbf"):
        raise Misfit("it begins with a byte order mark, and not with a JSON object")
    if may_be_deep(record) and _depth(record) > _DEEPEST:
        raise Misfit(f"it is nested more than {_DEEPEST} deep")
    try:
        value = loads(
            record.decode(),
            object_pairs_hook=as_object,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_no_json,
        )
    except UnicodeDecodeError as error:
        raise Misfit(f"it is not in UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:  # it was called from deep within other code
        raise Misfit("it is nested too deep") from None
    except JSONDecodeError as error:
        raise Misfit(f"it is no JSON: {error.msg} at character {error.pos}") from None
    if not isinstance(value, dict):
        raise Misfit("it is JSON, and no object")
    return value


def _no_json(name: str) -> None:
    raise Misfit(f"it is no JSON: {name} is no number")


def may_be_deep(record: bytes) -> bool:
    """pyarrow goes to any depth, and Python as deep as its stack allows: here both go to the same."""
    return len(record) > 2 * _DEEPEST and record.count(b"{") + record.count(b"[") > _DEEPEST


def _depth(record: bytes) -> int:
    depth = deepest = 0
    for mark in re.findall(rb"[\[\]{}]", _QUOTED.sub(b"", record)):
        depth += 1 if mark in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


_BLANKS = b" \t\r\n"
_FEW = 16
_MOST_RECORDS, _MOST_BYTES = 8192, 32 << 20  # of one call; pyarrow has limits of its own beyond that
_UNSAFE = r"[:,\[]\s*-?(NaN|Inf|[0-9.]+[eE]\+?[0-9]{3})|[0-9.]{39}"
_EXPONENT = r"[:,\[]\s*\"?[+-]?[0-9.]+[eE][+-]?[0-9]+[\"\s,}\]]"
_ESCAPED = r"\\u00([46]5|2[bBdDeE]|3[0-9])"  # an e, a sign, a point or a digit, which could hide one


class JsonDecoder:
    """The columns of a schema, each from the field of its name; what the schema does not have is ignored."""

    def __init__(self, schema: StructType) -> None:
        self.schema = schema
        self.arrow_schema = arrow_schema(schema)
        arrow = self.arrow_schema.types
        fields = list(enumerate(schema.fields))
        self._shapes = {f.name: shape(f.dataType, arrow[i], f.nullable, f.name) for i, f in fields}
        self._columns = [column(f.dataType, arrow[i], f.nullable) for i, f in fields]
        self._is_fast = all(part.is_fast for part in self._shapes.values())
        decimals = any(part.has_decimal for part in self._shapes.values())
        self._unsafe = f"{_UNSAFE}|{_EXPONENT}|{_ESCAPED}" if decimals else _UNSAFE
        self._parsing = pj.ParseOptions(
            explicit_schema=pa.schema([(name, part.carrier) for name, part in self._shapes.items()]),
            unexpected_field_behavior="ignore",
        )

    def pieces(self, records: Given) -> Iterator[Piece]:
        for group in _groups(one_by_one(records)):
            yield from self._halved([record.strip(_BLANKS) for record in group])

    def _halved(self, records: list[bytes]) -> Iterator[Piece]:
        if not self._is_fast:
            yield from self._by_python(records)
            return
        try:
            yield self._by_arrow(records)
        except MemoryError:
            raise
        except Exception:
            if len(records) <= _FEW:
                yield from self._by_python(records)
            else:
                half = len(records) // 2
                yield from self._halved(records[:half])
                yield from self._halved(records[half:])

    def _by_arrow(self, records: list[bytes]) -> pa.RecordBatch:
        """All of them, or none.

        Each begins with { and ends with }, and no string goes on behind a line break: so if pyarrow finds as
        many objects as there are records, each record is one of them. What pyarrow gets wrong does not come
        to it: a NUL ends all, NaN and Inf are numbers, large numbers are infinite, and with `null` before the
        first object, or an exponent of -999999999 in a decimal, it ends the process.
        """
        for record in records:
            if not (record.startswith(b"{") and record.endswith(b"}")) or may_be_deep(record):
                raise Refused
        text = b"\n".join(records)
        if b"\0" in text or pc.match_substring_regex(pa.scalar(text), self._unsafe).as_py():
            raise Refused
        text.decode()
        reading = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
        table = pj.read_json(pa.BufferReader(text), reading, self._parsing)
        if table.num_rows != len(records):
            raise Refused
        return self._batch([in_one_piece(found) for found in table.columns])

    def _batch(self, carriers: list[pa.Array]) -> pa.RecordBatch:
        parts = zip(self._columns, self._shapes.values(), carriers, strict=True)
        arrays = [a if part.is_settled else kind.cast(part.finish(a)) for kind, part, a in parts]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def _by_python(self, records: list[bytes]) -> Iterator[Piece]:
        taken: list[Any] = []
        for record in records:
            try:
                value = parsed(record)
                taken.append([take_field(name, part, value) for name, part in self._shapes.items()])
            except Misfit:
                taken.append(None)
        good = [i for i, values in enumerate(taken) if values is not None]
        wrong = {good[i] for i in misfits(self._build, [taken[i] for i in good])}
        start = 0
        for i, values in enumerate([*taken, None]):
            if values is None or i in wrong:
                if i > start:
                    yield self._build(taken[start:i])
                if i < len(records):
                    yield self._bad(records[i])
                start = i + 1

    def _build(self, rows: list[list[Any]]) -> pa.RecordBatch:
        carriers = [part.carrier for part in self._shapes.values()]
        columns = zip(*rows, strict=True) if rows else ([] for _ in carriers)
        return self._batch([pa.array(v, kind) for v, kind in zip(columns, carriers, strict=True)])

    def _bad(self, record: bytes) -> BadRow:
        """Why it is bad, and the row with nulls for what does not fit."""
        row: list[Any] = [None] * len(self._shapes)
        try:
            value = parsed(record)
        except Misfit as misfit:
            return BadRow(record, misfit.reason, tuple(row))
        reasons = []
        for i, (name, part) in enumerate(self._shapes.items()):
            try:
                row[i] = take_field(name, part, value, whole=True)
            except Misfit as misfit:
                reasons.append(f"field {misfit.path[1:]!r}: {misfit.reason}")
        return BadRow(record, "; ".join(reasons[:3]) or "it does not fit the schema", tuple(row))


def _groups(records: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Of a size that one call takes."""
    start = weight = 0
    for i, record in enumerate(records):
        weight += len(record)
        if weight > _MOST_BYTES or i - start >= _MOST_RECORDS:
            yield records[start : i or 1]
            start, weight = i, len(record)
    if start < len(records):
        yield records[start:]
