"""How old a row is when a function of the driver gets it in real-time mode, at 200 rows per second.

One batch of Spark's lasts longer than the measurement, so that no batch ends in it. A row's timestamp is the
time when it was due. Both clocks are the machine's.
"""

from __future__ import annotations

import time
from datetime import datetime
from statistics import median, quantiles
from typing import Any

from bars import Sample
from cases import Case
from pyspark.sql import SparkSession
from settings import Settings
from spark import let_run, new_checkpoint, running

import headwater as hw

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP = "1g"
JAVA_OPTIONS = "-Xms1g"


def measure(spark: SparkSession, case: Case, settings: Settings) -> Sample:
    delays: list[float] = []

    def take(row: dict[str, Any]) -> None:
        delays.append(
            time.time() - datetime.fromisoformat(row["timestamp"].replace("Z", "+00:00")).timestamp()
        )

    writer = hw.foreach(case.load(spark, case.asks).select("timestamp"), take)
    with new_checkpoint() as folder:
        started = writer.option("checkpointLocation", folder).trigger(realTime="1 hour").start()
        with running(started) as query:
            while not delays:
                let_run(query, 0.1)
            let_run(query, settings.real_time_warmup)
            delays.clear()
            let_run(query, settings.real_time_seconds)
    cuts = quantiles(delays, n=1000)
    return {"median": median(delays), "p99": cuts[989], "p999": cuts[998], "rows": len(delays)}
