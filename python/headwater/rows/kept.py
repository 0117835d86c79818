"""`onBadRow` = `keep`: what cannot become a row is kept in the column `_bad_row`, for a query to route it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import BadRowError
from headwater.rows.columns import accepts, insert_nulls
from headwater.rows.converter import Converter
from headwater.schema import arrow_schema
from headwater.source import BadRow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["COLUMN", "KeepingConverter", "converter", "schema_with_bad_rows"]

COLUMN = "_bad_row"
_MAX_BYTES = 16 << 20


def converter(schema: StructType, on_bad_row: str) -> Converter | KeepingConverter:
    """The converter for what a source with this schema yields."""
    return KeepingConverter(schema) if on_bad_row == "keep" else Converter(schema, on_bad_row)


def schema_with_bad_rows(schema: StructType, on_bad_row: str) -> StructType:
    """The schema of the stream. With `keep` every column is nullable, and `_bad_row` is the last one.

    ValueError if the source has a column of that name.
    """
    from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

    if on_bad_row != "keep":
        return schema
    for name in schema.names:
        if name.lower() == COLUMN:
            raise ValueError(f"onBadRow=keep adds a column '{COLUMN}', and the source has a column '{name}'")
    bad_row = StructType().add("reason", StringType()).add("position", LongType()).add("bytes", BinaryType())
    nullable = [StructField(field.name, field.dataType, True, field.metadata) for field in schema.fields]
    return StructType([*nullable, StructField(COLUMN, bad_row)])


class KeepingConverter:
    """Converts as `Converter` does. A bad row becomes a row of nulls, with what it was in `_bad_row`.

    So there are as many rows as there were items, in their order.
    """

    on_bad_row = "keep"
    is_table = staticmethod(Converter.is_table)

    def __init__(self, schema: StructType) -> None:
        self._converter = Converter(schema, "drop")
        self.arrow_schema = arrow_schema(schema_with_bad_rows(schema, "keep"))
        self._bad_row_type = self.arrow_schema.field(COLUMN).type

    def from_rows(self, rows: list[object], first: int) -> tuple[pa.RecordBatch, list[BadRowError]]:
        batch, errors = self._converter.from_rows(rows, first)
        return self._with_bad_rows(batch, errors, first, lambda i: _row_bytes(rows[i])), errors

    def from_arrow(self, data: Any, first: int) -> tuple[pa.RecordBatch, list[BadRowError]]:
        batch, errors = self._converter.from_arrow(data, first)
        return self._with_bad_rows(batch, errors, first, lambda i: _table_row_bytes(data, i)), errors

    def kept(self, error: BadRowError) -> pa.RecordBatch:
        """One row for a bad row whose bytes are too many to keep."""
        columns = [pa.nulls(1, field.type) for field in list(self.arrow_schema)[:-1]]
        return self._batch([*columns, self._bad_rows([error], lambda error: None)])

    def _with_bad_rows(
        self,
        batch: pa.RecordBatch,
        errors: list[BadRowError],
        first: int,
        bytes_of: Callable[[int], bytes | None],
    ) -> pa.RecordBatch:
        if not errors:
            return self._batch([*batch.columns, pa.nulls(batch.num_rows, self._bad_row_type)])
        bad = {error.number - first: error for error in reversed(errors)}
        is_good = [i not in bad for i in range(batch.num_rows + len(bad))]
        columns = [insert_nulls(column, is_good) for column in batch.columns]
        in_order = [bad[i] for i in sorted(bad)]
        kept = self._bad_rows(in_order, lambda error: bytes_of(error.number - first))
        return self._batch([*columns, insert_nulls(kept, [not good for good in is_good])])

    def _bad_rows(
        self, errors: list[BadRowError], bytes_of: Callable[[BadRowError], bytes | None]
    ) -> pa.Array:
        values = [
            {"reason": _reason(error, data), "position": error.number, "bytes": data and data[:_MAX_BYTES]}
            for error in errors
            for data in [bytes_of(error)]
        ]
        return pa.array(values, self._bad_row_type)

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)


def _reason(error: BadRowError, data: bytes | None) -> str:
    reason = error.reason if error.field is None else f"field {error.field!r}: {error.reason}"
    if data is not None and len(data) > _MAX_BYTES:
        reason += f"; the first {_MAX_BYTES:,} of its {len(data):,} bytes are kept"
    return reason.encode("utf-8", "backslashreplace").decode()


def _row_bytes(row: object) -> bytes | None:
    """The record of a decoder as it came. Another value is a string of Python's, or its repr."""
    value = row.value if isinstance(row, BadRow) else row
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:  # of an author's class
        return None
    return text.encode("utf-8", "backslashreplace")


def _table_row_bytes(data: Any, position: int) -> bytes | None:
    """None for Arrow data that is not valid: pyarrow may crash when it reads that."""
    if not isinstance(data, pa.RecordBatch | pa.Table):
        return _row_bytes(data.iloc[position].to_dict())
    row = data.slice(position, 1)
    if not accepts(lambda table: table.validate(full=True), row):
        return None
    try:
        return _row_bytes(row.to_pylist()[0])
    except (ValueError, OverflowError):  # a time that Python cannot represent
        return _row_bytes({name: row.column(name).to_string() for name in row.column_names})
