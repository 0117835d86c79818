"""The rows that every Python case gives, its peers' too: `timestamp TIMESTAMP, value STRING` of nine letters.

A process makes a pool of them once, and its source gives the pool over and over: as tuples, as Arrow batches
or as lines of text. So what is measured is the way of a row from the source's `yield` to the sink, all checks
and conversions on it included. What is not measured is the making of rows: a timestamp is the time when the
pool was made.
"""

from __future__ import annotations

import random
import string
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import cache
from itertools import chain, repeat

import pyarrow as pa

__all__ = ["BATCH_ROWS", "LINES", "SCHEMA", "Pace", "Row", "batches", "lines", "some", "tuples"]

SCHEMA = "timestamp TIMESTAMP, value STRING"

BATCH_ROWS = 8192
"""Rows of an Arrow batch."""

LINES = 512
"""Rows of a piece of text."""

Row = tuple[datetime, str]

_POOL_BATCHES = 16
_LETTERS = 9
_ARROW_SCHEMA = pa.schema([("timestamp", pa.timestamp("us", tz="UTC")), ("value", pa.string())])


def tuples() -> Iterator[Row]:
    return chain.from_iterable(repeat(_tuples()))


def batches() -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(repeat(_batches()))


def some(count: int) -> pa.RecordBatch:
    """The first few, as one batch."""
    return _batches()[0].slice(0, count)


@cache
def lines() -> bytes:
    """So many values, one in a line: they have no timestamp yet."""
    return "".join(f"{value}\n" for _, value in _tuples()[:LINES]).encode()


@cache
def _tuples() -> list[Row]:
    # With a time zone: Spark's own conversion is slower without.
    letters = "".join(random.choices(string.ascii_letters, k=_POOL_BATCHES * BATCH_ROWS * _LETTERS))
    return [
        (datetime.now(timezone.utc), letters[at : at + _LETTERS]) for at in range(0, len(letters), _LETTERS)
    ]


@cache
def _batches() -> list[pa.RecordBatch]:
    # Each has buffers of its own. Slices of one large batch would not do: they share its buffers.
    starts = range(0, len(_tuples()), BATCH_ROWS)
    columns = ([*zip(*_tuples()[start : start + BATCH_ROWS], strict=True)] for start in starts)
    return [pa.record_batch([list(column) for column in each], schema=_ARROW_SCHEMA) for each in columns]


class Pace:
    """So many rows per second, each with the time when it was due as its timestamp."""

    def __init__(self, rows_per_second: float) -> None:
        self._began = time.time()
        self._rows_per_second = rows_per_second

    def due(self) -> int:
        """How many rows are due by now."""
        return int((time.time() - self._began) * self._rows_per_second)

    def row(self, n: int) -> Row:
        at = datetime.fromtimestamp(self._due_at(n), timezone.utc)
        return at, _tuples()[n % len(_tuples())][1]

    def wait_for(self, n: int) -> None:
        time.sleep(max(0.0, self._due_at(n) - time.time()))

    def _due_at(self, n: int) -> float:
        return self._began + (n + 1) / self._rows_per_second
