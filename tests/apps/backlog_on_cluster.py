"""Works off a log that is larger than the driver's heap, on a cluster: tasks read its files on executors.

    backlog_on_cluster.py MASTER FOLDER

The first batch waits until the backlog is there. Writes to `found.json` what came, how large the driver's
heap was after each batch, how large the backlog was, and who had its files open while a batch was read.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from on_cluster import builder, executor_of_this_task
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import headwater as hw

ROWS, WIDTH, BATCH_ROWS = 900_000, 1000, 1000
HEAP = "512m"


@hw.source("id LONG, text STRING")
def backlog(*, since: int | None = None) -> Iterator[Any]:
    first = 0 if since is None else since
    text = pa.array(["x" * WIDTH] * BATCH_ROWS)
    for start in range(first, ROWS, BATCH_ROWS):
        ids = pa.array(range(start, start + BATCH_ROWS), pa.int64())
        yield hw.At(start + BATCH_ROWS, pa.record_batch([ids, text], names=["id", "text"]))


def main(master: str, folder: Path) -> None:
    spark = hw.session(builder(master, folder, driver_memory=HEAP))
    runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
    found: dict[str, Any] = {"rows": 0, "sum": 0, "bytes": 0, "heap": [], "most": int(runtime.maxMemory())}
    found["driver"] = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    log = folder / "check" / "sources" / "0"

    def save(batch: DataFrame, number: int) -> None:
        if number == 0:
            wait_for(lambda: not [feed for feed in hw.feeds() if feed.state != "ended"])
            found["bytes"] = sum(file.stat().st_size for file in log.glob("*.segment"))
            found["readers"] = [list(row) for row in batch.rdd.mapPartitions(who_reads).collect()]
        counted = batch.agg(F.count("*"), F.sum("id"), F.sum(F.length("text"))).head()
        assert counted is not None
        found["rows"] += counted[0]
        found["sum"] += counted[1] or 0
        assert (counted[2] or 0) == WIDTH * counted[0]
        runtime.gc()
        found["heap"].append(int(runtime.totalMemory() - runtime.freeMemory()))

    frame = hw.stream(spark, backlog(), max_bytes_per_trigger="64m", log_compression="none")
    query = frame.writeStream.foreachBatch(save).option("checkpointLocation", str(folder / "check")).start()
    wait_for(lambda: found["rows"] >= ROWS or bool(query.awaitTermination(0.1)), 240)
    query.stop()
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


def who_reads(rows: Iterator[Any]) -> Iterator[tuple[int, bool]]:
    """On an executor, in the middle of a task's rows: its process, and whether that has a segment open."""
    if next(rows, None) is not None:
        executor = executor_of_this_task()
        files = [os.readlink(file) for file in Path(f"/proc/{executor}/fd").iterdir() if file.is_symlink()]
        yield executor, any(file.endswith(".segment") for file in files)


def wait_for(condition: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s; feeds: {hw.feeds()}")
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
