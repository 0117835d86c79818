"""Rows per second of a query that is never idle, once its JVM is warm."""

from __future__ import annotations

import time
from statistics import median

from bars import Sample
from cases import Case
from pyspark.sql import SparkSession
from settings import Settings
from spark import Batch, batches_since, let_run, new_checkpoint, rate, running

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP = "3g"
JAVA_OPTIONS = "-Xms3g"

# Of each query: what began in the first seconds does not count.
_SKIP = 2.0
_LEAST_BATCHES = 2

# A query that is never idle is busy for nearly all of the time.
_BUSY = 0.95
_MORE = 1.5
_TRIES = 6


def measure(spark: SparkSession, case: Case, settings: Settings) -> Sample:
    """A first query warms the JVM; the second one counts.

    A case that has to be asked is asked for more than the query before it could make, and again, until it is
    never idle. Not for much more: Spark's `rate` gives a batch what is due for the time of the last one, so
    its batches grow without end.
    """
    batches = _run(spark, case, case.asks, settings.throughput_warmup)
    first = rate(batches)
    for _ in range(_TRIES):
        asked = case.asks and _MORE * _rate_while_busy(batches)
        batches = _run(spark, case, asked, settings.throughput_seconds)
        busy = _busy_seconds(batches) / (batches[-1].end - batches[0].start)
        if not case.asks or busy >= _BUSY:
            return {
                "rate": rate(batches),
                "first": first,
                "batches": len(batches),
                "batch_rows": median(batch.rows for batch in batches),
                "planning": median(batch.planning for batch in batches),
                "busy": busy,
            }
    raise RuntimeError(
        f"{case.name} was never busy all the time, not even when asked for {asked:,.0f} rows/s"
    )


def _run(spark: SparkSession, case: Case, asked: float, seconds: float) -> list[Batch]:
    writer = case.load(spark, round(asked)).writeStream.format("noop")
    with new_checkpoint() as folder, running(writer.option("checkpointLocation", folder).start()) as query:
        began = time.time()
        let_run(query, _SKIP + seconds)
        return batches_since(query, began + _SKIP, _LEAST_BATCHES)


def _busy_seconds(batches: list[Batch]) -> float:
    return sum(batch.duration for batch in batches)


def _rate_while_busy(batches: list[Batch]) -> float:
    return sum(batch.rows for batch in batches) / _busy_seconds(batches)
