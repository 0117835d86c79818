"""RSVPs of Meetup, as its public feed gave them: chunked HTTP, a JSON object per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from headwater import RSVP_SCHEMA, At, BadRow, Secret, Source
from headwater.decode import Decoder, decoder
from headwater.http import Http, Request
from headwater.sources.rsvp_lines import Line, Position

__all__ = ["meetup_rsvp"]

_TEXT = "timestamp TIMESTAMP, rsvp STRING"


class MeetupRsvp(Source, name="meetup_rsvp", identity=("url",)):
    """RSVPs of Meetup: when each came, and its JSON; or its fields as columns.

    `decode` = `text` gives `timestamp TIMESTAMP, rsvp STRING`, and `hw.RSVP_SCHEMA` is for `from_json` of it;
    `json` gives the columns of `hw.RSVP_SCHEMA`, and `timestamp` after them with `metadata` = `true`. The
    first start begins with what comes then, or with the last `since_count` records; each later one goes on
    after the last record, by `since_mtime`, without gap or repeat. A line that is no JSON object is a bad
    row.

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
    ) -> None:
        if url is None:
            raise ValueError(
                "option 'url' is missing, and there is no default: Meetup has shut its public feed down. Run "
                "`headwater sim rsvp`, which speaks the same protocol, and give the URL that it prints"
            )
        if since_count is not None and since_count < 0:
            raise ValueError(f"option 'since_count' is {since_count}, it must be 0 or more records")
        self._http = Http(
            url,
            headers=headers,
            allow_http=allow_http,
            idle_timeout=idle_timeout,
            retry=retry,
            max_retries=max_retries,
        )
        self._since_count = since_count
        self._decoder = _decoder(metadata) if decode == "json" else None
        self._beside = ("timestamp",) if metadata else ()

    @property
    def schema(self) -> Any:
        """Its columns, as `decode` and `metadata` have them."""
        return _TEXT if self._decoder is None else self._decoder.schema

    def read(self, since: Any) -> Iterator[At]:
        """All new RSVPs of what has come at once, with the cursor after them; it goes on for ever."""
        position = Position(since, self._since_count)
        for connection in self._http.connections(lambda: Request(params=position.params)):
            for lines in connection.lines():
                if fresh := position.new(lines):
                    yield At(position.cursor, self._rows(fresh, datetime.now(timezone.utc)))

    def close(self) -> None:
        self._http.close()

    def _rows(self, lines: Sequence[Line], arrived: datetime) -> Any:
        if self._decoder is None:
            return [_row(line, arrived) for line in lines]
        return self._decoder.rows([line.data for line in lines], **dict.fromkeys(self._beside, arrived))


meetup_rsvp = MeetupRsvp


def _decoder(metadata: bool) -> Decoder:
    return decoder("json", RSVP_SCHEMA, beside="timestamp TIMESTAMP" if metadata else None)


def _row(line: Line, arrived: datetime) -> Any:
    row = arrived, line.data.decode("utf-8", "replace")
    return BadRow(line.data, "it is no JSON object", row) if line.record is None else row
