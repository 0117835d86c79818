"""The sources of the golden checkpoints, and what their upstreams hold.

`write_checkpoints.py` runs them with a released version, `test_upgrade.py` with the current one. Do not
change a name, a schema, a cursor or a row here: the checkpoints were written with them.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from unittest import mock

import headwater as hw
from headwater.sim import RsvpSim, WikimediaSim
from headwater.sources import meetup_rsvp, ndjson, random_alpha, sse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows = list[dict[str, Any]]

START = datetime(2024, 1, 1, tzinfo=timezone.utc)

SINCE: dict[int, Any] = {}
"""The cursor that each shard of a resumable source was last started with."""


@dataclass(frozen=True)
class Upstream:
    """What a query reads in one run."""

    source: Any
    rows: Rows
    """All rows, from the first one on, without the column `Kind.arrival`."""
    started_at: Callable[[], list[Any]] = list
    """The positions at which the source has started to read, one for each shard; empty if it has none."""


@dataclass(frozen=True)
class Kind:
    """One kind of source. `upstream(first, end)` has `end` records; a plain feed sends those from `first`."""

    upstream: Callable[[int, int], AbstractContextManager[Upstream]]
    options: dict[str, Any] = field(default_factory=dict)
    """Options of `hw.stream`."""
    stream: str | None = None
    """The column whose values are the shards or partitions. Rows are in order within each of them."""
    arrival: str | None = None
    """The column that says when the source read a row."""
    endless: bool = False
    """Whether more rows follow those in `Upstream.rows`."""
    position: Callable[[Any], Any] = lambda cursor: cursor
    """What `Upstream.started_at` has for a cursor."""


def read_rows(frame: DataFrame) -> Rows:
    """The rows of a batch, in order, as JSON has them. Times are in UTC, with microseconds."""
    from pyspark.sql.functions import struct, to_json

    options = {
        "timeZone": "UTC",
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "ignoreNullFields": "false",
    }
    return [
        json.loads(row.json) for row in frame.select(to_json(struct("*"), options).alias("json")).collect()
    ]


# Sources written in Python


@hw.source("n LONG, word STRING")
def golden_plain(first: int, end: int) -> Iterator[Any]:
    yield [(n, f"word {n}") for n in range(first, end)]


@contextmanager
def plain(first: int, end: int) -> Iterator[Upstream]:
    yield Upstream(golden_plain(first, end), [{"n": n, "word": f"word {n}"} for n in range(end)])


@hw.source(
    "n LONG, word STRING, price DECIMAL(9, 2), at TIMESTAMP, day DATE, tags ARRAY<STRING>, "
    "place STRUCT<name: STRING, lat: DOUBLE>, counts MAP<STRING, INT>, raw BINARY, odd BOOLEAN NOT NULL"
)
def golden_resumable(end: int, *, since: Any = None) -> Iterator[Any]:
    SINCE[0] = since
    first = 0 if since is None else since["last"] + 1
    yield hw.At({"last": end - 1, "page": "Zürich"}, [_typed(n) for n in range(first, end)])


def _typed(n: int) -> tuple[Any, ...]:
    return (
        n,
        None if n % 5 == 4 else f"Wörter {n} " * 8,
        Decimal(n) + Decimal("0.25"),
        START + timedelta(seconds=n, microseconds=1),
        date(2024, 1, 1) + timedelta(days=n),
        [f"tag {n}", None],
        (f"place {n}", n / 2),
        {"count": n},
        bytes([n, 255]),
        n % 2 == 1,
    )


def _typed_as_json(n: int) -> dict[str, Any]:
    _, word, price, at, day, tags, place, counts, raw, odd = _typed(n)
    return {
        "n": n,
        "word": word,
        "price": float(price),
        "at": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "day": day.isoformat(),
        "tags": tags,
        "place": dict(zip(("name", "lat"), place, strict=True)),
        "counts": counts,
        "raw": base64.b64encode(raw).decode(),
        "odd": odd,
    }


@contextmanager
def resumable(first: int, end: int) -> Iterator[Upstream]:
    SINCE.clear()
    yield Upstream(golden_resumable(end), [_typed_as_json(n) for n in range(end)], _since)


@hw.source("shard INT, n LONG")
def golden_sharded(end: int, *, since: Any = None) -> Iterator[Any]:
    shard = hw.shard().index
    SINCE[shard] = since
    for n in range(0 if since is None else since, _end_of_shard(shard, end)):
        yield hw.At(n + 1, (shard, n))


def _end_of_shard(shard: int, end: int) -> int:
    return end * (shard + 1) // 3


@contextmanager
def sharded(first: int, end: int) -> Iterator[Upstream]:
    SINCE.clear()
    rows = [{"shard": shard, "n": n} for shard in range(2) for n in range(_end_of_shard(shard, end))]
    yield Upstream(golden_sharded(end), rows, _since)


def _since() -> list[Any]:
    return [SINCE[shard] for shard in sorted(SINCE)]


class GoldenPartitioned(hw.PartitionedSource, name="golden_partitioned", schema="p STRING, n LONG"):
    def __init__(self, end: int) -> None:
        self._ends = {"a": end // 4, "b": end - end // 4}

    def partitions(self) -> list[str]:
        return list(self._ends)

    def earliest(self, p: str) -> int:
        return 0

    def latest(self, p: str) -> int:
        return self._ends[p]

    def read(self, p: str, start: int, end: int) -> Iterator[Any]:
        for n in range(start, end):
            yield p, n


@contextmanager
def partitioned(first: int, end: int) -> Iterator[Upstream]:
    source = GoldenPartitioned(end)
    yield Upstream(source, [{"p": p, "n": n} for p in source.partitions() for n in range(source.latest(p))])


# Built-in sources

_WORDS = """
ydtwd eEWO0 oh8mC eERUF gv3hf oK7MO HPc7X 1rVCD 3JAMp NHoNU nvqK9 NEv6g YhxkR vecE7 2xmLX Pyz8O
WhRTo xAh8s ceAlU ETHnf L4r1G tNCwP VgE7S ocIrG SKTwx QoyDS naHCk ZezhP JqWw4 5yvoE xyOtH DkK1g
bpoL0 mjnRu LX1GB Q12dL jLakF JbZxo WN1GO Z4Ydu FKudm jLKSU BTlaP 7kuzw QOpWF wLJPG Vc2wo cd45H
"""
"""Rows 0 to 47 of seed 1. A row of a seed always has the same value."""


@contextmanager
def words(first: int, end: int) -> Iterator[Upstream]:
    source = random_alpha(len=5, rows_per_second=10, seed=1)
    yield Upstream(source, [{"value": value} for value in _WORDS.split()[: first + 4]])


HOST = "http://feed.example"
"""The URL is part of the identity of a source, so it must be the same in every run, whatever port is free.

The simulator is the proxy for this host: a proxy gets the whole URL, and the simulator reads only its path.
"""


@contextmanager
def _proxy(sim: RsvpSim | WikimediaSim) -> Iterator[str]:
    """The URL at which the simulator can be read while the block lasts."""
    variables = {"http_proxy": sim.url.removesuffix(sim.path), "no_proxy": "", "NO_PROXY": ""}
    with mock.patch.dict(os.environ, variables):
        yield HOST + sim.path


TOPIC = "eqiad.mediawiki.recentchange"


@contextmanager
def events(first: int, end: int) -> Iterator[Upstream]:
    with WikimediaSim(seed=1, rate=0, count=end, start=START) as sim, _proxy(sim) as url:
        records = [sim.record(n) for n in range(end)]
        yield Upstream(
            sse(url, allow_http=True),
            [_event(record) for record in records if record["meta"]["topic"] == TOPIC],
            lambda: [request.headers.get("last-event-id") for request in sim.requests],
        )


def _event(record: dict[str, Any]) -> dict[str, Any]:
    after = {"topic": TOPIC, "partition": 0, "offset": record["meta"]["offset"] + 1}
    standby = {"topic": TOPIC.replace("eqiad", "codfw"), "partition": 0, "offset": -1}
    return {"data": _compact(record), "event": "message", "id": _compact([after, standby])}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@contextmanager
def lines(first: int, end: int) -> Iterator[Upstream]:
    schema = "rsvp_id LONG, mtime LONG, response STRING, member STRUCT<member_id: LONG, member_name: STRING>"
    options = {"decode": "json", "schema": schema, "cursor": "mtime", "resume": "query:since_mtime"}
    with RsvpSim(seed=1, rate=0, count=end, start=START) as sim, _proxy(sim) as url:
        yield Upstream(
            ndjson(url, allow_http=True, **options),
            [_fields(sim.record(n)) for n in range(end)],
            lambda: _since_mtime(sim),
        )


def _fields(record: dict[str, Any]) -> dict[str, Any]:
    member = {name: record["member"][name] for name in ("member_id", "member_name")}
    return {name: record[name] for name in ("rsvp_id", "mtime", "response")} | {"member": member}


@contextmanager
def rsvps(first: int, end: int) -> Iterator[Upstream]:
    with RsvpSim(seed=1, rate=0, count=end, start=START) as sim, _proxy(sim) as url:
        yield Upstream(
            meetup_rsvp(url=url, allow_http=True),
            [{"rsvp": sim.line(n).decode().removesuffix("\n")} for n in range(end)],
            lambda: _since_mtime(sim),
        )


def _since_mtime(sim: RsvpSim) -> list[Any]:
    return [int(request.query["since_mtime"]) for request in sim.requests]


KINDS = {
    "plain": Kind(plain),
    "resumable": Kind(resumable),
    "resumable_lz4": Kind(resumable, {"log_compression": "lz4"}),
    "resumable_zstd": Kind(resumable, {"log_compression": "zstd"}),
    "sharded": Kind(sharded, {"concurrency": 2}, stream="shard"),
    "partitioned": Kind(partitioned, stream="p"),
    "random_alpha_memory": Kind(words, arrival="timestamp", endless=True),
    "random_alpha_log": Kind(words, {"durability": "log"}, arrival="timestamp", endless=True),
    "sse": Kind(events, arrival="arrived"),
    "ndjson": Kind(lines),
    # It asks for one millisecond more, and drops the records that it has had.
    "meetup_rsvp": Kind(rsvps, arrival="timestamp", position=lambda cursor: cursor["mtime"] - 1),
}
