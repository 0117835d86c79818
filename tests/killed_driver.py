"""A query in a driver of its own, apps/feed_driver.py, which a test kills with SIGKILL and starts again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processes import APPS, Process, running, spark_environment

__all__ = ["KilledDriver"]

TIMEOUT = 180


class KilledDriver:
    """Batches stay in files, so `rows` has those of all runs. A batch that is run again replaces its rows."""

    def __init__(self, folder: Path, source: str, options: Mapping[str, str]) -> None:
        self._folder, self._sink, self._runs = folder, folder / "sink", 0
        self._command = [sys.executable, str(APPS / "feed_driver.py"), source, json.dumps(options)]
        self._command += [str(folder / "checkpoint"), str(self._sink)]

    @property
    def rows(self) -> list[Any]:
        return [row for file in sorted(self._sink.glob("*.json")) for row in json.loads(file.read_text())]

    @contextmanager
    def run(self) -> Iterator[Process]:
        """Runs the driver during the block, and then kills it and its JVM with SIGKILL."""
        self._runs += 1
        log = self._folder / f"driver-{self._runs}.log"
        with running(self._command, log, spark_environment()) as process:
            process.until("its query", lambda: "RUNNING" in process.output, TIMEOUT)
            yield process

    def run_until(self, condition: Callable[[list[Any]], bool], what: str) -> None:
        """Runs the driver until its rows meet the condition, and kills it then."""
        with self.run() as process:
            process.until(what, lambda: condition(self.rows), TIMEOUT)
