"""What the applications for a cluster have in common: their settings, and who runs a task."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

__all__ = ["builder", "executor_of_this_task"]

_HERE = Path(__file__).resolve().parent

_SPECULATES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.01",
}


def builder(master: str, folder: Path, *, speculates: bool = False, **more: str) -> SparkSession.Builder:
    """With a log of Spark's events in `events`, which must be there; `more` as in `executor_memory`."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": f"{_HERE}{os.pathsep}{_HERE.parent}",
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],  # they start sooner
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # the first batch is cut for all executors
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        **(_SPECULATES if speculates else {}),
        **{f"spark.{name.replace('_', '.')}": value for name, value in more.items()},
    }
    made = SparkSession.builder.master(master)
    for name, value in settings.items():
        made = made.config(name, value)
    return made


def executor_of_this_task() -> int:
    """Its process id. A worker is forked by Spark's daemon, and that is started by the executor."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
