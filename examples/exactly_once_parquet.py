"""Exactly once into Parquet: a query is killed while it writes, and no row is lost or there twice.

    python examples/exactly_once_parquet.py

Three logs work together. Headwater's has the rows, and the source's cursor; Spark's says which batch was
begun, with which rows; that of the file sink, `_spark_metadata`, which files belong to a batch that was done.
Files of the killed batch stay behind, and its rows are written again, to others. Spark reads the folder by
that log, and has each row once. The exit status is 1 if it has not.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

import headwater as hw

COUNT = 8000


@hw.source("id LONG, celsius DOUBLE")
def readings(count: int, *, since: int | None = None) -> Iterator[hw.At]:
    """Of a thermometer that keeps them: 1000 per second, from the one after `since` on."""
    print(f"the source is asked for what comes after {since}", flush=True)
    for first in range(0 if since is None else since + 1, count, 100):
        ids = range(first, min(first + 100, count))
        yield hw.At(ids[-1], [(id, 20 + id % 70 / 10) for id in ids])
        time.sleep(0.1)


def run(folder: Path, **trigger: object) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("exactly once")
    spark = hw.session(builder.config("spark.ui.showConsoleProgress", "false"))
    stream = hw.stream(spark, readings(count=COUNT), max_rows_per_trigger=1000, available_now_wait="2m")
    writer = stream.writeStream.format("parquet").option("path", f"{folder}/readings")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(**trigger).start().awaitTermination()
    return spark


def run_and_kill(folder: Path) -> None:
    """The query is a child, in a process group with its JVM. SIGKILL leaves them no time for anything."""
    child = subprocess.Popen([sys.executable, __file__, "--child", str(folder)], start_new_session=True)
    deadline = time.monotonic() + 120
    try:
        while child.poll() is None and time.monotonic() < deadline:
            os.killpg(child.pid, signal.SIGSTOP)  # so that what is seen now is what is killed
            done, beside = files(folder)
            if done >= 2 and beside:
                return
            os.killpg(child.pid, signal.SIGCONT)
            time.sleep(0.005)
        sys.exit("the query was not seen while it wrote a file")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def files(folder: Path) -> tuple[int, int]:
    """How many the sink's log has, and how many lie beside those, of a batch that is not done."""
    logs = (folder / "readings" / "_spark_metadata").glob("[0-9]*")
    lines = [line for log in logs for line in log.read_text().splitlines()[1:]]
    done = {Path(json.loads(line)["path"]).name for line in lines}
    return len(done), len({file.name for file in (folder / "readings").glob("*.parquet")} - done)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="headwater-parquet-") as name:
        run_and_kill(Path(name))
        print("killed, with {} files in the sink's log, and {} beside it".format(*files(Path(name))))
        spark = run(Path(name), availableNow=True)
        print("ended, with {} files in the sink's log, and {} beside it".format(*files(Path(name))))
        table = spark.read.parquet(f"{name}/readings")
        rows, ids = (
            table.count(),
            table.where(f"id BETWEEN 0 AND {COUNT - 1}").select("id").distinct().count(),
        )
        print(f"{rows} rows: lost {COUNT - ids}, repeated or invented {rows - ids}")
        spark.stop()
        return int(not rows == ids == COUNT)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        run(Path(sys.argv[2]), processingTime="0 seconds")
    else:
        sys.exit(main())
