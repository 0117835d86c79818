"""What a query costs that has next to nothing to do: CPU time of JVM and Python, in percent of one core."""

from __future__ import annotations

import time

from bars import Sample
from cases import Case
from processes import cpu_seconds
from pyspark.sql import SparkSession
from settings import Settings
from spark import batches_since, let_run, running

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP = "1g"
JAVA_OPTIONS = "-Xms1g"


def measure(spark: SparkSession, case: Case, settings: Settings) -> Sample:
    # No trigger is set: Spark then asks the source every 10 ms whether there is something new.
    query = case.load(spark, case.asks).writeStream.format("noop").start()
    with running(query):
        batches_since(query, start=0, least=2)
        let_run(query, settings.idle_settle)
        settled, since, used = time.time(), time.monotonic(), cpu_seconds()
        let_run(query, settings.idle_seconds)
        cpu = 100 * (cpu_seconds() - used) / (time.monotonic() - since)
        return {"cpu": cpu, "batches": len(batches_since(query, settled, least=1))}
