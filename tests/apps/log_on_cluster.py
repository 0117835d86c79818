"""Reads a resumable source on a cluster, its log in a checkpoint that all see; batches go to chaos.sink.

    log_on_cluster.py MASTER FOLDER executor|worker

In batch 2 one task, with its rows in hand, leaves in `held` the process id of its executor, or of the Python
worker that it runs in, and waits to be killed with it. The next attempt runs through.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from chaos.sink import IDS, Sink
from on_cluster import builder, executor_of_this_task
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

import headwater as hw

ROWS_PER_BATCH, BATCHES, HELD_BATCH = 1000, 5, 2


@hw.source("id LONG, crc LONG, text STRING")
def clustered(*, since: int | None = None) -> Iterator[Any]:
    from chaos.feeds import row

    first = 0 if since is None else since + 1
    for id in itertools.count(first, 5):
        yield hw.At(id + 4, [row(id + i, 1000) for i in range(5)])


def main(master: str, folder: Path, whom: str) -> None:
    spark = hw.session(builder(master, folder))
    limits = {"maxRowsPerTrigger": ROWS_PER_BATCH, "minRowsPerTrigger": ROWS_PER_BATCH, "logBytes": "8m"}
    frame = spark.readStream.format("clustered").options(durability="log", **limits).load()
    sink = Sink(folder / "sink")

    def save(batch: DataFrame, number: int) -> None:
        rows = batch.selectExpr(IDS).rdd
        if number == HELD_BATCH:
            rows = rows.mapPartitions(lambda part: hold(part, str(folder), whom))
        if number < BATCHES:
            sink.write(number, [found.id for found in rows.collect()])

    query = frame.writeStream.foreachBatch(save).option("checkpointLocation", str(folder / "check")).start()
    deadline = time.monotonic() + 120
    while not (folder / "sink" / f"batch-{BATCHES - 1:08d}.json").exists():
        if query.awaitTermination(0.1) or time.monotonic() > deadline:
            sys.exit(f"the query did not get to its end: {query.status}, {query.lastProgress}")
    spark.stop()


def hold(rows: Iterable[Row], folder: str, whom: str) -> Iterator[Row]:
    """On an executor. The first attempt of one task comes no further."""
    task = TaskContext.get()
    assert task is not None
    taken = list(rows)
    if task.partitionId() == 0 and task.attemptNumber() == 0:
        pid = executor_of_this_task() if whom == "executor" else os.getpid()
        Path(folder, "held.part").write_text(str(pid))
        Path(folder, "held.part").rename(Path(folder, "held"))
        time.sleep(60)
        raise TimeoutError("held for 60 s")
    return iter(taken)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
