"""Reads a source with partitions on a cluster; batches go to chaos.sink.

    partitioned_on_cluster.py MASTER FOLDER executor|worker|speculate|grow|join|plain

In batch 2 one task, half way through its range, is held up. With `executor` or `worker` it leaves in `held`
the process id of its executor, or of the Python that reads, and waits to be killed; the next attempt runs
through. With `speculate` it waits until Spark runs the same task elsewhere, and then both run on. With `grow`
a third partition appears, with `join` the batch waits for a third executor too. What progress reports say of
the rows of each batch goes to `told.json`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chaos.feeds import MOST_SHARDS, row
from chaos.sink import IDS, Sink
from on_cluster import builder, executor_of_this_task
from pyspark import TaskContext
from pyspark.sql import DataFrame

import headwater as hw

ROWS_PER_BATCH, BATCHES, HELD_BATCH, ROWS = 1000, 5, 2, 10_000


class Clustered(hw.PartitionedSource, name="clustered_shards", schema="id LONG, crc LONG, text STRING"):
    def __init__(self, folder: str, how: str) -> None:
        self._folder, self._how = Path(folder), how

    def partitions(self) -> list[str]:
        return ["a", "b", "c"] if (self._folder / "grown").exists() else ["a", "b"]

    def earliest(self, partition: str) -> int:
        return 0

    def latest(self, partition: str) -> int:
        return ROWS

    def read(self, partition: str, start: int, end: int) -> Iterator[Any]:
        for offset in range(start, end):
            if offset == (start + end) // 2 and partition == "a":
                self._hold()
            yield row(offset * MOST_SHARDS + "abc".index(partition), 1000)

    def _hold(self) -> None:
        """On an executor."""
        task = TaskContext.get()
        assert task is not None
        if not (self._folder / "hold").exists():
            return
        if self._how == "speculate":
            (self._folder / f"attempt-{task.taskAttemptId()}").touch()
            _until(lambda: len(list(self._folder.glob("attempt-*"))) > 1)
        elif self._how in ("executor", "worker") and task.attemptNumber() == 0:
            pid = executor_of_this_task() if self._how == "executor" else os.getpid()
            (self._folder / "held.part").write_text(str(pid))
            (self._folder / "held.part").rename(self._folder / "held")
            time.sleep(60)
            raise TimeoutError("held for 60 s")


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited 60 s in vain"
        time.sleep(0.02)


def main(master: str, folder: Path, how: str) -> None:
    spark = hw.session(builder(master, folder, speculates=how == "speculate"))
    frame = hw.stream(spark, Clustered(str(folder), how), max_rows_per_trigger=ROWS_PER_BATCH)
    sink = Sink(folder / "sink")

    def save(batch: DataFrame, number: int) -> None:
        if number == HELD_BATCH:
            (folder / "hold").touch()
            if how in ("grow", "join"):
                (folder / "grown").touch()
                _until(lambda: len(hw.feeds()[0].partitions) == 3)
            if how == "join":
                _until(lambda: spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() == 4)
        if number < BATCHES:
            sink.write(number, [found.id for found in batch.selectExpr(IDS).collect()])
        (folder / "hold").unlink(missing_ok=True)

    query = frame.writeStream.foreachBatch(save).option("checkpointLocation", str(folder / "check")).start()
    deadline = time.monotonic() + 180
    while not (folder / "sink" / f"batch-{BATCHES - 1:08d}.json").exists():
        if query.awaitTermination(0.1) or time.monotonic() > deadline:
            sys.exit(f"the query did not get to its end: {query.status}, {query.lastProgress}")
    query.stop()
    told = {
        report["batchId"]: (report["numInputRows"], int(report["sources"][0]["metrics"]["rowsInBatch"]))
        for report in query.recentProgress
        if report["numInputRows"] > 0
    }
    (folder / "told.json").write_text(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
