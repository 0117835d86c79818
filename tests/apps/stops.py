"""Starts queries and stops them at random moments, and reports what the driver logged meanwhile.

    stops.py FOLDER SOURCES CYCLES [SEED]

SOURCES are some of `rate`, `log`, `memory` and `partitioned`, with commas between them; all run in one JVM.
CYCLES is the number of stops for each. Writes `stops.json` into FOLDER: for each source the ERROR lines of
the driver's log, the exceptions of queries, and the checkpoints that Spark refused afterwards.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import headwater as hw

MOMENTS = ["soon", "first", "batch", "idle", "blocked"]
SINKS = ["noop", "count", "state"]

LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c{{1}}: %m%n%throwable
"""


@hw.source("value LONG")
def stops_busy() -> Iterator[int]:
    """Always has rows; blocks when the buffer is full."""
    n = 0
    while True:
        yield n
        n += 1
        if n % 100 == 0:
            time.sleep(0.001)


@hw.source("value LONG")
def stops_quiet() -> Iterator[int]:
    """A few rows, then none for a long time."""
    yield from range(10)
    while True:
        time.sleep(0.05)
        yield hw.CAUGHT_UP


class StopsPartitioned(hw.PartitionedSource, name="stops_partitioned", schema="value LONG"):
    def partitions(self) -> list[str]:
        return ["a", "b"]

    def earliest(self, partition: str) -> int:
        return 0

    def latest(self, partition: str) -> int:
        return int(time.time() * 1000)

    def read(self, partition: str, start: int, end: int) -> Iterator[int]:
        yield from range(start, end)


def frame_of(spark: SparkSession, source: str, moment: str) -> DataFrame:
    if source == "rate":
        if moment == "idle":
            return spark.readStream.format("rate").load().select("value")
        # It has rows for every trigger, as a busy feed does.
        return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2000).load().select("value")
    if source == "partitioned":
        return hw.stream(spark, StopsPartitioned(), start_from="latest", max_rows_per_trigger=5000)
    feed = stops_quiet() if moment == "idle" else stops_busy()
    limits = {"buffer_rows": 100} if moment == "blocked" and source == "memory" else {}
    # Rows in memory are lost with their query, which is not what is counted here.
    return hw.stream(spark, feed, durability=source, fail_on_data_loss=source == "log", **limits)


def slow_count(batch: DataFrame, number: int) -> None:
    batch.count()
    batch.count()


def start(frame: DataFrame, sink: str, checkpoint: Path | None) -> StreamingQuery:
    if sink == "state":
        frame = frame.groupBy((frame.value % 10).alias("key")).count()
    writer = frame.writeStream.outputMode("update")
    writer = writer.foreachBatch(slow_count) if sink == "count" else writer.format("noop")
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.start()


def wait(query: StreamingQuery, condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert query.isActive, f"ended before {what}: {query.exception()}"
        assert time.monotonic() < end, f"waited in vain for {what}: {query.status}, {query.lastProgress}"
        time.sleep(0.002)


def stop_at(query: StreamingQuery, moment: str, draw: random.Random) -> None:
    if moment == "soon":
        time.sleep(draw.choice([0.0, draw.random() * 0.05, draw.random() * 0.4]))
    elif moment == "first":
        wait(query, lambda: query.status["isDataAvailable"] or query.lastProgress, "a first trigger")
        time.sleep(draw.random() * 0.05)
    else:
        wait(query, lambda: has_rows(query), "a first batch")
        if moment == "batch":
            time.sleep(draw.random() * 0.1)
            wait(query, lambda: query.status["isTriggerActive"], "a batch")
        elif moment == "blocked":
            time.sleep(draw.random() * 0.3)
        else:
            wait(query, lambda: not query.status["isDataAvailable"], "an idle query")
    query.stop()


def has_rows(query: StreamingQuery) -> bool:
    return any(progress["numInputRows"] for progress in query.recentProgress)


def cycle(spark: SparkSession, source: str, number: int, folder: Path, draw: random.Random) -> dict[str, Any]:
    moment, sink = MOMENTS[number % len(MOMENTS)], draw.choice(SINKS)
    checkpoint = folder / f"{source}-{number}" if draw.random() < 0.7 else None
    found: dict[str, Any] = {"moment": moment, "sink": sink, "checkpoint": checkpoint is not None}
    query = start(frame_of(spark, source, moment), sink, checkpoint)
    stop_at(query, moment, draw)
    found["exception"] = first_line(query.exception())
    if checkpoint is not None:
        again = start(frame_of(spark, source, moment), sink, checkpoint)
        try:
            wait(again, lambda: has_rows(again) or again.lastProgress, "a batch of the second start")
        except AssertionError as error:
            found["refused"] = first_line(error)
        again.stop()
        found["exception"] = found["exception"] or first_line(again.exception())
    return found


def first_line(error: Any) -> str | None:
    return None if error is None else str(error).strip()[:2000]


def main(folder: Path, sources: list[str], cycles: int, seed: int) -> None:
    log = folder / "driver.log"
    (folder / "log4j2.properties").write_text(LOG4J.format(file=log))
    options = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"
    spark = hw.session(
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", options)
    )
    results: dict[str, Any] = {}
    for source in sources:
        draw = random.Random(seed)
        start(frame_of(spark, source, "batch"), "noop", None).stop()  # loads classes
        wait_for_listeners(spark)
        before = log.stat().st_size
        found = [cycle(spark, source, number, folder, draw) for number in range(cycles)]
        wait_for_listeners(spark)
        with log.open(errors="replace") as lines:
            lines.seek(before)
            text = lines.read()
        (folder / f"{source}.log").write_text(text)
        results[source] = {
            "stops": len(found),
            "errors": [line for line in text.splitlines() if line.startswith("ERROR ")],
            "dataLoss": text.count("DataLossException:"),
            "exceptions": [one for one in found if one["exception"]],
            "refused": [one for one in found if one.get("refused")],
        }
        (folder / "stops.json").write_text(json.dumps(results, indent=1))
    spark.stop()


def wait_for_listeners(spark: SparkSession) -> None:
    """Tasks that were cancelled report late."""
    tracker = spark.sparkContext.statusTracker()
    end = time.monotonic() + 30
    while tracker.getActiveJobsIds() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3]), int((sys.argv[4:] or [7])[0]))
