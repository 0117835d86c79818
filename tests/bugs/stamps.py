"""Times that an upstream sends as milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

import headwater as hw

SENT = [1_700_000_000_000, 1_700_000_000_500]


@hw.source("at TIMESTAMP")
def taken_for_micros() -> Iterator[pa.RecordBatch]:
    at = pa.array(SENT, pa.timestamp("us", tz="UTC"))  # the unit of Spark's TIMESTAMP
    yield pa.record_batch([at], ["at"])


@hw.source("at TIMESTAMP")
def said_to_be_millis() -> Iterator[pa.RecordBatch]:
    at = pa.array(SENT, pa.timestamp("ms", tz="UTC"))
    yield pa.record_batch([at], ["at"])


@hw.source("at TIMESTAMP")
def without_unit() -> Iterator[int]:
    yield from SENT
