"""The sources under test. They note what they do in files, which outlive a kill: the oracle reads them.

What changes from one start to the next comes from the environment: an option would be the source's own.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headwater as hw

SCHEMA = "id LONG, crc LONG, text STRING"
DRAIN_ROWS = 100
"""So many come in the last, clean run: where they end is known, so rows missing at the very end are seen."""

GROUPS = [1, 1, 1, 7, 1, 1, 300, 1, 0, 1]
"""How many rows one `At` has; 0 is a cursor that moves without a row."""

LARGE_GROUP = 3_000
"""Several frames of the log: all of them, or none."""


def row(id: int, width: int) -> tuple[int, int, str]:
    """A row that shows whether it is what was given: `crc` is that of the text, which depends on the id."""
    text = f"{id:x}." * max(1, width // 8)
    return id, zlib.crc32(text.encode()), text


def note(file: str, line: str) -> None:
    """Adds a line in one write: there whole, or not at all."""
    out = os.open(Path(os.environ["CHAOS_FOLDER"], file), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(out, f"{line}\n".encode())
    finally:
        os.close(out)


class Highest:
    """A number in a file that only grows: the upstream's end, as far as anybody has seen it."""

    def __init__(self, file: str) -> None:
        path = Path(os.environ["CHAOS_FOLDER"], file)
        self._value = int(path.read_text()) if path.exists() else 0
        self._out = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)

    def reach(self, value: int) -> None:
        if value > self._value:
            self._value = value
            os.pwrite(self._out, b"%020d" % value, 0)


def drains() -> bool:
    return os.environ["CHAOS_PACE"] == "drain"


def _wait() -> None:
    if os.environ["CHAOS_PACE"] == "paced":
        time.sleep(0.002)


@hw.source(SCHEMA)
def numbers(*, since: Any = None) -> Iterator[Any]:
    """Counts, from any cursor on, as an upstream does that keeps its events. A cursor has the next id."""
    next_id = 0 if since is None else since["next"]
    end = next_id + DRAIN_ROWS if drains() else None
    note("starts.jsonl", json.dumps({"next": next_id, "end": end}))
    upstream, width, dice = Highest("upstream.txt"), int(os.environ["CHAOS_WIDTH"]), random.Random(next_id)
    for size in itertools.cycle(GROUPS):
        if width < 1000 and dice.random() < 0.005:
            size = LARGE_GROUP
        if end is not None:
            size = min(size, end - next_id)
        rows = [row(next_id + i, width) for i in range(size)]
        next_id += size
        upstream.reach(next_id)
        yield hw.At({"next": next_id}, rows[0] if size == 1 else rows)
        if next_id == end:
            return
        _wait()


@hw.source(SCHEMA)
def ticks() -> Iterator[Any]:
    """Live: what it gave is gone from the upstream. Each id is noted first, so that none is given twice."""
    given = Path(os.environ["CHAOS_FOLDER"], "given.txt")
    ids = [int(line.split()[1]) for line in given.read_text().splitlines()] if given.exists() else []
    first = ids[-1] + 1 if ids else 0
    for id in itertools.count(first):
        if drains() and id == first + DRAIN_ROWS:
            return
        note(given.name, f"{os.environ['CHAOS_ROUND']} {id}")
        yield row(id, 50)
        time.sleep(0.002)


class Shards(hw.PartitionedSource, name="shards", schema=SCHEMA):
    """An upstream with partitions that keeps its rows. It grows whenever it is looked at, noted first."""

    def partitions(self) -> list[int]:
        """With some rounds there comes one more."""
        known = len(list(Path(os.environ["CHAOS_FOLDER"]).glob("shard-*.txt")))
        return list(range(known if drains() else max(known, 2 + int(os.environ["CHAOS_ROUND"]) // 3)))

    def earliest(self, partition: int) -> int:
        return 0

    def latest(self, partition: int) -> int:
        file = Path(os.environ["CHAOS_FOLDER"], f"shard-{partition}.txt")
        end = int(file.read_text()) if file.exists() else 0
        if not drains():
            end += random.choice([0, 0, 1, 9])
            fresh = file.with_suffix(".new")
            fresh.write_text(str(end))
            fresh.rename(file)
        return end

    def read(self, partition: int, start: int, end: int) -> Iterator[Any]:
        for offset in range(start, end):
            yield row(offset * MOST_SHARDS + partition, 50)


MOST_SHARDS = 1000
"""The id of a row has its offset and its partition."""
