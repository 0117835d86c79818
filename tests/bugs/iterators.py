# ruff: noqa: N802
"""Simple readers of the Python API, whose iterator of rows Spark copies: of a generator, and of a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import SimpleDataSourceStreamReader

Rows = Iterator[tuple[int]]


class GivesGenerator(SimpleDataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        pass

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def read(self, start: dict[str, int]) -> tuple[Rows, dict[str, int]]:
        end = {"row": 3}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Rows:
        for n in range(start["row"], end["row"]):
            yield (n,)


class GivesList(GivesGenerator):
    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Rows:
        return iter([(n,) for n in range(start["row"], end["row"])])
