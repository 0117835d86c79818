"""What a query costs that has next to nothing to do: CPU time of JVM and Python, in percent of one core.

The JVM's compiler is counted apart. With a batch per second it is at work for many minutes, takes as much as
all the rest, and two runs of one query differ in it by ten points: it tells how long a JVM has been up.
"""

from __future__ import annotations

import time

from bars import Sample
from cases import Case
from processes import compiler_seconds, cpu_seconds
from pyspark.sql import SparkSession
from settings import Settings
from spark import Jvm, batches_since, let_run, running

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP = "1g"
JAVA_OPTIONS = "-Xms1g"


def measure(spark: SparkSession, case: Case, settings: Settings, least_batches: int = 1) -> Sample:
    jvm = Jvm(spark).pid
    # No trigger is set: Spark then asks the source every 10 ms whether there is something new.
    query = case.load(spark, case.asks).writeStream.format("noop").start()
    with running(query):
        batches_since(query, start=0, least=1)
        let_run(query, settings.idle_settle)
        settled, since, used, compiled = time.time(), time.monotonic(), cpu_seconds(), compiler_seconds(jvm)
        let_run(query, settings.idle_seconds)
        percent = 100 / (time.monotonic() - since)
        compiling = compiler_seconds(jvm) - compiled
        return {
            "cpu": percent * (cpu_seconds() - used - compiling),
            "compiler": percent * compiling,
            "batches": len(batches_since(query, settled, least_batches)),
        }
