"""Rows per second of a query that is never idle, once its JVM is warm; and the CPU time of a row.

The CPU time is of JVM and Python together, without the JVM's compiler. Other work on the machine makes a
query slower, and hardly dearer: where two runs differ in rows per second, look there.
"""

from __future__ import annotations

import time
from statistics import median

from bars import Sample
from cases import Case
from processes import compiler_seconds, cpu_seconds
from pyspark.sql import SparkSession
from settings import Settings
from spark import Batch, Jvm, batches_since, let_run, new_checkpoint, rate, running

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
    batches, _ = _run(spark, case, case.asks, settings.throughput_warmup)
    first = rate(batches)
    for _ in range(_TRIES):
        asked = case.asks and _MORE * _rate_while_busy(batches)
        batches, cores = _run(spark, case, asked, settings.throughput_seconds)
        busy = _busy_seconds(batches) / (batches[-1].end - batches[0].start)
        if not case.asks or busy >= _BUSY:
            return {
                "rate": rate(batches),
                "cpu_per_row": cores / rate(batches),
                "first": first,
                "batches": len(batches),
                "batch_rows": median(batch.rows for batch in batches),
                "planning": median(batch.planning for batch in batches),
                "busy": busy,
            }
    raise RuntimeError(
        f"{case.name} was never busy all the time, not even when asked for {asked:,.0f} rows/s"
    )


def _run(spark: SparkSession, case: Case, asked: float, seconds: float) -> tuple[list[Batch], float]:
    """Its batches, and how many cores it kept busy."""
    jvm = Jvm(spark).pid

    def used() -> float:
        return cpu_seconds() - compiler_seconds(jvm)

    writer = case.load(spark, round(asked)).writeStream.format("noop")
    with new_checkpoint() as folder, running(writer.option("checkpointLocation", folder).start()) as query:
        began = time.time()
        let_run(query, _SKIP)
        since, before = time.monotonic(), used()
        let_run(query, seconds)
        batches = batches_since(query, began + _SKIP, _LEAST_BATCHES)
        return batches, (used() - before) / (time.monotonic() - since)


def _busy_seconds(batches: list[Batch]) -> float:
    return sum(batch.duration for batch in batches)


def _rate_while_busy(batches: list[Batch]) -> float:
    return sum(batch.rows for batch in batches) / _busy_seconds(batches)
