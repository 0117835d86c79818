"""How old a row is when `foreachBatch` gets it, at a few rows per second and without a trigger.

Most of it is the time that Spark takes for a batch whatever the source, and much of that are files of the
checkpoint: it doubles when the disk is busy with something else. So the cases run at the same time, as
queries of one JVM.

A row's timestamp is the time when it was due: a source of headwater's yields it then, and a reader that is
asked gives it when it is next asked. Both clocks are the machine's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from statistics import median, quantiles

from bars import Sample
from cases import Case
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import unix_micros
from settings import Settings
from sink import Sink
from spark import let_run, new_checkpoint, running

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP = "1g"
JAVA_OPTIONS = "-Xms1g"


class Delays(Sink):
    """In seconds, for each batch those of its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[float]] = []

    def take(self, rows: DataFrame) -> None:
        now = time.time()
        due = rows.select(unix_micros("timestamp").alias("micros")).collect()
        self.batches.append([now - row.micros / 1e6 for row in due])


def measure(spark: SparkSession, cases: Sequence[Case], settings: Settings) -> dict[str, Sample]:
    sinks = {case.name: Delays() for case in cases}
    with ExitStack() as stack:
        for case in cases:
            folder = stack.enter_context(new_checkpoint())
            writer = case.load(spark, case.asks).writeStream.foreachBatch(sinks[case.name])
            query = stack.enter_context(running(writer.option("checkpointLocation", folder).start()))
        for sink in sinks.values():
            sink.rest()  # The batch after the first has all that became due while Spark got ready.
        let_run(query, settings.delay_warmup)
        for sink in sinks.values():
            sink.rest()
            sink.batches.clear()
        let_run(query, settings.delay_seconds)
        for sink in sinks.values():
            sink.rest()
        return {name: sample(sink.batches) for name, sink in sinks.items()}


def sample(batches: list[list[float]]) -> Sample:
    delays = [*chain.from_iterable(batches)]
    return {
        "median": median(delays),
        "p95": quantiles(delays, n=20)[-1],
        "rows": len(delays),
        "batches": len(batches),
    }
