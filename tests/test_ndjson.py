"""The source `ndjson`: lines however they are cut, cursors in records, and restarts of a query."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from http_server import Exchange, chunked, serving, till
from pyspark.sql import SparkSession
from servers import starlette_server
from test_log import Checkpointed

import headwater as hw
from headwater.http import HttpError
from headwater.sim import Cut, CutMidRecord, RsvpSim, Stall
from headwater.sources import ndjson
from headwater.testing import RunningStream

SOON = timedelta(milliseconds=1)
KIND = "application/x-ndjson"


def record(number: int) -> bytes:
    return json.dumps({"meta": {"offset": number}, "word": f"Grüße {number}"}, ensure_ascii=False).encode()


def lines(first: int, last: int) -> bytes:
    return b"".join(record(n) + b"\n" for n in range(first, last + 1))


def resumable(url: str, resume: str = "query:after", **options: Any) -> Any:
    return ndjson(url, cursor="meta.offset", resume=resume, **{"retry": SOON, **options})


def texts(source: Any, since: Any = None) -> Iterator[bytes]:
    for item in source.read(since):
        if item is not hw.CAUGHT_UP:
            yield from (one["data"].encode() for one in item.rows.to_pylist())


def gone(exchange: Exchange) -> None:
    exchange.answer(404)


def test_each_line_is_a_row_with_its_time() -> None:
    before = datetime.now(timezone.utc)
    with serving(lambda e: e.stream(KIND, lines(1, 2))) as server:
        found = list(ndjson(server.url))
    assert [one["data"].encode() for one in found] == [record(1), record(2)]
    assert all(before <= one["arrived"] <= datetime.now(timezone.utc) for one in found)


def test_metadata_adds_the_headers_of_the_answer() -> None:
    options: dict[str, Any] = {"decode": "json", "schema": "word STRING", "metadata": True}
    with serving(lambda e: e.stream(KIND, lines(1, 1), X_Some="thing")) as server:
        (one,) = ndjson(server.url, **options)
        assert ndjson(server.url, **options).schema.names == ["word", "arrived", "headers"]
    assert one["word"] == "Grüße 1"
    assert dict(one["headers"])["x-some"] == "thing"


@pytest.mark.parametrize("step", [1, 2, 3, 5, 1000])
def test_lines_are_whole_wherever_their_bytes_are_cut(step: int) -> None:
    data = lines(1, 3).replace(b"\n", b"\r\n") + b"\n  \n\r\n" + record(4)
    parts = [data[at : at + step] for at in range(0, len(data), step)]
    with serving(lambda e: e.stream(KIND, *parts)) as server:
        assert list(texts(ndjson(server.url))) == [record(n) for n in (1, 2, 3, 4)]


def test_a_packed_feed_is_unpacked() -> None:
    with serving(lambda e: e.stream(KIND, gzip.compress(lines(1, 50)), Content_Encoding="gzip")) as server:
        assert list(texts(ndjson(server.url))) == [record(n) for n in range(1, 51)]


def test_a_clean_end_is_the_end_if_there_is_no_cursor() -> None:
    with serving(lambda e: e.stream(KIND, lines(1, 1))) as server:
        (item,) = list(ndjson(server.url).read(None))
    assert item.cursor is None
    assert len(server.requests) == 1


def test_a_cut_is_followed_by_another_connection_and_half_a_line_is_dropped() -> None:
    def cut(exchange: Exchange) -> None:
        exchange.stream(KIND, lines(1, 2) + record(3), end=False)

    with serving(cut, lambda e: e.stream(KIND, lines(7, 8))) as server:
        assert list(texts(ndjson(server.url, retry=SOON))) == [record(n) for n in (1, 2, 7, 8)]


@pytest.mark.parametrize("resume", ["query:after", "header:X-After"])
@pytest.mark.parametrize("cut", [None, 1, 20, 42])
def test_a_cursor_goes_back_to_the_server(resume: str, cut: int | None) -> None:
    """After clean ends, and after cuts within a record."""

    def handler(exchange: Exchange) -> None:
        given = exchange.query.get("after") or exchange.headers.get("x-after")
        start = 1 if given is None else int(given) + 1
        if start > 12:
            return gone(exchange)
        if cut is None:
            return exchange.stream(KIND, lines(start, min(start + 4, 12)))
        return exchange.stream(KIND, lines(start, start) + lines(start + 1, 12)[:cut], end=False)

    got: list[bytes] = []
    with serving(handler) as server, pytest.raises(HttpError, match="404"):
        got.extend(texts(resumable(server.url, resume)))
    assert got == [record(n) for n in range(1, 13)]


def test_the_cursor_is_that_of_the_last_record_that_has_one() -> None:
    odd = b'oops\n{"meta": 3}\n[]\n{}\n'
    with serving(lambda e: e.stream(KIND, lines(1, 2) + odd), lambda e: e.stream(KIND, odd), gone) as server:
        items = resumable(server.url).read(None)
        assert next(items).cursor == 2
        assert next(items).cursor == 2
        items.close()
    assert server.requests[1].query == {"after": "2"}


@pytest.mark.parametrize(("cursor", "sent"), [(7, "7"), ("a b", "a b"), (1.5, "1.5"), ({"a": 1}, '{"a": 1}')])
def test_a_cursor_is_sent_as_its_text(cursor: Any, sent: str) -> None:
    with serving(gone) as server, pytest.raises(HttpError):
        list(resumable(server.url + "?after=0&x=1").read(cursor))
    assert server.requests[0].query == {"after": sent, "x": "1"}


def test_an_answer_without_records_says_that_all_was_read() -> None:
    with serving(lambda e: e.stream(KIND, lines(1, 1)), lambda e: e.answer(204), gone) as server:
        items = resumable(server.url).read(None)
        assert next(items).cursor == 1
        assert next(items) is hw.CAUGHT_UP


def test_a_line_is_given_when_it_has_come() -> None:
    steps = threading.Semaphore(0)

    def handler(exchange: Exchange) -> None:
        exchange.stream(KIND, end=False)
        for number in range(1, 4):
            assert steps.acquire(timeout=10)
            exchange.send(chunked(lines(number, number)))
        exchange.hang()

    with serving(handler) as server:
        source = ndjson(server.url)
        found = texts(source)
        for number in range(1, 4):
            steps.release()
            assert next(found) == record(number)
        source.close()
        assert list(found) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"cursor": "a"}, "'resume' is missing"),
        ({"resume": "query:a"}, "'cursor' is missing"),
        ({"cursor": "a..b", "resume": "query:a"}, r"option 'cursor' is 'a\.\.b'"),
        ({"cursor": "a", "resume": "a"}, "option 'resume' is 'a', it must be query:NAME or header:NAME"),
        ({"cursor": "a", "resume": "query:"}, "option 'resume'"),
        ({"cursor": "a", "resume": "header:a b"}, "option 'resume'"),
        ({"url": "http://example.org"}, "allow_http"),
        ({"decode": "json"}, "schema"),
    ],
)
def test_wrong_options_are_told_before_anything_is_asked(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ndjson(**{"url": "https://example.org/", **options})


def silent(exchange: Exchange) -> None:
    exchange.hang()


def waiting(exchange: Exchange) -> None:
    exchange.stream(KIND, lines(1, 2) + b"half", end=False)
    exchange.hang()


def busy(exchange: Exchange) -> None:
    exchange.answer(429, Retry_After="500")


@pytest.mark.parametrize("state", [silent, waiting, busy])
def test_close_from_another_thread_ends_a_read(state: Callable[[Exchange], None]) -> None:
    with serving(state) as server:
        source = ndjson(server.url)
        thread = threading.Thread(target=lambda: list(texts(source)))
        thread.start()
        till(lambda: server.requests, "the request")
        begun = monotonic()
        source.close()
        thread.join(10)
        assert not thread.is_alive()
        assert monotonic() - begun < 5


# In a query


def test_a_query_goes_on_after_the_last_durable_record(spark_session: SparkSession, tmp_path: Path) -> None:
    """Through stops, with a server that cuts each connection within a record."""
    count = 40

    def handler(exchange: Exchange) -> None:
        start = int(exchange.query.get("after", 0)) + 1
        exchange.stream(KIND, lines(start, limit)[:300], end=start > limit)
        if start > limit:
            exchange.hang()

    checkpoint = Checkpointed(spark_session, tmp_path)
    checkpoint.sink.columns = ["data"]
    with serving(handler) as server:
        for limit in (10, 23, count):
            with checkpoint.running(resumable(server.url)) as query:
                checkpoint.until(query, limit)
    assert [one[0].encode() for one in checkpoint.sink.rows] == [record(n) for n in range(1, count + 1)]


@pytest.mark.parametrize(("place", "missed"), [(0, 0), (3, 2), (4, 1), (5, 0), (7, 1)])
def test_a_query_loses_only_records_that_share_the_last_cursor(
    place: int, missed: int, spark_session: SparkSession, tmp_path: Path
) -> None:
    """Over a cut, a restart and a cut within a record, each where it stands in eight records with five times.

    The server takes a cursor as "after this one". Where the next record has another, none is lost; those that
    share it with the last one that came do not come any more, and none comes twice.
    """
    count = 100
    faults = [Cut(16 + place), Stall(40 + place), CutMidRecord(64 + place)]
    lost = [fault.after + n for fault in faults for n in range(missed)]
    checkpoint = Checkpointed(spark_session, tmp_path)
    checkpoint.sink.columns = ["data"]
    with RsvpSim(seed=5, rate=0, count=count, faults=faults) as sim:
        for rows in (faults[1].after - missed, count - len(lost)):
            source = ndjson(sim.url, cursor="mtime", resume="query:since_mtime", retry=SOON)
            with checkpoint.running(source) as query:
                checkpoint.until(query, rows)
        assert sim.faults_come == faults
        resumed = [{"since_mtime": str(sim.record(fault.after - 1)["mtime"])} for fault in faults]
        assert [request.query for request in sim.requests] == [{}, *resumed]
        assert {sim.record(n)["mtime"] for n in lost} <= {int(asked["since_mtime"]) for asked in resumed}
        assert [one[0] for one in checkpoint.sink.rows] == [
            sim.line(n).decode().rstrip("\n") for n in range(count) if n not in lost
        ]


def test_a_server_that_is_not_ours_is_read_to_its_end_over_connections_and_restarts(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    with starlette_server(tmp_path) as url:
        checkpoint = Checkpointed(spark_session, tmp_path / "checkpoint")
        checkpoint.sink.columns = ["data", "headers.`content-encoding`"]
        for rows in (100, 200):  # where a connection stays open
            with checkpoint.running(resumable(f"{url}/ndjson", metadata=True)) as query:
                checkpoint.until(query, rows)
            assert len(checkpoint.sink.rows) == rows
    assert checkpoint.sink.rows == [(record(n).decode(), "gzip") for n in range(1, 201)]


def words_of(line: bytes) -> list[tuple[int, str]]:
    found = json.loads(line)
    return [(found["meta"]["offset"], word) for word in found["word"].split()]


@pytest.mark.parametrize(
    ("options", "rows", "bad"),
    [
        ({"decode": "binary"}, [(record(1),), (b"\xff {",), (record(2),)], 0),
        (
            {"decode": f"{__name__}:words_of", "schema": "offset INT, word STRING"},
            [(1, "Grüße"), (1, "1"), (2, "Grüße"), (2, "2")],
            1,
        ),
    ],
    ids=["binary", "a function of one's own"],
)
def test_a_query_has_the_rows_that_a_decoder_makes(
    stream: Callable[..., RunningStream], options: dict[str, Any], rows: list[Any], bad: int
) -> None:
    with serving(lambda e: e.stream(KIND, lines(1, 1) + b"\xff {\n" + lines(2, 2))) as server:
        query = stream(ndjson(server.url, **options), on_bad_row="drop")
        assert query.to_end() == rows
        assert query.feeds[0].bad_rows == bad


def test_an_available_now_query_ends_when_all_was_read(stream: Callable[..., RunningStream]) -> None:
    def handler(exchange: Exchange) -> None:
        start = int(exchange.query.get("after", 0)) + 1
        exchange.stream(KIND, lines(start, min(start + 9, 25)))

    with serving(handler) as server:
        source = resumable(server.url, decode="json", schema="word STRING")
        found = stream(source, available_now=True, available_now_wait="50s").done()
    assert [one.word for one in found] == [f"Grüße {n}" for n in range(1, 26)]


def test_a_query_takes_the_format_and_its_options(spark_session: SparkSession) -> None:
    hw.attach(spark_session)
    with serving(gone) as server:
        reader = (
            spark_session.readStream.format("ndjson")
            .option("url", server.url)
            .option("cursor", "meta.offset")
        )
        frame = reader.option("resume", "query:after").option("decode", "json").schema("word STRING").load()
    assert frame.schema.simpleString() == "struct<word:string>"
