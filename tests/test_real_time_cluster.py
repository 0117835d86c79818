"""Real-time mode with a driver that is killed with -9, and on a standalone cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster import standalone_cluster
from processes import APPS, Process, running, spark_environment

TIMEOUT = 240


@contextmanager
def driver(folder: Path, master: str, durability: str, number: int = 0) -> Iterator[Process]:
    """Killed with -9 at the end of the block, with its JVM."""
    command = [sys.executable, str(APPS / "real_time.py"), master, durability]
    command += [str(folder / "checkpoint"), str(folder / "rows")]
    log = folder / f"driver-{number}.log"
    with running(command, log, spark_environment(), stdin=subprocess.PIPE) as process:
        process.until("its query", lambda: "RUNNING" in process.output, TIMEOUT)
        yield process


def rows(folder: Path) -> list[tuple[int, str, int]]:
    """Those that were written to their end; a kill may leave a part of a line."""
    file = folder / "rows"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("}\n")]
    return [(row["n"], row["run"], row["seq"]) for row in found]


def batches(folder: Path) -> list[int]:
    """The batches that Spark has committed."""
    commits = folder / "checkpoint" / "commits"
    return sorted(int(file.name) for file in commits.glob("[0-9]*")) if commits.exists() else []


def committed_seq(folder: Path) -> int:
    done = batches(folder)
    if not done:
        return -1
    lines = (folder / "checkpoint" / "offsets" / str(done[-1])).read_text().splitlines()
    return int(json.loads(lines[-1])["seq"])


def test_a_driver_killed_again_and_again_leaves_no_gap_and_repeats_only_its_last_batch(
    tmp_path: Path,
) -> None:
    starts = []
    for number in range(3):
        before, expected = len(rows(tmp_path)), committed_seq(tmp_path) + 1
        with driver(tmp_path, "local[2]", "log", number) as process:
            done = len(batches(tmp_path))

            def has_run(done: int = done, before: int = before) -> bool:
                return len(batches(tmp_path)) > done and len(rows(tmp_path)) > before + 100

            process.until("a batch, and rows of the next one", has_run, TIMEOUT)
        starts.append((expected, rows(tmp_path)[before][0]))
    assert [first for _, first in starts] == [expected for expected, _ in starts]
    seen = rows(tmp_path)
    assert sorted({n for n, _, _ in seen}) == list(range(max(n for n, _, _ in seen) + 1))  # no gap
    assert all(n == seq for n, _, seq in seen)  # so none is repeated by (run, seq)
    assert len({run for _, run, _ in seen}) == 1


@pytest.mark.parametrize("durability", ["memory", "log"])
def test_on_a_cluster_tasks_get_rows_from_the_driver(tmp_path: Path, durability: str) -> None:
    with (
        standalone_cluster(tmp_path) as cluster,
        driver(tmp_path, cluster.url, durability) as process,
    ):

        def has_run() -> bool:  # the first batches may end before executors and Python workers are up
            return len(batches(tmp_path)) >= 2 and committed_seq(tmp_path) > 100

        process.until("two batches, with rows", has_run, TIMEOUT)
        committed = committed_seq(tmp_path)
        assert process.popen.stdin is not None
        process.popen.stdin.close()
        process.until("its end", lambda: "EXCEPTION" in process.output, TIMEOUT)
        assert "EXCEPTION None" in process.output
    numbers = [n for n, _, _ in rows(tmp_path)]
    assert numbers[: committed + 1] == list(range(committed + 1))
