"""Rows of any kind, split into columns."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from headwater.rows.bad_values import Refused
from headwater.source import BadRow

__all__ = ["Records", "columns_of", "in_one_piece", "is_table"]

Values = Sequence[object]
Rows = Sequence[Any]
Columns = Sequence[Sequence[object]]
_KINDS = "a tuple, a dict, a dataclass, a namedtuple or a Row"


class Records:
    """Takes the rows of one schema, or the values of one struct, apart.

    `bare`: what is no row is the value of the only column. A tuple, a dict, … is always a row, also where
    that column is an array, a map or a struct.
    """

    def __init__(self, names: Sequence[str], *, bare: bool = False) -> None:
        from pyspark.sql.types import Row

        self.names = tuple(names)
        self._bare = bare and len(names) == 1
        self._row = Row
        self._getters = [itemgetter(name) for name in names]
        self._places = [itemgetter(place) for place in range(len(names))]

    def split(self, rows: Rows) -> Columns:
        """One column per name. Refused if a row does not fit; which one, is not looked for here."""
        kinds = set(map(type, rows))
        if kinds == {tuple}:
            return self._by_position(rows)
        if not kinds:
            return [()] * len(self.names)
        splitters = {kind: self._splitter(kind) for kind in kinds}
        if len(set(splitters.values())) == 1:
            return splitters.popitem()[1](rows)
        return self._one_by_one(rows)

    def _one_by_one(self, rows: Rows) -> Columns:
        return list(zip(*map(self._one, rows), strict=True))

    def _one(self, row: object) -> tuple[object, ...]:
        return tuple(values[0] for values in self._splitter(type(row))([row]))

    def _splitter(self, kind: type) -> Callable[[Rows], Columns]:
        if issubclass(kind, BadRow):
            raise Refused("a BadRow stands for a whole row, not for a part of one")
        if issubclass(kind, dict):
            return self._by_key
        if issubclass(kind, self._row):
            return self._spark_rows
        if issubclass(kind, tuple):
            return self._namedtuples if hasattr(kind, "_fields") else self._by_position
        if dataclasses.is_dataclass(kind):
            return self._dataclasses
        if self._bare:
            return self._as_they_are
        raise Refused(f"{kind.__name__} is no row; a row is {_KINDS}, with {self._wanted()}")

    def _as_they_are(self, rows: Rows) -> Columns:
        return [rows]

    def _by_position(self, rows: Rows) -> Columns:
        lengths = set(map(len, rows))
        if lengths != {len(self.names)}:
            wrong = min(lengths - {len(self.names)})
            raise Refused(f"the row has {wrong} value{'s' if wrong != 1 else ''} for {self._wanted()}")
        return [list(map(place, rows)) for place in self._places]  # zip(*rows) makes an iterator for each row

    def _by_key(self, rows: Rows) -> Columns:
        self.check_keys(list(set().union(*rows)))
        if set(map(len, rows)) == {len(self.names)}:
            return [list(map(getter, rows)) for getter in self._getters]
        return [[row.get(name) for row in rows] for name in self.names]

    def _namedtuples(self, rows: Rows) -> Columns:
        return self._by_name(rows, set(map(attrgetter("_fields"), rows)))

    def _spark_rows(self, rows: Rows) -> Columns:
        """Each Row has names of its own, or none."""
        if not any(hasattr(row, "__fields__") for row in rows):
            return self._by_position(rows)
        if not all(hasattr(row, "__fields__") for row in rows):
            return self._one_by_one(rows)
        return self._by_name(rows, {tuple(row.__fields__) for row in rows})

    def _by_name(self, rows: Rows, found: set[tuple[str, ...]]) -> Columns:
        if len(found) > 1:
            return self._one_by_one(rows)
        names = found.pop()
        self._check_names(names)
        columns = dict(zip(names, Records(names)._by_position(rows), strict=True))
        return [columns[name] for name in self.names]

    def _dataclasses(self, rows: Rows) -> Columns:
        for kind in set(map(type, rows)):
            self._check_names([field.name for field in dataclasses.fields(kind)])
        return [list(map(attrgetter(name), rows)) for name in self.names]

    def check_keys(self, keys: Sequence[object]) -> None:
        """Columns may be missing, which is a null. Unknown ones, or one twice, are a mistake."""
        unknown = [key for key in keys if key not in self.names]
        if unknown:
            raise Refused(f"unknown: {', '.join(sorted(map(repr, unknown)))}, for {self._wanted()}")
        if len(set(keys)) < len(keys):
            raise Refused(f"a name is there twice: {', '.join(map(str, keys))}, for {self._wanted()}")

    def _check_names(self, names: Sequence[str]) -> None:
        if len(names) != len(self.names) or set(names) != set(self.names):
            raise Refused(f"the row has the fields {', '.join(map(str, names))}, for {self._wanted()}")

    def _wanted(self) -> str:
        return f"{len(self.names)} column{'s' if len(self.names) != 1 else ''}: {', '.join(self.names)}"


def is_table(item: object) -> bool:
    """Whether it is many rows at once. A DataFrame can only be there if someone has imported pandas."""
    return isinstance(item, pa.RecordBatch | pa.Table) or _is_frame(item)


def _is_frame(item: object) -> bool:
    frame = getattr(sys.modules.get("pandas"), "DataFrame", None)
    return frame is not None and isinstance(item, frame)


def columns_of(table: Any) -> tuple[list[str], list[Values | pa.Array]]:
    """The names and the columns, in order. A name may be there twice, and in a DataFrame be no str."""
    if _is_frame(table):
        return list(table.columns), [_of_series(table.iloc[:, i]) for i in range(table.shape[1])]
    return table.column_names, [in_one_piece(column) for column in table.columns]


def in_one_piece(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # which would copy it


def _of_series(series: Any) -> Values | pa.Array:
    """NaN is a value where all are floats; among objects it is how pandas marks what is missing."""
    kind = str(series.dtype)
    if kind == "object":
        return [None if _is_missing(value) else value for value in series.tolist()]
    if kind in ("float16", "float32", "float64"):
        return pa.array(series.to_numpy(), from_pandas=False)
    return in_one_piece(pa.array(series, from_pandas=True))


def _is_missing(value: object) -> bool:
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
