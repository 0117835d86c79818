"""A sink keyed by batch id, in a folder, that also keeps what every attempt of a batch was.

    attempt-NNNNNNNN-K.json    the ids that attempt K of batch N came with, in order
    batch-NNNNNNNN.json        the batch, as its last attempt wrote it

Each file appears whole, by a rename, and the kernel keeps it whoever is killed.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame

IDS = "IF(crc32(CAST(text AS BINARY)) = crc, id, -1 - id) AS id"
"""A row whose text is not the one that was given counts as invented: no id is negative."""

BEFORE, AFTER = "before_sink", "after_sink"


@dataclass(frozen=True)
class Written:
    """What lies in the folder."""

    batches: dict[int, list[int]]
    attempts: dict[int, list[list[int]]]


class Sink:
    """For `foreachBatch`. `reached` is told of the moments at which a test may want to kill."""

    def __init__(self, folder: Path, reached: Callable[[str], None] = lambda point: None) -> None:
        self.folder = folder
        self._reached = reached
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, frame: DataFrame, number: int) -> None:
        ids = [found.id for found in frame.selectExpr(IDS).collect()]
        # When the JVM is killed meanwhile, `collect` takes the end of its socket for the end of the rows.
        # Then this raises, and what came is no attempt.
        frame.sparkSession.sparkContext._jvm.java.lang.System.nanoTime()
        self.write(number, ids)

    def write(self, number: int, ids: list[int]) -> None:
        attempt = len(list(self.folder.glob(f"attempt-{number:08d}-*.json")))
        _put(self.folder / f"attempt-{number:08d}-{attempt}.json", ids)
        self._reached(BEFORE)
        _put(self.folder / f"batch-{number:08d}.json", ids)
        self._reached(AFTER)


def has_batch(folder: Path, number: int) -> bool:
    return (folder / f"batch-{number:08d}.json").exists()


def read(folder: Path) -> Written:
    batches = {int(file.stem.split("-")[1]): _ids(file) for file in folder.glob("batch-*.json")}
    attempts: dict[int, list[list[int]]] = defaultdict(list)
    for file in sorted(folder.glob("attempt-*.json")):
        attempts[int(file.stem.split("-")[1])].append(_ids(file))
    return Written(dict(sorted(batches.items())), dict(attempts))


def _ids(file: Path) -> list[int]:
    return list(json.loads(file.read_text()))


def _put(file: Path, ids: list[int]) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(ids))
    os.replace(part, file)
