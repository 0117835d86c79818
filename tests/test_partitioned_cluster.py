"""Partitions read on executors that are killed, doubled and added, and by a driver that is killed: exact."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos import sink
from chaos.oracle import MOST_SHARDS, partitioned
from chaos.rounds import TESTS
from cluster import Cluster, events, standalone_cluster
from processes import APPS, Process, kill_group, running, spark_environment

pytestmark = pytest.mark.slow

ROWS_PER_BATCH, BATCHES = 1000, 5  # as in apps/partitioned_on_cluster.py
LOCAL_CLUSTER = "local-cluster[2,1,1024]"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def reader(how: str, master: str, folder: Path) -> tuple[list[str], Path, dict[str, str]]:
    (folder / "events").mkdir(exist_ok=True)
    script = str(APPS / "partitioned_on_cluster.py")
    env = spark_environment(PYTHONPATH=str(TESTS))
    return [sys.executable, script, master, str(folder), how], folder / "reader.log", env


def check_exact(folder: Path) -> None:
    """Nothing lost, repeated, reordered or invented, and each batch as full as the limit says."""
    found = sink.read(folder / "sink")
    assert [len(ids) for ids in found.batches.values()] == [ROWS_PER_BATCH] * BATCHES
    ends: dict[int, int] = {}
    for ids in found.batches.values():
        for id in ids:
            ends[id % MOST_SHARDS] = max(ends.get(id % MOST_SHARDS, 0), id // MOST_SHARDS + 1)
    verdict = partitioned(found, ends, MOST_SHARDS)
    assert verdict.is_exact, verdict
    assert sum(ends.values()) == ROWS_PER_BATCH * BATCHES


def ended_tasks(folder: Path) -> list[dict[str, Any]]:
    return [event for event in events(folder / "events") if event["Event"] == "SparkListenerTaskEnd"]


def reasons(folder: Path) -> set[str]:
    return {task["Task End Reason"]["Reason"] for task in ended_tasks(folder)}


def executors(folder: Path) -> set[str]:
    return {task["Task Info"]["Executor ID"] for task in ended_tasks(folder)}


def kill_who_is_held(process: Process, folder: Path) -> None:
    held = folder / "held"
    process.until("a held task", held.exists, 120)
    os.kill(int(held.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("whom", "reason"), [("executor", "ExecutorLostFailure"), ("worker", "ExceptionFailure")]
)
def test_an_executor_or_its_python_killed_in_a_task_costs_no_row(
    whom: str, reason: str, cluster: Cluster, tmp_path: Path
) -> None:
    with running(*reader(whom, cluster.url, tmp_path)) as process:
        kill_who_is_held(process, tmp_path)
        process.wait(180)
    check_exact(tmp_path)
    assert {"Success", reason} <= reasons(tmp_path)
    assert "driver" not in executors(tmp_path)


def test_a_local_cluster_whose_executor_is_killed_is_exact_too(tmp_path: Path) -> None:
    with running(*reader("executor", LOCAL_CLUSTER, tmp_path)) as process:
        kill_who_is_held(process, tmp_path)
        process.wait(180)
    check_exact(tmp_path)
    assert {"Success", "ExecutorLostFailure"} <= reasons(tmp_path)


def test_a_task_run_twice_by_speculation_gives_its_rows_once(cluster: Cluster, tmp_path: Path) -> None:
    with running(*reader("speculate", cluster.url, tmp_path)) as process:
        process.wait(180)
    check_exact(tmp_path)
    assert any(task["Task Info"]["Speculative"] for task in ended_tasks(tmp_path))


def test_a_driver_killed_and_started_again_goes_on_exactly(cluster: Cluster, tmp_path: Path) -> None:
    with running(*reader("plain", cluster.url, tmp_path)) as process:
        process.until("the second batch", (tmp_path / "sink" / "batch-00000001.json").exists, 120)
        kill_group(process.popen)
    with running(*reader("plain", cluster.url, tmp_path)) as process:
        process.wait(180)
    check_exact(tmp_path)


def test_a_worker_and_a_partition_that_are_added_are_used_from_then_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    with running(*reader("grow", cluster.url, tmp_path)) as process:
        process.until("the partition is added", (tmp_path / "grown").exists, 120)
        cluster.add_worker("127.0.0.1")
        process.wait(180)
    check_exact(tmp_path)
    batches = sink.read(tmp_path / "sink").batches
    assert {id % MOST_SHARDS for id in batches[1]} == {0, 1}
    assert {id % MOST_SHARDS for id in batches[BATCHES - 1]} == {0, 1, 2}
    assert len(executors(tmp_path)) == 3
    starts = sorted((tmp_path / "check" / "sources" / "0").glob("start-*.json"))
    assert [json.loads(file.read_text())["starts"] for file in starts] == [{"a": 0, "b": 0}, {"c": 0}]
