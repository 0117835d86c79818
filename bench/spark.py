"""The session that is measured, its JVM, and the progress of a query."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import headwater as hw

__all__ = [
    "Batch",
    "Jvm",
    "batches_since",
    "let_run",
    "new_checkpoint",
    "new_session",
    "rate",
    "running",
    "versions",
]

_HERE = Path(__file__).parent
_JAR = _HERE / "scala" / "target" / f"headwater-bench-{hw.__version__}.jar"

# The threads that compile must not end by themselves: see `compiler_seconds`.
_JAVA_OPTIONS = "-XX:+ExitOnOutOfMemoryError -XX:-UseDynamicNumberOfCompilerThreads"

_TIMEOUT = 120.0
_PLANNING = ("latestOffset", "getOffset", "getBatch", "queryPlanning")  # a source has one of the first two


def new_session(heap: str = "2g", java_options: str = "") -> SparkSession:
    if not _JAR.is_file():
        raise SystemExit(f"{_JAR} is missing: run `make bench`, which builds it")
    # Spark's Python workers get the Python of this process, and import peers.py.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", str(_JAR))
        .config("spark.driver.memory", heap)
        .config("spark.driver.extraJavaOptions", f"{_JAVA_OPTIONS} {java_options}")
        .config("spark.executorEnv.PYTHONPATH", str(_HERE))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
    )
    spark = hw.session(builder)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def versions(spark: SparkSession) -> dict[str, str]:
    return {"spark": spark.version, "java": str(_jvm(spark).java.lang.System.getProperty("java.version"))}


@contextmanager
def new_checkpoint() -> Iterator[str]:
    """A folder for it. A query that has none of its own has a log that is not synced."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as folder:
        yield folder


@contextmanager
def running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    """Stops the query at the end."""
    try:
        yield query
    finally:
        query.stop()


def let_run(query: StreamingQuery, seconds: float) -> None:
    """Waits for so long, or until the query fails, with its error."""
    if query.awaitTermination(max(1, round(seconds))):
        raise RuntimeError(f"the query ended by itself: {query.status}")


def batches_since(query: StreamingQuery, start: float, least: int) -> list[Batch]:
    """The batches that began after `start`; waits until there are enough."""
    deadline = time.monotonic() + _TIMEOUT
    while len(batches := [batch for batch in Batch.all_of(query) if batch.start > start]) < least:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(batches)} batches in {_TIMEOUT} s, not {least}. {query.status}")
        let_run(query, 1)
    return batches


@dataclass(frozen=True)
class Batch:
    """One batch of a query, from its progress report. Times are in seconds."""

    start: float
    duration: float
    rows: int
    waiting_bytes: int
    planning: float
    """Until its tasks can begin: how far it goes, which ranges it has, and Spark's plan."""

    @property
    def end(self) -> float:
        return self.start + self.duration

    @staticmethod
    def all_of(query: StreamingQuery) -> list[Batch]:
        """Those that had rows: reports of a query that waits repeat the batch before."""
        reports = [json.loads(report.json) for report in query.recentProgress]
        return [Batch._read(report) for report in reports if report["numInputRows"] > 0]

    @staticmethod
    def _read(report: dict[str, Any]) -> Batch:
        metrics = report["sources"][0].get("metrics") or {}
        return Batch(
            datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00")).timestamp(),
            report["durationMs"]["triggerExecution"] / 1000,
            report["numInputRows"],
            int(metrics.get("waitingBytes", 0)),
            sum(report["durationMs"].get(step, 0) for step in _PLANNING) / 1000,
        )


def rate(batches: list[Batch]) -> float:
    """Rows per second, from the start of the first batch to the end of the last."""
    return sum(batch.rows for batch in batches) / (batches[-1].end - batches[0].start)


class Jvm:
    """The JVM of a session, as a process and as a heap."""

    def __init__(self, spark: SparkSession) -> None:
        self._lang = _jvm(spark).java.lang
        self.pid = int(self._lang.ProcessHandle.current().pid())

    def heap_bytes(self) -> int:
        """What is alive: a full collection comes first."""
        self._lang.System.gc()
        runtime = self._lang.Runtime.getRuntime()
        return int(runtime.totalMemory() - runtime.freeMemory())


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm
