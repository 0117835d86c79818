"""The same rows from headwater's Python sources."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import rows

import headwater as hw

__all__ = ["python_arrow", "python_paced", "python_tuples"]


@hw.source(rows.SCHEMA)
def python_arrow() -> Iterator[pa.RecordBatch]:
    yield from rows.batches()


@hw.source(rows.SCHEMA)
def python_tuples() -> Iterator[rows.Row]:
    yield from rows.tuples()


@hw.source(rows.SCHEMA)
def python_paced(rows_per_second: int) -> Iterator[rows.Row]:
    pace = rows.Pace(rows_per_second)
    for n in count():
        pace.wait_for(n)
        yield pace.row(n)
