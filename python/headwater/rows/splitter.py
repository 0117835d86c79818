"""Splits rows and tables of any kind into columns."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from headwater.rows.values import InvalidValueError, Values
from headwater.source import BadRow

__all__ = ["RowSplitter", "is_table", "single_chunk", "split_table"]

Rows = Sequence[Any]
Columns = Sequence[Values]
_ROW_TYPES = "a tuple, a dict, a dataclass, a namedtuple or a Row"


class RowSplitter:
    """Splits the rows of one schema, or the values of one struct, into columns.

    With `bare`, a value that is not a row is the value of the only column. A tuple, a dict, … is always a
    row, even where that column is an array, a map or a struct.
    """

    def __init__(self, names: Sequence[str], *, bare: bool = False) -> None:
        from pyspark.sql.types import Row

        self.names = tuple(names)
        self._bare = bare and len(names) == 1
        self._row_class = Row
        self._by_name_getters = [itemgetter(name) for name in names]
        self._by_position_getters = [itemgetter(position) for position in range(len(names))]

    def split(self, rows: Rows) -> Columns:
        """One column per name. InvalidValueError if a row does not fit; it does not say which row."""
        kinds = set(map(type, rows))
        if kinds == {tuple}:
            return self._split_tuples(rows)
        if not kinds:
            return [()] * len(self.names)
        splitters = {kind: self._splitter(kind) for kind in kinds}
        if len(set(splitters.values())) == 1:
            return splitters.popitem()[1](rows)
        return self._split_one_by_one(rows)

    def split_row(self, row: object) -> tuple[Any, ...]:
        """The values of one row."""
        return tuple(column[0] for column in self._splitter(type(row))([row]))

    def _split_one_by_one(self, rows: Rows) -> Columns:
        return list(zip(*map(self.split_row, rows), strict=True))

    def _splitter(self, kind: type) -> Callable[[Rows], Columns]:
        if issubclass(kind, BadRow):
            raise InvalidValueError("a BadRow stands for a whole row, not for a part of one")
        if issubclass(kind, dict):
            return self._split_dicts
        if issubclass(kind, self._row_class):
            return self._split_spark_rows
        if issubclass(kind, tuple):
            return self._split_namedtuples if hasattr(kind, "_fields") else self._split_tuples
        if dataclasses.is_dataclass(kind):
            return self._split_dataclasses
        if self._bare:
            return self._split_bare_values
        raise InvalidValueError(
            f"{kind.__name__} is not a row; a row is {_ROW_TYPES}, with {self._expected()}"
        )

    def _split_bare_values(self, rows: Rows) -> Columns:
        return [rows]

    def _split_tuples(self, rows: Rows) -> Columns:
        lengths = set(map(len, rows))
        if lengths != {len(self.names)}:
            wrong = min(lengths - {len(self.names)})
            raise InvalidValueError(
                f"the row has {wrong} value{'s' if wrong != 1 else ''} for {self._expected()}"
            )
        # zip(*rows) would be slower: it makes an iterator for each row.
        return [list(map(getter, rows)) for getter in self._by_position_getters]

    def _split_dicts(self, rows: Rows) -> Columns:
        self.check_keys(list(set().union(*rows)))
        if set(map(len, rows)) == {len(self.names)}:
            return [list(map(getter, rows)) for getter in self._by_name_getters]
        return [[row.get(name) for row in rows] for name in self.names]

    def _split_namedtuples(self, rows: Rows) -> Columns:
        return self._split_named(rows, set(map(attrgetter("_fields"), rows)))

    def _split_spark_rows(self, rows: Rows) -> Columns:
        """Each Row has its own names, or none."""
        if not any(hasattr(row, "__fields__") for row in rows):
            return self._split_tuples(rows)
        if not all(hasattr(row, "__fields__") for row in rows):
            return self._split_one_by_one(rows)
        return self._split_named(rows, {tuple(row.__fields__) for row in rows})

    def _split_named(self, rows: Rows, all_names: set[tuple[str, ...]]) -> Columns:
        if len(all_names) > 1:
            return self._split_one_by_one(rows)
        (names,) = all_names
        self._check_fields(names)
        columns = dict(zip(names, RowSplitter(names)._split_tuples(rows), strict=True))
        return [columns[name] for name in self.names]

    def _split_dataclasses(self, rows: Rows) -> Columns:
        for kind in set(map(type, rows)):
            self._check_fields([field.name for field in dataclasses.fields(kind)])
        return [list(map(attrgetter(name), rows)) for name in self.names]

    def check_keys(self, keys: Sequence[object]) -> None:
        """A missing column is null. An unknown or a repeated one is an error."""
        unknown = [key for key in keys if key not in self.names]
        if unknown:
            names = ", ".join(sorted(map(repr, unknown)))
            raise InvalidValueError(f"unknown: {names}, for {self._expected()}")
        if len(set(keys)) < len(keys):
            raise InvalidValueError(f"duplicate column: {', '.join(map(str, keys))}, for {self._expected()}")

    def _check_fields(self, names: Sequence[str]) -> None:
        if len(names) != len(self.names) or set(names) != set(self.names):
            raise InvalidValueError(
                f"the row has the fields {', '.join(map(str, names))}, for {self._expected()}"
            )

    def _expected(self) -> str:
        return f"{len(self.names)} column{'s' if len(self.names) != 1 else ''}: {', '.join(self.names)}"


def is_table(item: object) -> bool:
    """Whether the item is a pyarrow RecordBatch or Table, or a pandas DataFrame: many rows at once."""
    return isinstance(item, pa.RecordBatch | pa.Table) or _is_dataframe(item)


def _is_dataframe(item: object) -> bool:
    # There can be no DataFrame unless pandas has been imported, so it need not be imported here.
    dataframe = getattr(sys.modules.get("pandas"), "DataFrame", None)
    return dataframe is not None and isinstance(item, dataframe)


def split_table(table: Any) -> tuple[list[str], list[Values | pa.Array]]:
    """Names and columns, in order. Names may repeat, and those of a DataFrame need not be strings."""
    if _is_dataframe(table):
        return list(table.columns), [_series_values(table.iloc[:, i]) for i in range(table.shape[1])]
    return table.column_names, [single_chunk(column) for column in table.columns]


def single_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    # combine_chunks() would copy even a single chunk.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _series_values(series: Any) -> Values | pa.Array:
    """In a column of floats NaN is a value; among objects it is how pandas marks a missing value."""
    dtype = str(series.dtype)
    if dtype == "object":
        return [None if _is_missing(value) else value for value in series.tolist()]
    if dtype in ("float16", "float32", "float64"):
        return pa.array(series.to_numpy(), from_pandas=False)
    return single_chunk(pa.array(series, from_pandas=True))


def _is_missing(value: object) -> bool:
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
