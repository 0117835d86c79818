"""A real standalone cluster: rows travel inside tasks and are decoded on executors."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, event_log_conf, events, standalone_cluster
from processes import APPS, JAR, SPARK_HOME, Process, Run, running, spark_environment, submit
from test_submit import PYTHON_APP, SCALA_APP, check_rows
from words import words

import headwater as hw

pytestmark = pytest.mark.process

LENGTH, ROWS_PER_BATCH, BATCHES, SEED = 1024, 1000, 5, 7  # as in apps/cluster_reader.py


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def ended_tasks(folder: Path) -> list[dict[str, Any]]:
    return [event for event in events(folder / "events") if event["Event"] == "SparkListenerTaskEnd"]


def executors_of(tasks: list[dict[str, Any]]) -> set[str]:
    return {task["Task Info"]["Executor ID"] for task in tasks}


@pytest.mark.parametrize("app", [SCALA_APP, PYTHON_APP], ids=["scala", "python"])
def test_an_app_on_a_cluster_reads_its_rows_on_executors(
    app: list[str], cluster: Cluster, tmp_path: Path
) -> None:
    conf = [*event_log_conf(tmp_path / "events"), "--conf", "spark.driver.host=127.0.0.1"]
    where = ["--master", cluster.url, "--executor-memory", "512m", "--jars", str(JAR)]
    submit([*where, *conf, *app, "12", "1000", "60", str(tmp_path)], tmp_path)
    check_rows(tmp_path, length=12, at_least=1000)
    tasks = ended_tasks(tmp_path)
    assert tasks
    assert executors_of(tasks) <= {"0", "1"}  # and not "driver"


def test_a_python_source_runs_in_the_driver_and_its_rows_are_read_on_executors(
    cluster: Cluster, tmp_path: Path
) -> None:
    conf = [*event_log_conf(tmp_path / "events"), "--conf", "spark.driver.host=127.0.0.1"]
    where = ["--master", cluster.url, "--executor-memory", "512m", "--jars", str(JAR)]
    submit([*where, *conf, str(APPS / "python_on_cluster.py"), str(tmp_path / "out.json")], tmp_path)
    found = json.loads((tmp_path / "out.json").read_text())
    flat = [[n, "w" * (n % 50)] for n in range(20_000)]
    assert found["flat_rows"] == flat
    assert found["nested_rows"] == [[*row, [str(row[0])] if row[0] % 3 else None] for row in flat]
    assert executors_of(ended_tasks(tmp_path)) <= {"0", "1"}


def read_batches(folder: Path) -> list[list[str]]:
    return [json.loads((folder / f"batch-{n}.json").read_text()) for n in range(BATCHES)]


def reader(how: str, cluster: Cluster, folder: Path) -> tuple[list[str], Path, dict[str, str]]:
    (folder / "events").mkdir()
    script = str(APPS / "cluster_reader.py")
    return [sys.executable, script, cluster.url, str(folder), how], folder / "reader.log", spark_environment()


def check_exact(folder: Path) -> None:
    """Nothing lost, repeated, reordered or invented, and each batch as full as the limit says."""
    batches = read_batches(folder)
    assert [len(batch) for batch in batches] == [ROWS_PER_BATCH] * BATCHES
    assert [value for batch in batches for value in batch] == words(SEED, ROWS_PER_BATCH * BATCHES, LENGTH)


def held_executor(process: Process, folder: Path) -> int:
    return process.until(
        "a held task", lambda: int((folder / "held").read_text()) if (folder / "held").exists() else None, 90
    )


def test_an_executor_killed_in_a_task_costs_no_row_and_repeats_none(cluster: Cluster, tmp_path: Path) -> None:
    with running(*reader("kill", cluster, tmp_path)) as process:
        os.kill(held_executor(process, tmp_path), signal.SIGKILL)
        process.wait(90)
    check_exact(tmp_path)
    tasks = ended_tasks(tmp_path)
    assert "driver" not in executors_of(tasks)
    assert "ExecutorLostFailure" in {task["Task End Reason"]["Reason"] for task in tasks}


def test_a_task_run_twice_by_speculation_gives_its_rows_once(cluster: Cluster, tmp_path: Path) -> None:
    with running(*reader("speculate", cluster, tmp_path)) as process:
        process.wait(120)
    check_exact(tmp_path)
    tasks = ended_tasks(tmp_path)
    assert executors_of(tasks) == {"0", "1"}
    assert any(task["Task Info"]["Speculative"] for task in tasks)


def test_a_backlog_larger_than_the_drivers_heap_is_read_on_executors(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "events").mkdir()
    command = [sys.executable, str(APPS / "backlog_on_cluster.py"), cluster.url, str(tmp_path)]
    with running(command, tmp_path / "reader.log", spark_environment()) as process:
        process.wait(300)
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["rows"], found["sum"]) == (900_000, sum(range(900_000)))
    assert found["bytes"] > 1.5 * found["most"]
    assert {reads for _, reads in found["readers"]} == {True}
    assert found["driver"] not in {executor for executor, _ in found["readers"]}
    heap = found["heap"]
    assert len(heap) >= 10
    assert max(heap[1:]) - min(heap[1:]) < 32 << 20, heap


def test_attach_reaches_the_executors_of_each_new_context(run: Run, jar: Path) -> None:
    """local-cluster runs executors in JVMs of their own, which get classes only through Spark."""
    found = run(
        """
        import os

        def once():
            made = builder("local-cluster[2,1,512]").config("spark.executor.memory", "512m")
            sooner = {"spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"]}
            spark = hw.attach(made.config(map=sooner).getOrCreate())
            rows = rows_of_a_query(spark)
            life = {"tasks": tasks_see_the_class(spark), "jars": jars_of_executors(spark), "rows": rows}
            spark.stop()
            return life

        report([once(), once()])
        """,
        env={"SPARK_HOME": str(SPARK_HOME)},
    )
    for life in found:
        assert life["tasks"] == [hw.__version__]
        assert life["jars"] == [jar.name]
        assert life["rows"] > 0
