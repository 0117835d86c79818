"""Brings record batches to a good size: small neighbours are joined, large batches are cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

__all__ = ["join", "resize"]


def resize(batches: Iterable[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches of at most `max_bytes`; a batch of a single row may be larger.

    Only batches that are small enough to be joined are copied. Empty ones are left out.
    """
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        batch_size = _size(batch, max_bytes)
        if group and size + batch_size > max_bytes:
            yield from _cut(join(group), max_bytes)
            group, size = [], 0
        group.append(batch)
        size += batch_size
    if group:
        yield from _cut(join(group), max_bytes)


def _size(batch: pa.RecordBatch, max_bytes: int) -> int:
    """About the size of a batch, to decide what to join.

    The size of its buffers is known at once, but a slice may use only a part of them. `nbytes` is exact, and
    takes tens of microseconds, as long as a small batch is worth.
    """
    buffers: int = batch.get_total_buffer_size()
    return buffers if buffers <= max_bytes // 8 else batch.nbytes


def join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in one batch, without a copy if there is only one."""
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def _cut(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Slices, which share the memory of the batch."""
    pieces = -(-batch.nbytes // max_bytes)
    if pieces <= 1 or batch.num_rows == 1:
        yield batch
    else:
        step = -(-batch.num_rows // pieces)
        for start in range(0, batch.num_rows, step):
            yield from _cut(batch.slice(start, step), max_bytes)
