# ruff: noqa: N802
"""Offsets that begin anew with each start, at 0 and at -1, and one that goes on from where Spark stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition


class CountsAnew(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self.count = 0

    def initialOffset(self) -> dict[str, int]:
        return {"count": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        self.count += 3  # three more have come
        return {"count": self.count}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["count"], end["count"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((n,) for n in range(*partition.value))


class NumbersAnew(CountsAnew):
    """The offset is the number of the last row, and not how many there are: with none yet it is -1."""

    def __init__(self, options: Any) -> None:
        self.count = -1

    def initialOffset(self) -> dict[str, int]:
        return {"count": -1}

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        start, end = partition.value
        return ((n,) for n in range(start + 1, end + 1))


class CountsOn(CountsAnew):
    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"count": start["count"] + 3}
