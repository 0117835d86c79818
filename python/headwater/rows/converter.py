"""Converts rows and tables to Arrow batches of one schema, and applies `onBadRow` to what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headwater.errors import BadRowError, shorten
from headwater.rows.batches import join
from headwater.rows.columns import Column, accepts, column, insert_nulls, invalid_positions
from headwater.rows.splitter import RowSplitter, is_table, split_table
from headwater.rows.validated import ValidatedTables
from headwater.rows.values import InvalidValueError
from headwater.schema import arrow_schema
from headwater.source import BadRow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Converter"]

_POLICIES = ("fail", "drop", "null")


class _InvalidField(NamedTuple):
    row: int
    column: int
    error: BadRowError


class Converter:
    """Converts rows to batches of one schema. A value is converted exactly, or its row is a bad row.

    `on_bad_row` says what happens to bad rows. `fail` raises for the first one. `drop` leaves them out.
    `null` replaces the invalid fields with nulls, and drops a row only if such a field is NOT NULL or the row
    has the wrong columns; of a `BadRow` it takes the `row`, if there is one.
    """

    is_table = staticmethod(is_table)

    def __init__(self, schema: StructType, on_bad_row: str = "fail") -> None:
        if on_bad_row not in _POLICIES:
            raise ValueError(f"on_bad_row={on_bad_row!r} must be one of {', '.join(_POLICIES)}")
        self.arrow_schema = arrow_schema(schema)
        self.on_bad_row = on_bad_row
        self._names = list(schema.names)
        self._splitter = RowSplitter(self._names, bare=True)
        self._columns = [
            column(field.dataType, self.arrow_schema.types[i], field.nullable)
            for i, field in enumerate(schema.fields)
        ]
        self._validated = ValidatedTables(schema)

    def from_rows(self, rows: list[object], first: int) -> tuple[pa.RecordBatch, list[BadRowError]]:
        """The batch, and an error for each bad row. `first` is the number of the first row."""
        try:
            return self._build(self._splitter.split(rows)), []
        except MemoryError:
            raise
        except Exception:
            return self._from_bad_rows(rows, first)

    def from_arrow(self, data: Any, first: int) -> tuple[pa.RecordBatch, list[BadRowError]]:
        """The same for a RecordBatch, a Table or a DataFrame, whose columns are matched by name.

        A table that a decoder built to this very schema is taken as it is.
        """
        if data in self._validated:
            return self._to_batch(data), []
        if isinstance(data, pa.Table) and not accepts(_validate, data):
            return self._from_batches(data.to_batches(), first)
        names, arrays = split_table(data)
        try:
            self._splitter.check_keys(names)
        except InvalidValueError as error:
            return self._reject_table(len(data), first, names, error.reason)
        by_name = dict(zip(names, arrays, strict=True))
        columns = [by_name[name] if name in by_name else pa.nulls(len(data)) for name in self._names]
        try:
            return self._build(columns), []
        except MemoryError:
            raise
        except Exception:
            return self._from_invalid_columns(columns, range(first, first + len(data)), [])

    def _from_batches(
        self, batches: list[pa.RecordBatch], first: int
    ) -> tuple[pa.RecordBatch, list[BadRowError]]:
        """The chunks of a table that is not valid: pyarrow must not combine them."""
        converted, errors = [], []
        for batch in batches:
            good, bad = self.from_arrow(batch, first)
            first += batch.num_rows
            converted.append(good)
            errors += bad
        return join(converted), errors

    def _to_batch(self, table: pa.Table) -> pa.RecordBatch:
        batches = table.to_batches()  # without a copy
        if len(batches) > 1:
            batches = table.combine_chunks().to_batches()
        return batches[0] if batches else self._build([()] * len(self._names))

    def _reject_table(
        self, rows: int, first: int, names: list[str], reason: str
    ) -> tuple[pa.RecordBatch, list[BadRowError]]:
        errors = (BadRowError(first + i, None, shorten(names), reason) for i in range(rows))
        if self.on_bad_row == "fail" and rows:
            raise next(errors)
        return self._build([()] * len(self._names)), list(errors)

    def _build(self, columns: Sequence[Any]) -> pa.RecordBatch:
        arrays = [_convert(kind, values) for kind, values in zip(self._columns, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def _from_bad_rows(self, rows: list[object], first: int) -> tuple[pa.RecordBatch, list[BadRowError]]:
        """Sets aside `BadRow`s and rows with the wrong columns; then checks the values of the others."""
        bad_rows = {i: row for i, row in enumerate(rows) if isinstance(row, BadRow)}
        errors = [BadRowError(first + i, None, shorten(bad.value), bad.reason) for i, bad in bad_rows.items()]
        kept = [i for i, row in enumerate(rows) if self._keeps(row)]
        numbers = [first + i for i in kept]
        rows = [bad_rows[i].row if i in bad_rows else rows[i] for i in kept]
        invalid = list(invalid_positions(self._splitter.split, rows))
        for i in invalid:
            reason = _reason(self._splitter.split, rows[i : i + 1])
            errors.append(BadRowError(numbers[i], None, shorten(rows[i]), reason))
        valid = sorted(set(range(len(rows))).difference(invalid))
        columns = self._splitter.split([rows[i] for i in valid])
        return self._from_invalid_columns(columns, [numbers[i] for i in valid], errors)

    def _keeps(self, row: object) -> bool:
        return not isinstance(row, BadRow) or (self.on_bad_row == "null" and row.row is not None)

    def _from_invalid_columns(
        self, columns: Sequence[Any], numbers: Sequence[int], errors: list[BadRowError]
    ) -> tuple[pa.RecordBatch, list[BadRowError]]:
        """Applies `on_bad_row` to the invalid fields. `errors` are those of rows that were set aside."""
        invalid = self._invalid_fields(columns, numbers)
        if self.on_bad_row == "fail" and (errors or invalid):
            raise _by_number([*errors, *(field.error for field in invalid)])[0]
        dropped = {field.row: field.error for field in reversed(invalid) if not self._becomes_null(field)}
        nulled = [field for field in invalid if field.row not in dropped]
        kept = [i for i in range(len(numbers)) if i not in dropped]
        batch = self._build_with_nulls(columns, kept, nulled)
        return batch, _by_number([*errors, *dropped.values(), *(field.error for field in nulled)])

    def _becomes_null(self, field: _InvalidField) -> bool:
        return self.on_bad_row == "null" and self._columns[field.column].nullable

    def _invalid_fields(self, columns: Sequence[Any], numbers: Sequence[int]) -> list[_InvalidField]:
        """By row, then by column."""
        fields = []
        for index, (name, kind, values) in enumerate(zip(self._names, self._columns, columns, strict=True)):
            for i in invalid_positions(partial(_convert, kind), values):
                why = _explain(kind, values[i : i + 1])
                error = BadRowError(numbers[i], name + why.path, shorten(why.value), why.reason)
                fields.append(_InvalidField(i, index, error))
        return sorted(fields, key=lambda field: field[:2])

    def _build_with_nulls(
        self, columns: Sequence[Any], kept: list[int], nulled: list[_InvalidField]
    ) -> pa.RecordBatch:
        arrays = []
        for index, (kind, values) in enumerate(zip(self._columns, columns, strict=True)):
            nulls = {field.row for field in nulled if field.column == index}
            array = _convert(kind, _select(values, [i for i in kept if i not in nulls]))
            arrays.append(insert_nulls(array, [i not in nulls for i in kept]) if nulls else array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)


def _convert(kind: Column, values: Any) -> pa.Array:
    if not isinstance(values, pa.Array):
        return kind.build(values)
    _validate(values)
    return kind.cast(values)


def _validate(data: pa.Array | pa.Table) -> None:
    """Raise an exception for offsets that lead out of the data, and for strings that are not UTF-8.

    Other code may have made them. pyarrow reads them without a check, and may crash.
    """
    data.validate(full=True)


def _select(values: Any, positions: list[int]) -> Any:
    if not isinstance(values, pa.Array) or not positions:
        return [values[i] for i in positions]
    # Not by `take`, which reads the offsets of invalid rows too.
    neighbours = groupby(enumerate(positions), lambda pair: pair[1] - pair[0])
    runs = [[position for _, position in run] for _, run in neighbours]
    return pa.concat_arrays([values.slice(run[0], len(run)) for run in runs])


def _by_number(errors: list[BadRowError]) -> list[BadRowError]:
    return sorted(errors, key=lambda error: error.number)


def _explain(kind: Column, single: Any) -> InvalidValueError:
    """Why a column of one value is invalid. An Arrow value is shorten as its Python value if it has one."""
    if not isinstance(single, pa.Array):
        return kind.explain(single[0])
    if not accepts(_validate, single):
        return InvalidValueError(f"the Arrow data is not valid: {_reason(_validate, single)}", "…")
    value = _to_python(single[0])
    if not accepts(kind.build, [value]):
        return kind.explain(value)
    return InvalidValueError(_reason(kind.cast, single), value)


def _to_python(scalar: Any) -> object:
    """The Python value, or the scalar itself where Python has none, as for a time in the year 10000."""
    for options in ({"maps_as_pydicts": "lossy"}, {}):
        with suppress(Exception):
            return scalar.as_py(**options)
    return scalar


def _reason(convert: Callable[[Any], object], values: Any) -> str:
    try:
        convert(values)
    except Exception as error:
        return str(error)
    return "the value does not fit"
