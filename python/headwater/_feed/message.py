"""Arrow batches as they travel: cut to a good size, and as messages of an Arrow stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

__all__ = ["BATCH_BYTES", "END", "MAX_ROW_BYTES", "cut", "joined", "message", "to_json"]

MAX_ROW_BYTES = 64 << 20

BATCH_BYTES = 400 << 10
"""Arrays from half a megabyte on may take up to twice their size of a JVM's heap."""

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Ends an Arrow stream."""


def joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """As one batch, where there are several."""
    if len(batches) < 2:
        return batches
    whole: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def cut(batch: pa.RecordBatch, most: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Pieces of a good size; a row that is larger than that is a piece of its own."""
    pieces = -(-batch.nbytes // most)
    if pieces <= 1 or batch.num_rows == 1:
        yield batch
    else:
        step = -(-batch.num_rows // pieces)
        for start in range(0, batch.num_rows, step):
            yield from cut(batch.slice(start, step), most)


def message(batch: pa.RecordBatch, metadata: dict[str, str]) -> Any:
    """One message of an Arrow stream; the metadata is the batch's own."""
    if not metadata:
        return batch.serialize()
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, batch.schema).write_batch(batch, custom_metadata=metadata)
    return memoryview(sink.getvalue())[batch.schema.serialize().size :]


def to_json(cursor: Any) -> str:
    try:
        text = json.dumps(cursor, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
        text.encode()  # a str may have lone surrogates
        return text
    except (TypeError, ValueError) as error:
        raise TypeError(f"the cursor {cursor!r} cannot be written as JSON: {error}") from error
