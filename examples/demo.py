"""`make demo`: random words stream into Spark for about 20 seconds and are counted as they come.

The table is a streaming aggregation that Spark keeps up to date: words by their first letter. The summary at
the end has what the source says of itself in the query's progress.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

import headwater as hw
from headwater.sources import random_alpha

ROWS_SHOWN = 8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to run (default: 20)")
    seconds = parser.parse_args().seconds

    print("Starting Spark …", flush=True)
    builder = SparkSession.builder.master("local[2]").appName("headwater demo")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", "10000")
    spark = hw.session(builder.config("spark.ui.showConsoleProgress", "false"))
    spark.sparkContext.setLogLevel("ERROR")

    words = hw.stream(spark, random_alpha(len=5))
    counts = words.groupBy(F.upper(words.value.substr(1, 1)).alias("first")).agg(
        F.count("*").alias("words"),
        F.max("timestamp").alias("newest"),
        F.max_by("value", "timestamp").alias("like"),
    )
    writer = counts.writeStream.outputMode("complete").format("memory").queryName("counts")
    query = writer.trigger(processingTime="1 second").start()
    try:
        wait(query, lambda: any(p.numInputRows > 0 for p in query.recentProgress))
        draw = LiveTable()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not query.awaitTermination(1):
            draw(spark.table("counts"), query.lastProgress)
        wait(query, lambda: not query.status["isTriggerActive"])  # a batch that is cut off makes noise
    finally:
        query.stop()
    progress = [p for p in query.recentProgress if p.numInputRows > 0]
    summary(progress)
    spark.stop()
    return 0


def wait(query: StreamingQuery, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline and not query.awaitTermination(0.05):
        pass


class LiveTable:
    """Draws the result of the newest batch over the one before, where the output is a terminal."""

    def __init__(self) -> None:
        self._drawn = 0

    def __call__(self, counts: DataFrame, progress: Any) -> None:
        top = counts.orderBy(F.desc("words"), "first").limit(ROWS_SHOWN).collect()
        lines = [
            f"batch {progress.batchId if progress else '-'}",
            "",
            "  first    words   newest            for example",
        ]
        lines += [f"  {r['first']:<5} {r.words:>8,}   {r.newest:%H:%M:%S.%f}   {r['like']}" for r in top]
        if sys.stdout.isatty() and self._drawn:
            print(f"\x1b[{self._drawn}A\x1b[J", end="")
        print("\n".join([*lines, ""]), flush=True)
        self._drawn = len(lines) + 1


def summary(progress: list[Any]) -> None:
    rows = sum(int(p.sources[0].metrics["rowsInBatch"]) for p in progress)
    began, ended = (
        datetime.fromisoformat(p.timestamp.replace("Z", "+00:00")) for p in (progress[0], progress[-1])
    )
    took = (ended - began).total_seconds() + progress[-1].batchDuration / 1000
    last = progress[-1].sources[0]
    print(f"{rows:,} rows in {len(progress)} batches, {rows / took:,.0f} rows/s")
    print(f"end offset     {last.endOffset}")
    print(f"source metrics {dict(sorted(last.metrics.items()))}")


if __name__ == "__main__":
    sys.exit(main())
