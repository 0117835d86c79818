"""Arrow tables and pandas DataFrames, by column."""

import sys
from typing import Any

import pyarrow as pa

from headwater._rows.column import Values

__all__ = ["columns_of", "in_one_piece", "is_table"]


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
