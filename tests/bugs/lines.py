# ruff: noqa: N802
"""The lines of a file that is replaced at times: with an offset that goes back, and one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition


class LinesThereAre(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self.file = Path(options["file"])

    def initialOffset(self) -> dict[str, int]:
        return {"line": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"line": len(self.lines())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["line"], end["line"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        first, last = partition.value
        return ((line,) for line in self.lines()[first:last])

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines()


class LinesOfWhichFile(LinesThereAre):
    def initialOffset(self) -> dict[str, int]:
        return {"file": 0, "line": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"file": self.file.stat().st_ino, "line": len(self.lines())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        first = start["line"] if start["file"] == end["file"] else 0
        return [InputPartition((first, end["line"]))]
