"""Meetup's RSVPs, in the protocol of its former public feed: chunked HTTP, a JSON object per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from headwater import RSVP_SCHEMA, At, BadRow, Secret, Source
from headwater.decode import decoder
from headwater.http import Http, Request
from headwater.sources.rsvp_lines import Line, Position

__all__ = ["meetup_rsvp"]


class MeetupRsvp(Source, name="meetup_rsvp", identity=("url",)):
    """Meetup's RSVPs: the time of arrival and the JSON of each, or its fields as columns.

    `decode` = `text` gives `timestamp TIMESTAMP, rsvp STRING`, which `from_json` parses with
    `hw.RSVP_SCHEMA`. `json` gives the columns of `hw.RSVP_SCHEMA`, followed by `timestamp` if `metadata` is
    set. The first start begins with new records, or with the last `since_count` ones. Later starts resume
    after the last record, with `since_mtime`, without gaps or repeats. A line that is not a JSON object is a
    bad row.

    >>> from itertools import islice
    >>> from headwater.sim import RsvpSim
    >>> with RsvpSim(seed=1, rate=0, count=3) as sim:
    ...     for row in islice(meetup_rsvp(url=sim.url, decode="json", since_count=2), 2):
    ...         print(row["rsvp_id"], row["response"])
    1700000001 yes
    1700000002 yes
    """

    def __init__(
        self,
        url: str | None = None,
        decode: Literal["text", "json"] = "text",
        metadata: bool = False,
        since_count: int | None = None,
        headers: Secret | None = None,
        allow_http: bool = False,
        idle_timeout: timedelta = timedelta(seconds=60),
        retry: timedelta = timedelta(seconds=1),
        max_retries: int | None = None,
        connect_timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        if url is None:
            raise ValueError(
                "option 'url' is missing and has no default: Meetup has shut its public feed down. Run "
                "`headwater sim rsvp`, which speaks the same protocol, and use the URL that it prints"
            )
        if since_count is not None and since_count < 0:
            raise ValueError(f"option 'since_count' is {since_count}, it must be 0 or more")
        self._http = Http(
            url,
            headers=headers,
            allow_http=allow_http,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            retry=retry,
            max_retries=max_retries,
        )
        self._since_count = since_count
        self._metadata = metadata
        self._decoder = None
        if decode == "json":
            self._decoder = decoder("json", RSVP_SCHEMA, beside="timestamp TIMESTAMP" if metadata else None)

    @property
    def schema(self) -> Any:
        """The columns, which depend on `decode` and `metadata`."""
        return "timestamp TIMESTAMP, rsvp STRING" if self._decoder is None else self._decoder.schema

    def read(self, since: Any) -> Iterator[At]:
        """Yields all new RSVPs that have arrived, with the cursor after them. Never ends."""
        position = Position(since, self._since_count)
        for connection in self._http.connections(lambda: Request(params=position.params)):
            for lines in connection.lines():
                if new_lines := position.new_lines(lines):
                    if position.cursor is not None:
                        connection.check_cursor(position.params["since_mtime"])
                    yield At(position.cursor, self._rows(new_lines, datetime.now(timezone.utc)))

    def close(self) -> None:
        self._http.close()

    def _rows(self, lines: Sequence[Line], arrived: datetime) -> Any:
        if self._decoder is None:
            return [_text_row(line, arrived) for line in lines]
        extra = {"timestamp": arrived} if self._metadata else {}
        return self._decoder.rows([line.data for line in lines], **extra)


def _text_row(line: Line, arrived: datetime) -> Any:
    row = arrived, line.data.decode("utf-8", "replace")
    return BadRow(line.data, "it is not a JSON object", row) if line.record is None else row


meetup_rsvp = MeetupRsvp
