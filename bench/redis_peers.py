"""How one would read a stream with Spark's Python Data Source API: a page of XRANGE for each batch."""

from __future__ import annotations

from collections.abc import Iterator

import redis
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

__all__ = ["FORMATS"]

Offset = dict[str, str]
Row = tuple[str, dict[str, str]]


class Redis(DataSource):
    @classmethod
    def name(cls) -> str:
        return "api_redis"

    def schema(self) -> str:
        return "id STRING, fields MAP<STRING, STRING>"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        return Reader(self.options["url"], int(self.options["rows"]))


FORMATS = (Redis,)


class Reader(SimpleDataSourceStreamReader):
    def __init__(self, url: str, rows: int) -> None:
        self._url, self._rows = url, rows

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"id": "0-0"}

    def read(self, start: Offset) -> tuple[Iterator[Row], Offset]:
        with redis.Redis.from_url(self._url, decode_responses=True) as client:
            rows = client.xrange("messages", f"({start['id']}", count=self._rows)
        return iter(rows), {"id": rows[-1][0]} if rows else start
