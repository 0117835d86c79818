"""Decodes JSON records: with pyarrow where it can be trusted, and with Python where not."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from json import JSONDecodeError, loads
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater.decode.json_types import RawNumber, json_type, parse_field, to_object
from headwater.decode.records import DecodedPart, Records, assemble, not_utf8, to_bytes
from headwater.rows.columns import column
from headwater.rows.splitter import single_chunk
from headwater.rows.values import InvalidValueError
from headwater.schema import arrow_schema
from headwater.source import BadRow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["JsonDecoder"]

_WHITESPACE = b" \t\r\n"
_GROUP_RECORDS, _GROUP_BYTES = 8192, 32 << 20  # of one pyarrow call, which has limits beyond these
_FEW_RECORDS = 16
_MAX_DEPTH = 500

# pyarrow gets these wrong, so it does not read records that match: NaN and Inf, numbers with large exponents
# or many digits; in decimals any exponent, even one that escaped characters hide.
_UNSAFE = r"[:,\[]\s*-?(NaN|Inf|[0-9.]+[eE]\+?[0-9]{3})|[0-9.]{39}"
_EXPONENT = r"[:,\[]\s*\"?[+-]?[0-9.]+[eE][+-]?[0-9]+[\"\s,}\]]"
_ESCAPED_NUMBER = r"\\u00([46]5|2[bBdDeE]|3[0-9])"


class JsonDecoder:
    """Reads each column from the field of its name. Fields that are not in the schema are ignored.

    pyarrow reads groups of records. If it fails, or may get a record wrong, the group is halved until few
    records are left, which Python reads one by one.
    """

    def __init__(self, schema: StructType) -> None:
        self.schema = schema
        self._arrow_schema = arrow_schema(schema)
        fields = list(zip(schema.fields, self._arrow_schema.types, strict=True))
        self._types = {f.name: json_type(f.dataType, arrow, f.nullable, f.name) for f, arrow in fields}
        self._columns = [column(f.dataType, arrow, f.nullable) for f, arrow in fields]
        self._pyarrow_can_read = all(kind.pyarrow_can_read for kind in self._types.values())
        has_decimal = any(kind.has_decimal for kind in self._types.values())
        self._unsafe = f"{_UNSAFE}|{_EXPONENT}|{_ESCAPED_NUMBER}" if has_decimal else _UNSAFE
        self._parse_options = pj.ParseOptions(
            explicit_schema=pa.schema([(name, kind.read_type) for name, kind in self._types.items()]),
            unexpected_field_behavior="ignore",
        )

    def decode(self, records: Records) -> Iterator[DecodedPart]:
        for group in _groups(to_bytes(records)):
            yield from self._decode_group([record.strip(_WHITESPACE) for record in group])

    def _decode_group(self, records: list[bytes]) -> Iterator[DecodedPart]:
        if not self._pyarrow_can_read:
            yield from self._read_with_python(records)
            return
        try:
            yield self._read_with_pyarrow(records)
        except MemoryError:
            raise
        except Exception:
            if len(records) <= _FEW_RECORDS:
                yield from self._read_with_python(records)
            else:
                half = len(records) // 2
                yield from self._decode_group(records[:half])
                yield from self._decode_group(records[half:])

    def _read_with_pyarrow(self, records: list[bytes]) -> pa.RecordBatch:
        """Reads all records, or raises an exception.

        Each record begins with { and ends with }, and no JSON string continues after a line break. So if
        pyarrow finds as many objects as there are records, each record is one object. Input that pyarrow gets
        wrong is kept away from it: it takes a NUL for the end, and crashes the process for `null` before the
        first object and for an exponent of -999999999 in a decimal.
        """
        for record in records:
            if not (record.startswith(b"{") and record.endswith(b"}")) or _may_be_deep(record):
                raise InvalidValueError("not safe for pyarrow")
        data = b"\n".join(records)
        if b"\0" in data or pc.match_substring_regex(pa.scalar(data), self._unsafe).as_py():
            raise InvalidValueError("not safe for pyarrow")
        data.decode()  # pyarrow does not check UTF-8
        read_options = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
        table = pj.read_json(pa.BufferReader(data), read_options, self._parse_options)
        if table.num_rows != len(records):
            raise InvalidValueError("not one object per record")
        return self._to_batch([single_chunk(array) for array in table.columns])

    def _to_batch(self, arrays: list[pa.Array]) -> pa.RecordBatch:
        """Of arrays of the columns' read types."""
        parts = zip(self._columns, self._types.values(), arrays, strict=True)
        return pa.RecordBatch.from_arrays(
            [array if kind.is_final else column.cast(kind.convert(array)) for column, kind, array in parts],
            schema=self._arrow_schema,
        )

    def _read_with_python(self, records: list[bytes]) -> Iterator[DecodedPart]:
        return self.read(records, _parse_object)

    def read(
        self, records: Sequence[bytes], parse: Callable[[bytes], dict[str, Any] | None]
    ) -> Iterator[DecodedPart]:
        """Rows of the objects that `parse` makes of records, one by one. A record that is None has no row."""
        rows: list[list[Any] | None] = []
        without_row = set()
        for i, record in enumerate(records):
            rows.append(None)
            try:
                value = parse(record)
                if value is None:
                    without_row.add(i)
                else:
                    rows[i] = [parse_field(name, kind, value) for name, kind in self._types.items()]
            except InvalidValueError:
                pass
        return assemble(
            rows, self._build, lambda i: [] if i in without_row else self._bad_row(records[i], parse)
        )

    def _build(self, rows: Sequence[Any]) -> pa.RecordBatch:
        read_types = [kind.read_type for kind in self._types.values()]
        columns = zip(*rows, strict=True) if rows else ([] for _ in read_types)
        return self._to_batch([pa.array(values, t) for values, t in zip(columns, read_types, strict=True)])

    def _bad_row(self, record: bytes, parse: Callable[[bytes], dict[str, Any] | None]) -> BadRow:
        """Why the record is bad, and its row with nulls for the invalid fields."""
        row: list[Any] = [None] * len(self._types)
        try:
            value = parse(record) or {}
        except InvalidValueError as error:
            return BadRow(record, error.reason, tuple(row))
        reasons = []
        for i, (name, kind) in enumerate(self._types.items()):
            try:
                row[i] = parse_field(name, kind, value, as_row=True)
            except InvalidValueError as error:
                reasons.append(f"field {error.path[1:]!r}: {error.reason}")
        return BadRow(record, "; ".join(reasons[:3]) or "the record does not fit the schema", tuple(row))


def _groups(records: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Groups for one pyarrow call each."""
    start = size = 0
    for i, record in enumerate(records):
        size += len(record)
        if i > start and (size > _GROUP_BYTES or i - start >= _GROUP_RECORDS):
            yield records[start:i]
            start, size = i, len(record)
    if start < len(records):
        yield records[start:]


def _parse_object(record: bytes) -> dict[str, Any]:
    """The JSON object that a record is, with numbers not parsed yet; InvalidValueError if it is not one."""
    if not record:
        raise InvalidValueError("the record is blank, not a JSON object")
    if record.startswith(b"\xef\xbb\xbf"):
        raise InvalidValueError("the record begins with a byte order mark, not with a JSON object")
    if _may_be_deep(record) and _depth(record) > _MAX_DEPTH:
        raise InvalidValueError(f"nested more than {_MAX_DEPTH} levels deep")
    try:
        value = loads(
            record.decode(),
            object_pairs_hook=to_object,
            parse_int=RawNumber,
            parse_float=RawNumber,
            parse_constant=_reject_constant,
        )
    except UnicodeDecodeError as error:
        raise InvalidValueError(not_utf8(error)) from None
    except RecursionError:  # the caller has used up much of the stack
        raise InvalidValueError("nested too deep") from None
    except JSONDecodeError as error:
        raise InvalidValueError(f"not valid JSON: {error.msg} at character {error.pos}") from None
    if not isinstance(value, dict):
        raise InvalidValueError("valid JSON, but not an object")
    return value


def _reject_constant(name: str) -> None:
    raise InvalidValueError(f"not valid JSON: {name} is not a number")


def _may_be_deep(record: bytes) -> bool:
    """pyarrow reads any depth, and Python what its stack allows. Here both have the same limit."""
    return len(record) > 2 * _MAX_DEPTH and record.count(b"{") + record.count(b"[") > _MAX_DEPTH


_BRACKETS = b"[]{}"
_TO_STEPS = bytes.maketrans(_BRACKETS, bytes([1, 255, 1, 255]))  # 255 is -1 as a signed byte
_NOT_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))
_MANY_STEPS = 1 << 16


def _depth(record: bytes) -> int:
    """How deep a record is nested, in time that grows with its length, also if it is not valid JSON."""
    # Without escaped backslashes, and then escaped quotes, each quote begins or ends a string.
    parts = record.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    steps = array("b", b"".join(parts[::2]).translate(_TO_STEPS, _NOT_BRACKETS))
    depth = deepest = 0
    for start in range(0, len(steps), _MANY_STEPS):  # in between, other threads may run
        depths = list(accumulate(steps[start : start + _MANY_STEPS], initial=depth))
        depth, deepest = depths[-1], max(deepest, *depths)
    return deepest
