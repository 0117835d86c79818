"""A real standalone cluster on loopback, from the installed pyspark package: a master and two workers."""

from __future__ import annotations

import itertools
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import IN_SHORT, SPARK_HOME, Process, running, spark_environment

# Two names of one machine: Spark starts no second copy of a task on the host that runs the first.
WORKERS = ["127.0.0.1", "localhost"]


@dataclass(frozen=True)
class Cluster:
    url: str
    status_url: str
    add_worker: Callable[[str], Process]
    """One more, with one core, by the name of its host."""

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.status_url, timeout=5) as answer:
            return dict(json.load(answer))

    def has_all_workers(self) -> bool:
        try:
            return bool(self.status()["aliveworkers"] == len(WORKERS))
        except urllib.error.HTTPError:
            return False  # the page's port is open before its pages are there


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """Two workers with one core each, both known to the master. Executors live in their workers' groups."""
    env = spark_environment(
        SPARK_LOCAL_DIRS=str(folder / "local"),
        SPARK_DAEMON_MEMORY="256m",
        SPARK_DAEMON_JAVA_OPTS=IN_SHORT,
        SPARK_MASTER_OPTS="-Dspark.master.rest.enabled=false",  # it would take a fixed port
    )
    with ExitStack() as stack:

        def start(name: str, role: str, host: str, *arguments: str) -> Process:
            command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}"]
            command += ["--host", host, "--port", "0", "--webui-port", "0", *arguments]
            return stack.enter_context(running(command, folder / f"{name}.log", env))

        master = start("master", "master.Master", "127.0.0.1")
        url = master.until("the master's address", lambda: _found(r"at (spark://127\.0\.0\.1:\d+)", master))
        page = master.until("the master's page", lambda: _found(r"'MasterUI' on port (\d+)", master))
        numbers = itertools.count()

        def add_worker(host: str) -> Process:
            n = next(numbers)
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{n}")]
            return start(f"worker-{n}", "worker.Worker", host, *size, url)

        cluster = Cluster(url, f"http://127.0.0.1:{page}/json/", add_worker)
        for host in WORKERS:
            add_worker(host)
        master.until("all workers", cluster.has_all_workers)
        yield cluster


def _found(pattern: str, process: Process) -> str | None:
    match = re.search(pattern, process.output)
    return match and match[1]


def events(folder: Path) -> list[dict[str, Any]]:
    """Spark's event log, for an application with `event_log_conf`."""
    files = [
        file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(("appstatus", "."))
    ]
    return [json.loads(line) for file in sorted(files) for line in file.read_text().splitlines()]


def event_log_conf(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
