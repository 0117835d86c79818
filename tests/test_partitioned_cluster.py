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

pytestmark = pytest.mark.process

ROWS_PER_BATCH, BATCHES, HELD_BATCH = 1000, 5, 2  # as in apps/partitioned_on_cluster.py
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
    told = json.loads((folder / "told.json").read_text())
    assert str(HELD_BATCH) in told
    for number, counts in told.items():
        assert int(number) >= BATCHES or counts == [ROWS_PER_BATCH] * 2, told


def ended_tasks(folder: Path) -> list[dict[str, Any]]:
    return [event for event in events(folder / "events") if event["Event"] == "SparkListenerTaskEnd"]


def reasons(folder: Path) -> set[str]:
    return {task["Task End Reason"]["Reason"] for task in ended_tasks(folder)}


def executors(folder: Path) -> set[str]:
    return {task["Task Info"]["Executor ID"] for task in ended_tasks(folder)}


def held(process: Process, folder: Path) -> int:
    """The process that a task is held in, once it is."""
    process.until("a held task", (folder / "held").exists, 120)
    return int((folder / "held").read_text())


@pytest.mark.parametrize(
    ("whom", "reason"), [("executor", "ExecutorLostFailure"), ("worker", "ExceptionFailure")]
)
def test_an_executor_or_its_python_killed_in_a_task_costs_no_row(
    whom: str, reason: str, cluster: Cluster, tmp_path: Path
) -> None:
    with running(*reader(whom, cluster.url, tmp_path)) as process:
        os.kill(held(process, tmp_path), signal.SIGKILL)
        process.wait(180)
    check_exact(tmp_path)
    assert {"Success", reason} <= reasons(tmp_path)
    assert "driver" not in executors(tmp_path)


def test_a_local_cluster_whose_executor_is_killed_is_exact_too(tmp_path: Path) -> None:
    with running(*reader("executor", LOCAL_CLUSTER, tmp_path)) as process:
        os.kill(held(process, tmp_path), signal.SIGKILL)
        process.wait(180)
    check_exact(tmp_path)
    assert {"Success", "ExecutorLostFailure"} <= reasons(tmp_path)


def test_a_task_run_twice_by_speculation_gives_its_rows_once(cluster: Cluster, tmp_path: Path) -> None:
    with running(*reader("speculate", cluster.url, tmp_path)) as process:
        process.wait(180)
    check_exact(tmp_path)
    assert any(task["Task Info"]["Speculative"] for task in ended_tasks(tmp_path))
    assert len(list(tmp_path.glob("attempt-*"))) > 1  # both were half way through


@pytest.mark.parametrize("local", [False, True], ids=["standalone", "local-cluster"])
def test_a_driver_killed_in_a_batch_and_started_again_goes_on_exactly(
    local: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    master = LOCAL_CLUSTER if local else request.getfixturevalue("cluster").url
    with running(*reader("executor", master, tmp_path)) as process:
        held(process, tmp_path)
        kill_group(process.popen)
    checkpoint = tmp_path / "check"
    assert (checkpoint / "offsets" / str(HELD_BATCH)).exists()
    assert not (checkpoint / "commits" / str(HELD_BATCH)).exists()
    (tmp_path / "hold").unlink()
    with running(*reader("plain", master, tmp_path)) as process:
        process.wait(180)
    check_exact(tmp_path)


def test_a_partition_that_appears_on_a_local_cluster_is_read_from_then_on(tmp_path: Path) -> None:
    with running(*reader("grow", LOCAL_CLUSTER, tmp_path)) as process:
        process.wait(180)
    check_exact(tmp_path)
    batches = sink.read(tmp_path / "sink").batches
    assert [len({id % MOST_SHARDS for id in batches[n]}) for n in (1, BATCHES - 1)] == [2, 3]


def test_a_worker_and_a_partition_that_are_added_are_used_from_then_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    with running(*reader("join", cluster.url, tmp_path)) as process:
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
