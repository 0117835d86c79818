"""The same rows from headwater's Python sources."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count as numbers
from itertools import islice

import pyarrow as pa
import rows

import headwater as hw

__all__ = ["PacedPartition", "Partitioned", "python_arrow", "python_paced", "python_some", "python_tuples"]


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


class Partitioned(hw.PartitionedSource, name="partitioned", schema=rows.SCHEMA):
    """Partitions that never end."""

    def __init__(self, count: int) -> None:
        self._count = count

    def partitions(self) -> list[int]:
        return list(range(self._count))

    def earliest(self, partition: int) -> int:
        return 0

    def latest(self, partition: int) -> int:
        return 1 << 60

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        left = end - start
        for batch in rows.batches():
            yield batch if left >= len(batch) else batch.slice(0, left)
            left -= len(batch)
            if left <= 0:
                return


@cache
def _clock() -> rows.Pace:
    """One for all instances of a source: with each its own, offsets would go back."""
    return rows.Pace(1)


class PacedPartition(hw.PartitionedSource, name="paced_partition", schema=rows.SCHEMA):
    """One partition with a row per second, until it has so many."""

    def __init__(self, count: int) -> None:
        self._count = count

    def partitions(self) -> list[int]:
        return [0]

    def earliest(self, partition: int) -> int:
        return 0

    def latest(self, partition: int) -> int:
        return min(self._count, _clock().due())

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        yield rows.some(end - start)
