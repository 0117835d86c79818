"""The lines of an HTTP response, one record each."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import headwater as hw
from headwater.decode import decoder
from headwater.http import Connection, Http, HttpError, Request

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["ndjson"]

_LOG = logging.getLogger("headwater.sources.ndjson")
_MAX_JSON_CURSOR = 1000  # characters of a number or an object; readers of JSON limit the digits of a number


class Ndjson(hw.Source, name="ndjson", identity=("url",), schemes=("ndjson+https", "ndjson+http")):
    """The lines of a streaming response. With `cursor` and `resume` it resumes after the last line.

    `cursor` is the path of a field such as `meta.offset`. `resume` says where its value goes in the next
    request: `query:NAME` or `header:NAME`. Without them the source ends with the response, and after a broken
    connection the next one starts wherever the server does. A last line without a line break counts if it is
    a JSON object, array or string; otherwise it is dropped and, with a cursor, requested again. `decode`,
    `schema`, `metadata` and `headers` are those of `sse`.

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
        connect_timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        self._extra_columns: dict[str, str] = {}
        if metadata or decode == "text":
            self._extra_columns["arrived"] = "TIMESTAMP"
        if metadata:
            self._extra_columns["headers"] = "MAP<STRING, STRING>"
        extra_schema = ", ".join(f"{name} {type}" for name, type in self._extra_columns.items())
        self._decoder = decoder(decode, schema, beside=extra_schema or None)
        self._cursor_path = None if cursor is None else _parse_path(cursor)
        self._resume = None if resume is None else _parse_resume(resume)
        if (cursor is None) != (resume is None):
            missing = "cursor" if cursor is None else "resume"
            raise ValueError(f"options 'cursor' and 'resume' go together, and {missing!r} is missing")
        self._cursor: Any = None
        self._http = Http(
            url,
            headers=headers,
            allow_http=allow_http,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            retry=retry,
            max_retries=max_retries,
            max_record_bytes=max_record_bytes,
        )

    @property
    def schema(self) -> StructType:
        """The columns, which depend on `decode`, `schema` and `metadata`."""
        return self._decoder.schema

    def read(self, since: Any) -> Iterator[Any]:
        """Yields all complete lines that have arrived, with the cursor of the last one, and reconnects."""
        self._cursor = since
        for connection in self._http.connections(self._request):
            is_empty = True
            for records in connection.lines():
                is_empty = False
                self._cursor = self._cursor_after(records, connection)
                yield hw.At(self._cursor, self._rows(records, connection))
            if self._cursor_path is None and connection.unfinished:
                _LOG.warning("%s; it is dropped, and there is no cursor to resume with", connection.failure)
                return
            if connection.complete and self._cursor_path is None:
                return
            if connection.complete and is_empty:
                yield hw.CAUGHT_UP

    def close(self) -> None:
        self._http.close()

    def _request(self) -> Request:
        if self._resume is None or self._cursor is None:
            return Request()
        place, name = self._resume
        value = _to_text(self._cursor)
        return Request(params={name: value}) if place == "query" else Request(headers={name: value.encode()})

    def _cursor_after(self, records: list[bytes], connection: Connection) -> Any:
        """The cursor of the last record that has one."""
        if self._cursor_path is None or self._resume is None:
            return None
        for record in reversed(records):
            if (cursor := _field(record, self._cursor_path)) is not None:
                connection.check_cursor(_new_cursor_text(cursor), header=self._resume[0] == "header")
                return cursor
        return self._cursor

    def _rows(self, records: list[bytes], connection: Connection) -> Any:
        extra: dict[str, Any] = {"arrived": datetime.now(timezone.utc), "headers": connection.headers}
        return self._decoder.rows(records, **{name: extra[name] for name in self._extra_columns})


def _parse_path(cursor: str) -> list[str]:
    names = cursor.split(".")
    if not all(names):
        raise ValueError(
            f"option 'cursor' is {cursor!r}, it must be field names separated by dots, such as meta.offset"
        )
    return names


def _parse_resume(resume: str) -> tuple[str, str]:
    place, _, name = resume.partition(":")
    is_header_name = name.replace("-", "").isalnum()
    if place not in ("query", "header") or not name or (place == "header" and not is_header_name):
        raise ValueError(f"option 'resume' is {resume!r}, it must be query:NAME or header:NAME")
    return place, name


class _LongNumber(str):
    """An integer with more digits than a cursor may have."""


def _field(record: bytes, path: list[str]) -> Any:
    try:
        value = json.loads(record.decode(), parse_int=_parse_int)
    except (ValueError, RecursionError):
        return None
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _parse_int(digits: str) -> Any:
    return int(digits) if len(digits) <= _MAX_JSON_CURSOR else _LongNumber(digits)


def _new_cursor_text(cursor: Any) -> str:
    """The text of a cursor that a server has sent."""
    try:
        text = _to_text(cursor)
    except (ValueError, RecursionError):
        raise HttpError("a record has a cursor that cannot be written as JSON") from None
    if type(cursor) is not str and len(text) > _MAX_JSON_CURSOR:
        raise HttpError(
            f"a record has a cursor of {len(text)} characters. A cursor that is not a string may have "
            f"{_MAX_JSON_CURSOR}: {text[:60]}…"
        )
    return text


def _to_text(cursor: Any) -> str:
    return cursor if isinstance(cursor, str) else json.dumps(cursor, allow_nan=False)


ndjson = Ndjson
