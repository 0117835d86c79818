"""How long a query takes to its first batch where much waits in its log, and what of that is in memory."""

from __future__ import annotations

import time

from bars import Sample
from cases import STARTUP_ROWS, Case
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from settings import Settings
from spark import Jvm, let_run, new_checkpoint, running

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP = "1g"
JAVA_OPTIONS = "-Xms1g"

_TIMEOUT = 300.0


def measure(spark: SparkSession, case: Case, settings: Settings) -> Sample:
    jvm = Jvm(spark)
    with new_checkpoint() as folder:
        with running(_start(spark, case, folder)) as query:
            _wait_for(query, "rowsRead", STARTUP_ROWS)
        before = jvm.heap_bytes()
        began = time.monotonic()
        with running(_start(spark, case, folder)) as query:
            while not _metric(query, "rowsInBatch"):
                let_run(query, 1)
            seconds = time.monotonic() - began
            return {
                "seconds": seconds,
                "heap_before": before,
                "heap_after": jvm.heap_bytes(),
                "log_bytes": _metric(query, "waitingBytes"),
            }


def _start(spark: SparkSession, case: Case, folder: str) -> StreamingQuery:
    return case.load(spark, 0).writeStream.format("noop").option("checkpointLocation", folder).start()


def _wait_for(query: StreamingQuery, metric: str, least: int) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while _metric(query, metric) < least:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{metric} is {_metric(query, metric)}, not {least}. {query.status}")
        let_run(query, 1)


def _metric(query: StreamingQuery, name: str) -> int:
    progress = query.lastProgress
    return int(progress.sources[0].metrics[name]) if progress is not None else 0
