"""Rows of a range as they travel to Spark: Arrow messages of a good size, each a value of one column."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headwater._feed.message import cut, joined
from headwater._rows.converter import BadRowError, Converter

__all__ = ["TASK_BYTES", "Packing"]

TASK_BYTES = 400 << 10
"""What a message weighs at most; a larger batch is cut, and a single row may weigh more. Spark takes messages
of this size about twice as fast as those of a megabyte: they are arrays of its heap, and fit into caches."""

_SAMPLES = 10
_ANSWER = pa.schema([("report", pa.string()), ("rows", pa.binary())])
_NO_REPORT, _NO_ROWS = pa.nulls(1, pa.string()), pa.nulls(1, pa.binary())


class Packing:
    """Of one range; its rows are numbered from 0."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self._numbered = 0
        self.rows = 0
        self.weight = 0
        self.bad_rows = 0
        self.samples: list[str] = []

    def pack(self, parts: list[Any]) -> Iterator[pa.RecordBatch]:
        """One message after the other. BadRowError for a row that does not fit, where that is not allowed."""
        made = [batch for part in parts if (batch := self._convert(part)).num_rows]
        for batch in joined(made):
            for piece in cut(batch, TASK_BYTES):
                self.rows += piece.num_rows
                self.weight += piece.nbytes
                yield _message(piece)

    def report(self, number: int, lost: int, samples: list[str]) -> pa.RecordBatch:
        """What is told after the last row of a range."""
        told = {"i": number, "rows": self.rows, "bad": self.bad_rows, "samples": samples, "lost": lost}
        return pa.RecordBatch.from_arrays(
            [pa.array([json.dumps(told)], pa.string()), _NO_ROWS], schema=_ANSWER
        )

    def _convert(self, part: Any) -> pa.RecordBatch:
        convert = self._converter.from_rows if isinstance(part, list) else self._converter.from_arrow
        batch, bad = convert(part, self._numbered)
        self._numbered += len(part)
        self._count(bad)
        return batch

    def _count(self, bad: list[BadRowError]) -> None:
        if bad:
            self.bad_rows += len({error.number for error in bad})
            self.samples += [str(error) for error in bad[: _SAMPLES - len(self.samples)]]


def _message(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The bytes of the message become the value as they are: they may be megabytes, and are not copied."""
    data = batch.serialize()
    ends = pa.array([0, data.size], pa.int32()).buffers()[1]
    rows = pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])
    return pa.RecordBatch.from_arrays([_NO_REPORT, rows], schema=_ANSWER)
