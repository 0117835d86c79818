"""Rows as authors give them → Arrow batches of exactly the schema; what to do with those that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headwater.errors import BadRowError, shorten
from headwater.rows.bad_values import Blame, Refused
from headwater.rows.columns import Column, column, fits, misfits, spread
from headwater.rows.records import Records, columns_of, is_table
from headwater.schema import arrow_schema
from headwater.source import BadRow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["BadRowError", "Converter"]

_POLICIES = ("fail", "drop", "null")


class _Bad(NamedTuple):
    row: int
    column: int
    error: BadRowError


class Converter:
    """Makes batches of one schema. A value is carried exactly, or its row is bad.

    `on_bad_row` says what becomes of bad rows: `fail` raises for the first; `drop` leaves them out; `null`
    puts a null in the place of the field, and drops only rows where no null can be, or with other columns. Of
    a BadRow `null` takes the row that it brings.
    """

    is_table = staticmethod(is_table)

    def __init__(self, schema: StructType, on_bad_row: str = "fail") -> None:
        if on_bad_row not in _POLICIES:
            raise ValueError(f"on_bad_row={on_bad_row!r} must be one of {', '.join(_POLICIES)}")
        self.arrow_schema = arrow_schema(schema)
        self.on_bad_row = on_bad_row
        self._names = list(schema.names)
        self._records = Records(self._names, bare=True)
        self._columns = [
            column(kind.dataType, self.arrow_schema.types[i], kind.nullable)
            for i, kind in enumerate(schema.fields)
        ]

    def from_rows(self, rows: list[object], first: int) -> tuple[pa.RecordBatch, list[BadRowError]]:
        """The rows as a batch, and what was wrong with some. `first` is the number of the first row."""
        try:
            return self._batch(self._records.split(rows)), []
        except MemoryError:
            raise
        except Exception:
            return self._without_bad_rows(rows, first)

    def from_arrow(self, data: Any, first: int) -> tuple[pa.RecordBatch, list[BadRowError]]:
        """The same for a RecordBatch, a Table or a DataFrame; its columns are found by their names."""
        try:
            columns = self._by_name(*columns_of(data), len(data))
        except Refused as refusal:
            return self._none_of(len(data), first, Blame("", list(columns_of(data)[0]), str(refusal)))
        try:
            return self._batch(columns), []
        except MemoryError:
            raise
        except Exception:
            return self._without_bad_values(columns, range(first, first + len(data)), [])

    def _by_name(self, names: list[str], columns: list[Any], rows: int) -> list[Any]:
        self._records.check_keys(names)
        found = dict(zip(names, columns, strict=True))
        return [found[name] if name in found else pa.nulls(rows) for name in self._names]

    def _none_of(self, rows: int, first: int, why: Blame) -> tuple[pa.RecordBatch, list[BadRowError]]:
        errors = (BadRowError(first + i, None, shorten(why.value), why.reason) for i in range(rows))
        if self.on_bad_row == "fail" and rows:
            raise next(errors)
        return self._batch([()] * len(self._names)), list(errors)

    def _batch(self, columns: Sequence[Any]) -> pa.RecordBatch:
        arrays = [_arrow(kind, values) for kind, values in zip(self._columns, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def _without_bad_rows(self, rows: list[object], first: int) -> tuple[pa.RecordBatch, list[BadRowError]]:
        """Looks for rows that are said to be bad or cannot be taken apart, then for values in the others."""
        said = {i: row for i, row in enumerate(rows) if isinstance(row, BadRow)}
        errors = [BadRowError(first + i, None, shorten(bad.value), bad.reason) for i, bad in said.items()]
        kept = {i: said[i].row if i in said else row for i, row in enumerate(rows) if self._is_kept(row)}
        places, rows = list(kept), list(kept.values())
        wrong = list(misfits(self._records.split, rows))
        for i in wrong:
            reason = _refusal(self._records.split, rows[i : i + 1])
            errors.append(BadRowError(first + places[i], None, shorten(rows[i]), reason))
        good = sorted(set(range(len(rows))).difference(wrong))
        columns = self._records.split([rows[i] for i in good])
        return self._without_bad_values(columns, [first + places[i] for i in good], errors)

    def _is_kept(self, row: object) -> bool:
        return not isinstance(row, BadRow) or (self.on_bad_row == "null" and row.row is not None)

    def _without_bad_values(
        self, columns: Sequence[Any], numbers: Sequence[int], errors: list[BadRowError]
    ) -> tuple[pa.RecordBatch, list[BadRowError]]:
        bad = self._bad_values(columns, numbers)
        by_number = sorted([*errors, *(found.error for found in bad)], key=lambda error: error.number)
        if self.on_bad_row == "fail" and by_number:
            raise by_number[0]
        dropped = {found.row: found.error for found in reversed(bad) if not self._becomes_null(found)}
        nulled = [found for found in bad if found.row not in dropped]
        told = [*errors, *dropped.values(), *(found.error for found in nulled)]
        kept = [i for i in range(len(numbers)) if i not in dropped]
        return self._batch_of(columns, kept, nulled), sorted(told, key=lambda error: error.number)

    def _becomes_null(self, found: _Bad) -> bool:
        return self.on_bad_row == "null" and self._columns[found.column].nullable

    def _bad_values(self, columns: Sequence[Any], numbers: Sequence[int]) -> list[_Bad]:
        """By row, then by column."""
        found = []
        for place, (name, kind, values) in enumerate(zip(self._names, self._columns, columns, strict=True)):
            for i in misfits(partial(_arrow, kind), values):
                blame = _explain(kind, values[i : i + 1])
                error = BadRowError(numbers[i], name + blame.path, shorten(blame.value), blame.reason)
                found.append(_Bad(i, place, error))
        return sorted(found, key=lambda bad: bad[:2])

    def _batch_of(self, columns: Sequence[Any], kept: list[int], nulled: list[_Bad]) -> pa.RecordBatch:
        arrays = []
        for place, (kind, values) in enumerate(zip(self._columns, columns, strict=True)):
            absent = {found.row for found in nulled if found.column == place}
            there = [i for i in kept if i not in absent]
            array = _arrow(kind, _pick(values, there))
            arrays.append(spread(array, [i not in absent for i in kept]) if absent else array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)


def _arrow(kind: Column, values: Any) -> pa.Array:
    return kind.cast(values) if isinstance(values, pa.Array) else kind.build(values)


def _pick(values: Any, places: list[int]) -> Any:
    if isinstance(values, pa.Array):
        return values.take(pa.array(places, pa.int64()))
    return [values[i] for i in places]


def _explain(kind: Column, one: Any) -> Blame:
    """Why a column of one value is refused; in the words for Python values where they are refused as well."""
    if not isinstance(one, pa.Array):
        return kind.explain(one[0])
    value = _python(one[0])
    if not fits(kind.build, [value]):
        return kind.explain(value)
    return Blame("", value, _refusal(kind.cast, one))


def _python(scalar: Any) -> object:
    """What Arrow has as Python has it, or, for a time that Python does not have, as it is."""
    for options in ({"maps_as_pydicts": "lossy"}, {}):
        with suppress(Exception):
            return scalar.as_py(**options)
    return scalar


def _refusal(action: Callable[[Any], object], values: Any) -> str:
    try:
        action(values)
    except Exception as error:
        return str(error)
    return "the value does not fit"
