"""Server-sent events of a URL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import headwater as hw
from headwater.http import Connection, Http, HttpError, Request
from headwater.sources.decoded import Decoded
from headwater.sources.sse_events import IDS, EventStream, TimestampIds, id_in

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["sse"]


class Sse(hw.Source, name="sse", identity=("url",)):
    """Events of a server that speaks `text/event-stream`. Goes on after the last id, with `Last-Event-ID`.

    `decode` makes columns of the data: `text`, `binary`, `json` with a schema, or a function `module:name`.
    Text comes with event, id and time of arrival; other columns with `metadata`, which adds the headers of
    the answer too. `headers` are lines of `Name: value`, or a JSON object. `ids` says what ids are: `any`
    texts, of which repeats are dropped, a `sequence` of whole numbers, of which gaps are told as well, or
    `free`.

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
    ) -> None:
        self._decoded = Decoded(decode, schema, metadata=metadata, beside="event STRING, id STRING")
        self._ids = IDS[ids]
        self._last_id: str | None = None
        self._moments = TimestampIds(None)
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
        """All whole events of what has come at once, with the last id; ends when the server says 204."""
        self._last_id, self._moments = id_in(since), TimestampIds(since)
        ids = self._ids(None if self._moments.are_known else self._last_id or None)
        for connection in self._http.connections(self._request):
            if connection.status == 204:  # by the standard: do not come back
                return
            stream = EventStream(self._last_id)
            for chunk in connection.chunks():
                _check(connection)  # not before: a head that was cut off passes for a short one
                events = self._moments.fresh(ids.fresh(stream.feed(chunk)))
                connection.check_size(max(stream.waiting, events.longest))
                self._last_id = stream.last_id
                if stream.retry is not None:
                    self._http.pause_for(stream.retry)
                if events.id:
                    rows = self._decoded.rows(events.data, connection, event=events.event, id=events.id)
                    yield hw.At(self._moments.cursor(self._last_id), rows)
            if connection.complete:
                _check(connection)

    def close(self) -> None:
        self._http.close()

    def _request(self) -> Request:
        headers: dict[str, str | bytes] = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._last_id and self._last_id.strip():
            headers["Last-Event-ID"] = self._moments.rewound(self._last_id).strip().encode()
        return Request(headers=headers)


def _check(connection: Connection) -> None:
    kind = connection.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "text/event-stream":
        raise HttpError(f"the content type of the answer is {kind!r}, it must be text/event-stream", 200)


sse = Sse
