"""How one would read the same server with Spark's Python Data Source API: a connection for each batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

import requests
import sseclient
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

__all__ = ["FORMATS"]

Offset = dict[str, int]
Row = tuple[str]

_CHUNK = 65_536


class Ndjson(DataSource):
    @classmethod
    def name(cls) -> str:
        return "api_ndjson"

    def schema(self) -> str:
        return "data STRING"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        return LinesReader(self.options["url"], int(self.options["rows"]))


class Sse(Ndjson):
    @classmethod
    def name(cls) -> str:
        return "api_sse"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        return EventsReader(self.options["url"], int(self.options["rows"]))


FORMATS = (Ndjson, Sse)


class LinesReader(SimpleDataSourceStreamReader):
    def __init__(self, url: str, rows: int) -> None:
        self._url, self._rows = url, rows

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"id": -1}

    def read(self, start: Offset) -> tuple[Iterator[Row], Offset]:
        params = {"since": start["id"]} if start["id"] >= 0 else {}
        with requests.get(self._url, params=params, stream=True, timeout=10) as response:
            lines = list(islice(response.iter_lines(chunk_size=_CHUNK), self._rows))
        return iter([(line.decode(),) for line in lines]), {"id": json.loads(lines[-1])["id"]}


class EventsReader(LinesReader):
    def read(self, start: Offset) -> tuple[Iterator[Row], Offset]:
        headers = {"Last-Event-ID": str(start["id"])} if start["id"] >= 0 else {}
        with requests.get(self._url, headers=headers, stream=True, timeout=10) as response:
            client = sseclient.SSEClient(response.iter_content(_CHUNK))
            events = list(islice(client.events(), self._rows))
        return iter([(event.data,) for event in events]), {"id": int(events[-1].id)}
