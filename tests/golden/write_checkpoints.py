"""Writes the golden checkpoints that `test_upgrade.py` continues. Run it once per release, with that release:

    PYTHONPATH=<release>/python <release>/.venv/bin/python tests/golden/write_checkpoints.py [KIND …]

It writes `checkpoints-<version>/<kind>-<state>` beside this file, for each kind in `sources.py` and two
states:

- `finished`: the query has ended, and so has its last batch.
- `unfinished`: the query was killed while its last batch was in the sink. If the source has a log, more rows
  wait in it.

`expected.json` in each folder has the rows that the sink received, by batch, the number of rows that were
written to the log, and the last durable cursor of each shard.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from sources import KINDS, Rows, read_rows

import headwater as hw

HERE = Path(__file__).resolve().parent

FINISHED, UNFINISHED = 8, 16
"""How many records the upstream has by the end of the first run, and in the second."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the golden checkpoints of this release.")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="all kinds if not given")
    parser.add_argument("--run", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run_queries(arguments.kinds[0], arguments.run)
    else:
        target = HERE / f"checkpoints-{'.'.join(hw.__version__.split('.')[:2])}"
        for kind in arguments.kinds or KINDS:
            write(kind, target)


def write(kind: str, target: Path) -> None:
    """Runs the queries in a process of its own, which is killed, and keeps what it leaves behind."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, kind, "--run", folder]
        process = subprocess.run(command, start_new_session=True, cwd=folder)
        if process.returncode != -signal.SIGKILL:
            raise SystemExit(f"{kind}: the query was not killed, the exit code is {process.returncode}")
        for state in ("finished", "unfinished"):
            checkpoint = Path(folder, state)
            expected = {
                "batches": json.loads((checkpoint / "batches.json").read_text()),
                **log_of(checkpoint),
            }
            (checkpoint / "batches.json").unlink()
            (checkpoint / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")
            shutil.rmtree(target / f"{kind}-{state}", ignore_errors=True)
            shutil.copytree(checkpoint, target / f"{kind}-{state}")


def log_of(checkpoint: Path) -> dict[str, Any]:
    """The number of rows that were ever in the log, and its cursors, as the release itself reads them."""
    command = [sys.executable, "-m", "headwater", "checkpoint", "show", "--json", str(checkpoint)]
    (source,) = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["sources"]
    if source["kind"] != "log":
        return {"log_rows": 0, "cursors": []}
    return {"log_rows": source["rows"]["ranges"][-1][1] + 1, "cursors": list(source["cursors"].values())}


def run_queries(kind: str, folder: Path) -> None:
    """Two runs on one checkpoint. The second one kills this process and its JVM in its first batch."""
    cloudpickle.register_pickle_by_value(sys.modules["sources"])
    spark = hw.session(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false"))
    checkpoint = folder / "unfinished"
    batches: dict[int, Rows] = {}

    def drain(first: int, end: int, *, kill: bool) -> None:
        def sink(frame: DataFrame, batch: int) -> None:
            batches[batch] = read_rows(frame)
            (checkpoint / "batches.json").write_text(json.dumps(batches))
            if kill:
                os.killpg(0, signal.SIGKILL)

        # An AvailableNow query waits for the source first: all rows are in the log before a batch is planned.
        options = {"max_rows_per_trigger": 3, "available_now_wait": wait, **KINDS[kind].options}
        with KINDS[kind].upstream(first, end) as upstream:
            writer = hw.stream(spark, upstream.source, **options).writeStream.foreachBatch(sink)
            writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
            writer.start().awaitTermination()

    wait = "1s" if KINDS[kind].endless else "4s"
    drain(0, FINISHED, kill=False)
    shutil.copytree(checkpoint, folder / "finished")
    drain(FINISHED, UNFINISHED, kill=True)


if __name__ == "__main__":
    main()
