# ruff: noqa: N802
"""A folder with a message in each file: deleted when it is asked for, and when its batch is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition


class DeletesWhenAsked(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self.folder = Path(options["folder"])
        self.taken: list[str] = []

    def initialOffset(self) -> dict[str, int]:
        return {"message": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        for file in sorted(self.folder.iterdir()):
            self.taken.append(file.read_text())
            file.unlink()  # so that it is not read twice
        return {"message": len(self.taken)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(self.taken[start["message"] : end["message"]])]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        return ((message,) for message in partition.value)


class DeletesWhenDone(DataSourceStreamReader):
    def __init__(self, options: Any) -> None:
        self.folder = Path(options["folder"])

    def initialOffset(self) -> dict[str, int]:
        return {"message": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        return {"message": max([start["message"], *(int(file.name) + 1 for file in self.folder.iterdir())])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(range(start["message"], end["message"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        return (((self.folder / str(n)).read_text(),) for n in partition.value)

    def commit(self, end: dict[str, int]) -> None:
        for file in self.folder.iterdir():
            if int(file.name) < end["message"]:
                file.unlink()
