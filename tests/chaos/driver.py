"""A driver with three queries, to be killed: `python -m chaos.driver`, with its orders in the environment.

    CHAOS_FOLDER      where everything lies: <query>/checkpoint, <query>/sink, notes of the sources
    CHAOS_ROUND       which start this is
    CHAOS_PACE        paced | fast | drain: the last gives a few rows more and ends when all are read
    CHAOS_WIDTH       about how wide a row of `numbers` is
    CHAOS_KILL        QUERY:POINT:SKIP, a moment in that query's sink at which the process group is killed
    CHAOS_DURABILITY  log | memory
    CHAOS_API         v1 | v2, for the feeds

It prints RUNNING and the process ids once all queries have finished a batch of this start.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import headwater as hw
from chaos.feeds import drains  # and the sources
from chaos.sink import Sink

QUERIES = ["numbers", "ticks", "shards"]
RETAINED_BATCHES = 3


def killer(query: str) -> Callable[[str], None]:
    """Ends this process, its JVM and itself, at the moment that the environment names."""
    wanted, point, skip = os.environ.get("CHAOS_KILL", "::0").split(":")
    left = int(skip)

    def reached(where: str) -> None:
        nonlocal left
        if (query, where) == (wanted, point) and RUNNING.is_set():
            if left == 0:
                os.killpg(0, signal.SIGKILL)
            left -= 1

    return reached


RUNNING = threading.Event()
"""Kills come after it, so that the harness can look at the process once in its life."""


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    settings = {
        "spark.sql.streaming.minBatchesToRetain": RETAINED_BATCHES,
        "spark.sql.streaming.numRecentProgressUpdates": 5,
        "spark.headwater.api": os.environ["CHAOS_API"],
        "spark.sql.warehouse.dir": f"{os.environ['CHAOS_FOLDER']}/warehouse",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = hw.session(builder)
    tell_of_batches(spark)
    return spark


def tell_of_batches(spark: SparkSession) -> None:
    """Spark says after each `getBatch` that it has the data: how a kill is known to have come before that."""
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j
    for package in ("streaming", "streaming.runtime"):  # Spark 4.0, and later
        name = f"org.apache.spark.sql.execution.{package}.MicroBatchExecution"
        log4j.core.config.Configurator.setLevel(name, log4j.Level.DEBUG)


def start(spark: SparkSession, name: str) -> StreamingQuery:
    folder = Path(os.environ["CHAOS_FOLDER"], name)
    options = {"maxRowsPerTrigger": "2000"} if name == "shards" else options_of_feed()
    stream = spark.readStream.format(name).options(**options).load()
    writer = stream.writeStream.queryName(name).foreachBatch(Sink(folder / "sink", killer(name)))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return (writer.trigger(availableNow=True) if drains() else writer).start()


def options_of_feed() -> dict[str, str]:
    is_log, is_wide = os.environ["CHAOS_DURABILITY"] == "log", int(os.environ["CHAOS_WIDTH"]) >= 1000
    options = {
        "durability": "log" if is_log else "memory",
        "failOnDataLoss": str(is_log).lower(),
        "availableNowWait": "30s",
        # A batch of wide rows covers several segments, so that its commit deletes more than one.
        "maxRowsPerTrigger": "100000" if is_wide else "2000",
        # The feed is soon held back, so that no backlog grows from round to round. At the end it is not: what
        # a feed gives that is held back, an availableNow query leaves to the next start.
        "logBytes" if is_log else "bufferBytes": "4g" if drains() else "160m" if is_wide else "4m",
    }
    if is_wide and is_log:
        options |= {"logRetainBatches": "0"}
    return options


def main() -> None:
    spark = session()
    queries = [start(spark, name) for name in QUERIES]
    if drains():
        for query in queries:
            if not query.awaitTermination(120):
                sys.exit(f"{query.name} did not end: {query.status}, {query.lastProgress}")
        print("DRAINED", flush=True)
        return
    while not all(query.lastProgress and query.lastProgress["numInputRows"] for query in queries):
        if any(query.awaitTermination(0.1) for query in queries):
            sys.exit("a query ended")
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    print(f"RUNNING python={os.getpid()} jvm={jvm}", flush=True)
    RUNNING.set()
    spark.streams.awaitAnyTermination()
    sys.exit("a query ended")


if __name__ == "__main__":
    main()
