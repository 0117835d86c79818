"""Records of a URL, one in each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import headwater as hw
from headwater.http import Http, Request
from headwater.sources.decoded import Decoded

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["ndjson"]


class Ndjson(hw.Source, name="ndjson", identity=("url",)):
    """Lines of a streaming answer. With `cursor` and `resume` it goes on after the last of them.

    `cursor` is the path of a field such as `meta.offset`, and `resume` says where its value goes when the
    server is asked again: `query:NAME` or `header:NAME`. Without them the source ends when the answer does,
    and a broken connection is followed by another, which begins where the server likes. `decode`, `schema`,
    `metadata` and `headers` are as those of `sse`.

    >>> from itertools import islice
    >>> from headwater.sim import RsvpSim
    >>> with RsvpSim(seed=1, rate=0, count=2) as sim:
    ...     rsvps = ndjson(sim.url, decode="json", schema="rsvp_id LONG, response STRING")
    ...     print(list(islice(rsvps, 2)))
    [{'rsvp_id': 1700000000, 'response': 'no'}, {'rsvp_id': 1700000001, 'response': 'yes'}]
    """

    def __init__(
        self,
        url: str,
        headers: hw.Secret | None = None,
        decode: str = "text",
        schema: str | None = None,
        metadata: bool = False,
        cursor: str | None = None,
        resume: str | None = None,
        allow_http: bool = False,
        idle_timeout: timedelta = timedelta(seconds=60),
        retry: timedelta = timedelta(seconds=1),
        max_retries: int | None = None,
        max_record_bytes: int = 16 << 20,
    ) -> None:
        self._decoded = Decoded(decode, schema, metadata=metadata)
        self._path = None if cursor is None else _path(cursor)
        self._resume = None if resume is None else _place(resume)
        if (cursor is None) != (resume is None):
            missing = "cursor" if cursor is None else "resume"
            raise ValueError(f"options 'cursor' and 'resume' go together, and {missing!r} is missing")
        self._cursor: Any = None
        self._http = Http(
            url,
            headers=headers,
            allow_http=allow_http,
            idle_timeout=idle_timeout,
            retry=retry,
            max_retries=max_retries,
            max_record_bytes=max_record_bytes,
        )

    @property
    def schema(self) -> StructType:
        """Its columns, as `decode`, `schema` and `metadata` have them."""
        return self._decoded.schema

    def read(self, since: Any) -> Iterator[Any]:
        """All whole lines of what has come at once, with the cursor of the last; reconnects by itself."""
        self._cursor = since
        for connection in self._http.connections(self._request):
            found = False
            for records in connection.lines():
                found = True
                self._cursor = self._after(records)
                yield hw.At(self._cursor, self._decoded.rows(records, connection))
            if connection.complete and self._path is None:
                return
            if connection.complete and not found:
                yield hw.CAUGHT_UP

    def close(self) -> None:
        self._http.close()

    def _after(self, records: list[bytes]) -> Any:
        """The cursor of the last record that has one."""
        if self._path is None:
            return None
        for record in reversed(records):
            if (found := _field(record, self._path)) is not None:
                return found
        return self._cursor

    def _request(self) -> Request:
        if self._resume is None or self._cursor is None:
            return Request()
        kind, name = self._resume
        value = self._cursor if isinstance(self._cursor, str) else json.dumps(self._cursor)
        return Request(params={name: value}) if kind == "query" else Request(headers={name: value.encode()})


def _path(cursor: str) -> list[str]:
    names = cursor.split(".")
    if not all(names):
        raise ValueError(
            f"option 'cursor' is {cursor!r}, it must be names of fields with dots, as meta.offset"
        )
    return names


def _place(resume: str) -> tuple[str, str]:
    kind, _, name = resume.partition(":")
    if (
        kind not in ("query", "header")
        or not name
        or (kind == "header" and not name.replace("-", "").isalnum())
    ):
        raise ValueError(f"option 'resume' is {resume!r}, it must be query:NAME or header:NAME")
    return kind, name


def _field(record: bytes, path: list[str]) -> Any:
    try:
        value = json.loads(record)
    except ValueError:
        return None
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


ndjson = Ndjson
