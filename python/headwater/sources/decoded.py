"""Records of HTTP answers as columns, with what is known of them beside: for sources that have `decode`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.decode import decoder
from headwater.http import Connection

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Decoded"]


class Decoded:
    """Text comes with the columns of `beside` and the time of arrival, other columns only with `metadata`.

    `metadata` adds the headers of the answer too.

    >>> Decoded("text", None, metadata=False, beside="id STRING").schema.names
    ['data', 'id', 'arrived']
    """

    def __init__(self, decode: str, schema: str | None, *, metadata: bool, beside: str = "") -> None:
        columns = [beside, "arrived TIMESTAMP", "headers MAP<STRING, STRING>" if metadata else ""]
        self._has_more = metadata or decode == "text"
        more = ", ".join(filter(None, columns)) if self._has_more else None
        self._decoder = decoder(decode, schema, beside=more)
        self._metadata = metadata

    @property
    def schema(self) -> StructType:
        return self._decoder.schema

    def rows(self, records: Sequence[bytes] | pa.Array, connection: Connection, **beside: Any) -> Any:
        """What may stand under one `hw.At`."""
        if not self._has_more:
            return self._decoder.rows(records)
        headers = {"headers": connection.headers} if self._metadata else {}
        return self._decoder.rows(records, **beside, arrived=datetime.now(timezone.utc), **headers)
