"""Reads a seeded `random_alpha` on a cluster and leaves each batch in a file of its own, `batch-N.json`.

    cluster_reader.py MASTER FOLDER kill|speculate

In batch 2 one task is held up once its rows are in the executor. With `kill` it waits for its executor to be
killed: it leaves that one's process id in `held`, and a second attempt runs through. With `speculate` it
waits until Spark has started the same task a second time elsewhere.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from on_cluster import builder, executor_of_this_task
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

import headwater as hw
from headwater.sources import random_alpha

LENGTH, ROWS_PER_BATCH, BATCHES, SEED = 1024, 1000, 5, 7
HELD_BATCH = 2


def main(master: str, folder: Path, how: str) -> None:
    made = builder(master, folder, speculates=how == "speculate")
    spark = hw.session(made) if how == "kill" else hw.attach(made.getOrCreate())

    source = random_alpha(len=LENGTH, seed=SEED, rows_per_second=5000)
    frame = hw.stream(spark, source, max_rows_per_trigger=ROWS_PER_BATCH, min_rows_per_trigger=ROWS_PER_BATCH)

    def save(batch: DataFrame, number: int) -> None:
        if number >= BATCHES:
            return
        rows = batch.select("value").rdd
        if number == HELD_BATCH:
            rows = rows.mapPartitions(lambda part: hold(part, str(folder)))
        values = [row.value for row in rows.collect()]
        part = folder / f"batch-{number}.part"
        part.write_text(json.dumps(values))
        part.rename(folder / f"batch-{number}.json")

    query = frame.writeStream.foreachBatch(save).option("checkpointLocation", str(folder / "check")).start()
    deadline = time.monotonic() + 90
    while not (folder / f"batch-{BATCHES - 1}.json").exists():
        if query.awaitTermination(0.1) or time.monotonic() > deadline:
            sys.exit(f"the query did not get to its end: {query.status}, {query.lastProgress}")
    spark.stop()


def hold(rows: Iterable[Row], folder: str) -> Iterator[Row]:
    """On an executor. The first attempt of one task comes no further until there is a file `go`."""
    task = TaskContext.get()
    assert task is not None
    taken = list(rows)
    if task.partitionId() == 0:
        if task.attemptNumber() == 0:
            Path(folder, "held.part").write_text(str(executor_of_this_task()))
            Path(folder, "held.part").rename(Path(folder, "held"))
            deadline = time.monotonic() + 60
            while not Path(folder, "go").exists():
                if time.monotonic() > deadline:
                    raise TimeoutError("held for 60 s")
                time.sleep(0.05)
        else:
            Path(folder, "go").touch()
    return iter(taken)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
