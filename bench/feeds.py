"""The same rows from headwater's Python sources."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count as numbers
from itertools import islice

import pyarrow as pa
import rows

import headwater as hw

__all__ = ["python_arrow", "python_paced", "python_some", "python_tuples"]


@hw.source(rows.SCHEMA)
def python_arrow() -> Iterator[pa.RecordBatch]:
    yield from rows.batches()


@hw.source(rows.SCHEMA)
def python_some(count: int) -> Iterator[pa.RecordBatch]:
    yield from islice(rows.batches(), -(-count // rows.BATCH_ROWS))


@hw.source(rows.SCHEMA)
def python_tuples() -> Iterator[rows.Row]:
    yield from rows.tuples()


@hw.source(rows.SCHEMA)
def python_paced(rows_per_second: int) -> Iterator[rows.Row]:
    pace = rows.Pace(rows_per_second)
    for n in numbers():
        pace.wait_for(n)
        yield pace.row(n)
