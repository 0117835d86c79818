# ruff: noqa: N802
"""Rows that are fetched and kept for a batch, and rows that are fetched by their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition


def fetch(first: int, last: int) -> Sequence[int]:
    """What the upstream has of the rows from `first` to below `last`."""
    return range(first, min(last, 6))


class KeepsBatches(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self.batches: dict[int, Sequence[int]] = {}

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        rows = fetch(start["row"], start["row"] + 3)
        end = start["row"] + len(rows)
        self.batches[end] = rows  # to be at hand when Spark asks for them
        return {"row": end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(self.batches[end["row"]])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((n,) for n in partition.value)

    def commit(self, end: dict[str, int]) -> None:
        del self.batches[end["row"]]


class ServesRanges(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        pass

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"row": start["row"] + len(fetch(start["row"], start["row"] + 3))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["row"], end["row"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((n,) for n in fetch(*partition.value))
