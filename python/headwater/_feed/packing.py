"""What a feed yielded, packed into Arrow batches of a good size; bad rows are counted and kept as samples."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headwater._feed.message import MAX_ROW_BYTES, cut, joined
from headwater._rows.converter import BadRowError, Converter

__all__ = ["Packing"]

_SAMPLES = 10


class Packing:
    """Numbers rows from 0 in the order they come. Used by one thread at a time."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self._numbered = 0
        self.bad_rows = 0
        self.samples: list[str] = []

    @property
    def schema(self) -> pa.Schema:
        return self._converter.arrow_schema

    def nothing(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], self.schema)

    def pack(self, parts: list[Any]) -> tuple[list[pa.RecordBatch], BadRowError | None]:
        """All that is good before the first row that fails the feed, and the error of that row."""
        made: list[pa.RecordBatch] = []
        error = None
        for part in parts:
            try:
                made += self._convert(part)
            except BadRowError as bad:
                error = bad
                if isinstance(part, list):
                    made += self._convert(part[: bad.number - self._numbered])
                break
        return [piece for batch in joined(made) for piece in cut(batch)], error

    def _convert(self, part: Any) -> list[pa.RecordBatch]:
        convert = self._converter.from_rows if isinstance(part, list) else self._converter.from_arrow
        batch, bad = convert(part, self._numbered)
        if batch.nbytes > MAX_ROW_BYTES:
            batch, heavy = self._without_heavy_rows(batch)
            bad = bad + heavy
        self._numbered += len(part)
        self.bad_rows += len({error.number for error in bad})
        self.samples += [str(error) for error in bad[: _SAMPLES - len(self.samples)]]
        return [batch] if batch.num_rows else []

    def _without_heavy_rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[BadRowError]]:
        """A row travels whole, in one message to a task, and that is limited."""
        good, bad = [], []
        for index in range(batch.num_rows):
            row = batch.slice(index, 1)
            if row.nbytes <= MAX_ROW_BYTES:
                good.append(row)
                continue
            column = max(row.schema.names, key=lambda name: row.column(name).nbytes)
            reason = f"the row weighs {row.nbytes:,} bytes; a row may weigh up to {MAX_ROW_BYTES:,}"
            bad.append(BadRowError(self._numbered + index, column, "…", reason))
        if bad and self._converter.on_bad_row == "fail":
            raise bad[0]
        return (joined(good) or [self.nothing()])[0], bad
