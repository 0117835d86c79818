# ruff: noqa: N802
"""Offsets of two shards, written in the order of their answers, and in one order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition


class AsTheyAnswer(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        pass

    def initialOffset(self) -> dict[str, int]:
        return {"left": 0, "right": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        answers = [("left", 2), ("right", 3)]
        random.shuffle(answers)  # all are asked at once, and each answers when it can
        return dict(answers)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((shard, range(start[shard], end[shard]))) for shard in end]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        shard, numbers = partition.value
        return ((f"{shard} {n}",) for n in numbers)


class InOneOrder(AsTheyAnswer):
    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return dict(sorted(super().latestOffset(start, limit).items()))
