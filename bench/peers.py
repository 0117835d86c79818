"""What Spark has for the same rows: its Python Data Source API in three forms, and its socket source.

The API pulls, so a reader has to say how many rows make a batch: `rows`, an option of each format. Spark's
Python workers import this module, and make the pool of `rows.py` once each.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, islice
from typing import Any

import rows
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import StructType

__all__ = ["FORMATS", "serve_lines"]

Offset = dict[str, int]

_PARTITIONS = 2
"""As many as there are cores, unless the option `partitions` says otherwise."""


class _Format(DataSource):
    def schema(self) -> str:
        return rows.SCHEMA

    @property
    def batch_rows(self) -> int:
        return int(self.options["rows"])

    @property
    def partitions(self) -> int:
        return int(self.options.get("partitions", _PARTITIONS))


class Arrow(_Format):
    @classmethod
    def name(cls) -> str:
        return "api_arrow"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return Reader(self.batch_rows, rows.batches, rows.BATCH_ROWS, self.partitions)


class Tuples(_Format):
    @classmethod
    def name(cls) -> str:
        return "api_tuples"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return Reader(self.batch_rows, rows.tuples, 1, self.partitions)


class Simple(_Format):
    @classmethod
    def name(cls) -> str:
        return "api_simple"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        return SimpleReader(self.batch_rows)


class Paced(_Format):
    @classmethod
    def name(cls) -> str:
        return "api_paced"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        return PacedReader(float(self.options["rowsPerSecond"]))


class Partition(_Format):
    @classmethod
    def name(cls) -> str:
        return "api_partition"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return PartitionReader(int(self.options.get("count", 1 << 60)))


FORMATS = (Arrow, Tuples, Simple, Paced, Partition)


class Reader(DataSourceStreamReader):
    """Every partition of a batch has the same number of items, each of which is `item_rows` rows."""

    def __init__(
        self, batch_rows: int, items: Callable[[], Iterator[Any]], item_rows: int, partitions: int
    ) -> None:
        self._items = items
        self._partitions = partitions
        self._partition_items = batch_rows // (partitions * item_rows)
        self._batch_rows = self._partition_items * partitions * item_rows

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"row": 0}

    def latestOffset(self, start: Offset, limit: object) -> Offset:  # noqa: N802
        return {"row": start["row"] + self._batch_rows}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [InputPartition(n) for n in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return islice(self._items(), self._partition_items)


class SimpleReader(SimpleDataSourceStreamReader):
    def __init__(self, batch_rows: int) -> None:
        self._batch_rows = batch_rows

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"row": 0}

    def read(self, start: Offset) -> tuple[Iterator[rows.Row], Offset]:
        # Spark copies the iterator; that of a list is the cheapest to copy.
        return iter(list(islice(rows.tuples(), self._batch_rows))), {"row": start["row"] + self._batch_rows}


class PacedReader(SimpleDataSourceStreamReader):
    """Gives the rows that have become due."""

    def __init__(self, rows_per_second: float) -> None:
        self._pace = rows.Pace(rows_per_second)

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"row": 0}

    def read(self, start: Offset) -> tuple[Iterator[rows.Row], Offset]:
        end = {"row": max(start["row"], self._pace.due())}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[rows.Row]:  # noqa: N802
        """Spark asks for it when a first batch is empty."""
        return iter([self._pace.row(n) for n in range(start["row"], end["row"])])


class PartitionReader(DataSourceStreamReader):
    """One partition with a row per second, until it has so many."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pace = rows.Pace(1)

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"row": 0}

    def latestOffset(self, start: Offset, limit: object) -> Offset:  # noqa: N802
        return {"row": max(start["row"], min(self._count, self._pace.due()))}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [InputPartition(end["row"] - start["row"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield rows.some(partition.value)


def serve_lines(rows_per_second: int) -> int:
    """Sends so many lines to one client. Returns the port."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = server.accept()
        pace = rows.Pace(rows_per_second / rows.LINES)
        with server, client, suppress(OSError):  # The client goes when its query is stopped.
            for n in count():
                pace.wait_for(n)
                client.sendall(rows.lines())

    threading.Thread(target=serve, name="lines", daemon=True).start()
    return int(server.getsockname()[1])
