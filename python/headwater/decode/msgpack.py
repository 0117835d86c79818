"""Decodes MessagePack records: each is one map, whose entries are the columns, or an array of all columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.decode.records import DecodedPart, Records, assemble, to_bytes
from headwater.errors import HeadwaterError
from headwater.options import Signature
from headwater.rows.columns import accepts, column
from headwater.rows.values import InvalidValueError
from headwater.schema import arrow_schema
from headwater.source import BadRow

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["MsgpackDecoder"]


class MsgpackDecoder:
    """Values are those that a row may have: a map is a MAP or a STRUCT, an extension of type -1 a TIMESTAMP.

    Entries that are not in the schema are ignored, and one that is missing is null, as with JSON.
    """

    def __init__(self, schema: StructType, properties: dict[str, str]) -> None:
        Signature.of(_no_properties, owner="decode='msgpack'", reserved={}).parse(properties)
        try:
            import msgpack
        except ImportError:
            raise HeadwaterError(
                "decode='msgpack' needs msgpack, which is not installed", "pip install 'headwater[msgpack]'"
            ) from None
        self.schema = schema
        self._unpack = msgpack.unpackb
        self._arrow_schema = arrow_schema(schema)
        self._columns = [
            column(field.dataType, arrow, field.nullable)
            for field, arrow in zip(schema.fields, self._arrow_schema.types, strict=True)
        ]

    def decode(self, records: Records) -> Iterator[DecodedPart]:
        data = to_bytes(records)
        rows: list[list[Any] | None] = []
        for record in data:
            try:
                rows.append(self._parse(record))
            except InvalidValueError:
                rows.append(None)
        return assemble(rows, self._build, lambda i: self._bad_row(data[i]))

    def _parse(self, record: bytes) -> list[Any]:
        try:
            value = self._unpack(record, timestamp=3, strict_map_key=False)
        except MemoryError:
            raise
        except Exception as error:  # each of several, also of ValueError
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise InvalidValueError(f"not valid MessagePack: {reason}") from None
        fields = self.schema.fields
        if isinstance(value, dict):
            return [_without_unknown(field.dataType, value.get(field.name)) for field in fields]
        if not isinstance(value, list):
            raise InvalidValueError("valid MessagePack, but neither a map nor an array")
        if len(value) != len(fields):
            raise InvalidValueError(f"the array has {len(value)} values for {len(fields)} columns")
        return [_without_unknown(field.dataType, item) for field, item in zip(fields, value, strict=True)]

    def _build(self, rows: Sequence[Any]) -> pa.RecordBatch:
        columns = zip(*rows, strict=True) if rows else ([] for _ in self._columns)
        arrays = [kind.build(list(values)) for kind, values in zip(self._columns, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)

    def _bad_row(self, record: bytes) -> BadRow:
        """Why the record is bad, and its row with nulls for the invalid fields."""
        try:
            row = self._parse(record)
        except InvalidValueError as error:
            return BadRow(record, error.reason, (None,) * len(self._columns))
        reasons = []
        for i, (name, kind) in enumerate(zip(self.schema.names, self._columns, strict=True)):
            if not accepts(kind.build, [row[i]]):
                why = kind.explain(row[i])
                reasons.append(f"field {name + why.path!r}: {why.reason}")
                row[i] = None
        return BadRow(record, "; ".join(reasons[:3]) or "the record does not fit the schema", tuple(row))


def _no_properties() -> None:
    """This decoder has none."""


def _without_unknown(kind: DataType, value: Any) -> Any:
    """The value, without the entries of maps that a STRUCT of the schema does not have."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType) and isinstance(value, dict):
        return {field.name: _without_unknown(field.dataType, value.get(field.name)) for field in kind.fields}
    if isinstance(kind, ArrayType) and isinstance(value, list):
        return [_without_unknown(kind.elementType, item) for item in value]
    if isinstance(kind, MapType) and isinstance(value, dict):
        return {key: _without_unknown(kind.valueType, item) for key, item in value.items()}
    return value
