"""Server-sent events of a URL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal

import headwater as hw
from headwater.decode import decoder
from headwater.http import Connection, Http, HttpError, Request
from headwater.sources.sse_events import REPEAT_FILTERS, Events, EventStream, TimestampIds, cursor_id

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["sse"]


class Sse(hw.Source, name="sse", identity=("url",), schemes=("sse+https", "sse+http")):
    """Events of a server that sends `text/event-stream`. Resumes after the last id, with `Last-Event-ID`.

    `decode` turns the data of an event into columns: `text`, `binary`, or with a schema `json`, `csv`,
    `msgpack` or a function `module:name`. With `text` there are also columns for event, id and time of
    arrival; with the others `metadata` adds them. `metadata` also adds the headers of the response. `headers`
    are lines of `Name: value`, or a JSON object. `ids` says what the ids mean: `any` strings, of which
    repeats are dropped, a `sequence` of integers, of which gaps are logged as well, or `free`, nothing.

    >>> print(sse("https://example.org/events", headers="Authorization: Bearer abc"))
    sse(url='https://example.org/events', headers=***)
    >>> from itertools import islice
    >>> from headwater.sim import WikimediaSim
    >>> with WikimediaSim(seed=1, rate=0, count=2) as sim:
    ...     print(list(islice(sse(sim.url, decode="json", schema="type STRING, user STRING"), 2)))
    [{'type': 'new', 'user': "O'Neill"}, {'type': 'edit', 'user': 'Nowak'}]
    """

    def __init__(
        self,
        url: str,
        headers: hw.Secret | None = None,
        decode: str = "text",
        schema: str | None = None,
        metadata: bool = False,
        ids: Literal["any", "sequence", "free"] = "any",
        allow_http: bool = False,
        idle_timeout: timedelta = timedelta(seconds=60),
        retry: timedelta = timedelta(seconds=1),
        max_retries: int | None = None,
        max_record_bytes: int = 16 << 20,
        connect_timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        self._extra_columns: dict[str, str] = {}
        if metadata or decode == "text":
            self._extra_columns = {"event": "STRING", "id": "STRING", "arrived": "TIMESTAMP"}
        if metadata:
            self._extra_columns["headers"] = "MAP<STRING, STRING>"
        extra_schema = ", ".join(f"{name} {type}" for name, type in self._extra_columns.items())
        self._decoder = decoder(decode, schema, beside=extra_schema or None)
        self._repeat_filter = REPEAT_FILTERS[ids]
        self._last_id: str | None = None
        self._timestamps = TimestampIds(None)
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
        """Yields all events that have arrived, with the last id as cursor. Ends when the server sends 204."""
        self._last_id, self._timestamps = cursor_id(since), TimestampIds(since)
        repeats = self._repeat_filter(None if self._timestamps.are_known else self._last_id or None)
        for connection in self._http.connections(self._request):
            if connection.status == 204:  # by the standard: do not reconnect
                return
            stream = EventStream(self._last_id)
            for chunk in connection.chunks():
                _check_content_type(connection)  # not earlier: the headers may have been cut off
                events = stream.feed(chunk)
                connection.check_size(max(stream.buffered_bytes, events.longest))
                for id in {stream.last_id, events.longest_id} - {self._last_id, None}:
                    connection.check_cursor(str(id), header=True)
                events = self._timestamps.drop_repeats(repeats.drop_repeats(events))
                self._last_id = stream.last_id
                if stream.retry is not None:
                    self._http.pause_for(stream.retry)
                if events.id:
                    yield hw.At(self._timestamps.cursor(self._last_id), self._rows(events, connection))
            if connection.complete:
                _check_content_type(connection)

    def close(self) -> None:
        self._http.close()

    def _request(self) -> Request:
        headers: dict[str, str | bytes] = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._last_id and self._last_id.strip():
            headers["Last-Event-ID"] = self._timestamps.rewind(self._last_id).strip().encode()
        return Request(headers=headers)

    def _rows(self, events: Events, connection: Connection) -> Any:
        extra: dict[str, Any] = {
            "event": events.event,
            "id": events.id,
            "arrived": datetime.now(timezone.utc),
            "headers": connection.headers,
        }
        return self._decoder.rows(events.data, **{name: extra[name] for name in self._extra_columns})


def _check_content_type(connection: Connection) -> None:
    content_type = connection.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "text/event-stream":
        raise HttpError(
            f"the content type of the response is {content_type[:100]!r}, it must be text/event-stream", 200
        )


sse = Sse
