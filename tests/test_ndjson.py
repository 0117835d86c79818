"""The source `ndjson`: lines however they are split, cursors in records, and restarts of a query."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from http_server import Exchange, chunked, serving
from processes import wait_until
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
    exchange.respond(404)


def test_each_line_is_a_row_with_its_time_of_arrival() -> None:
    before = datetime.now(timezone.utc)
    with serving(lambda e: e.stream(KIND, lines(1, 2))) as server:
        rows = list(ndjson(server.url))
    assert [one["data"].encode() for one in rows] == [record(1), record(2)]
    assert all(before <= one["arrived"] <= datetime.now(timezone.utc) for one in rows)


def test_metadata_adds_the_headers_of_the_response() -> None:
    options: dict[str, Any] = {"decode": "json", "schema": "word STRING", "metadata": True}
    with serving(lambda e: e.stream(KIND, lines(1, 1), X_Some="thing")) as server:
        (one,) = ndjson(server.url, **options)
        assert ndjson(server.url, **options).schema.names == ["word", "arrived", "headers"]
    assert one["word"] == "Grüße 1"
    assert dict(one["headers"])["x-some"] == "thing"


@pytest.mark.parametrize("step", [1, 2, 3, 5, 1000])
def test_lines_are_complete_wherever_their_bytes_are_split(step: int) -> None:
    data = lines(1, 3).replace(b"\n", b"\r\n") + b"\n  \n\r\n" + record(4)
    parts = [data[at : at + step] for at in range(0, len(data), step)]
    with serving(lambda e: e.stream(KIND, *parts)) as server:
        assert list(texts(ndjson(server.url))) == [record(n) for n in (1, 2, 3, 4)]


def test_a_compressed_feed_is_decompressed() -> None:
    with serving(lambda e: e.stream(KIND, gzip.compress(lines(1, 50)), Content_Encoding="gzip")) as server:
        assert list(texts(ndjson(server.url))) == [record(n) for n in range(1, 51)]


def test_without_a_cursor_the_source_ends_with_the_response() -> None:
    with serving(lambda e: e.stream(KIND, lines(1, 1))) as server:
        (item,) = list(ndjson(server.url).read(None))
    assert item.cursor is None
    assert len(server.requests) == 1


def test_after_a_cut_it_reconnects_and_drops_the_partial_line() -> None:
    def cut(exchange: Exchange) -> None:
        exchange.stream(KIND, lines(1, 2) + record(3), end=False)

    with serving(cut, lambda e: e.stream(KIND, lines(7, 8))) as server:
        assert list(texts(ndjson(server.url, retry=SOON))) == [record(n) for n in (1, 2, 7, 8)]


@pytest.mark.parametrize("resume", ["query:after", "header:X-After"])
@pytest.mark.parametrize("cut", [None, 1, 20, 42])
def test_the_cursor_is_sent_back_to_the_server(resume: str, cut: int | None) -> None:
    """After clean ends, and after cuts within a record."""

    def handler(exchange: Exchange) -> None:
        after = exchange.query.get("after") or exchange.headers.get("x-after")
        start = 1 if after is None else int(after) + 1
        if start > 12:
            return gone(exchange)
        if cut is None:
            return exchange.stream(KIND, lines(start, min(start + 4, 12)))
        return exchange.stream(KIND, lines(start, start) + lines(start + 1, 12)[:cut], end=False)

    got: list[bytes] = []
    with serving(handler) as server, pytest.raises(HttpError, match="404"):
        got.extend(texts(resumable(server.url, resume)))
    assert got == [record(n) for n in range(1, 13)]


def test_the_cursor_comes_from_the_last_record_that_has_one() -> None:
    odd = b'oops\n{"meta": 3}\n[]\n{}\n'
    with serving(lambda e: e.stream(KIND, lines(1, 2) + odd), lambda e: e.stream(KIND, odd), gone) as server:
        items = resumable(server.url).read(None)
        assert next(items).cursor == 2
        assert next(items).cursor == 2
        items.close()
    assert server.requests[1].query == {"after": "2"}


@pytest.mark.parametrize(("cursor", "sent"), [(7, "7"), ("a b", "a b"), (1.5, "1.5"), ({"a": 1}, '{"a": 1}')])
def test_a_cursor_is_sent_as_a_string(cursor: Any, sent: str) -> None:
    with serving(gone) as server, pytest.raises(HttpError):
        list(resumable(server.url + "?after=0&x=1").read(cursor))
    assert server.requests[0].query == {"after": sent, "x": "1"}


@pytest.mark.parametrize("options", [{}, {"decode": "json", "schema": "word STRING"}], ids=["text", "json"])
def test_an_unfinished_record_is_dropped_and_requested_again(options: dict[str, Any]) -> None:
    """A response that ends properly, but within a line, invents no row and fails no query."""
    for cut in (1, 10, len(record(2)) - 1):
        with serving(
            lambda e, cut=cut: e.respond(200, lines(1, 1) + record(2)[:cut]),
            lambda e: e.stream(KIND, record(2)),  # complete, although there is no line break
            gone,
        ) as server:
            items = resumable(server.url, **options).read(None)
            got = [(item.cursor, item.rows.column(0).to_pylist()) for item in islice(items, 2)]
        texts = [record(n).decode() for n in (1, 2)] if not options else ["Grüße 1", "Grüße 2"]
        assert got == [(1, texts[:1]), (2, texts[1:])]
        assert [sent.query.get("after") for sent in server.requests[:2]] == [None, "1"]


def test_a_response_that_is_only_an_unfinished_record_does_not_mean_caught_up() -> None:
    with serving(
        lambda e: e.respond(200, record(1)[:9]), lambda e: e.stream(KIND, lines(1, 1)), gone
    ) as server:
        assert next(resumable(server.url).read(None)).cursor == 1


@pytest.mark.parametrize("last", [b"no line break", b'{"a": 1', b"17"])
def test_without_a_cursor_an_unfinished_line_is_dropped_with_a_warning_that_names_it(
    last: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """To request it again would repeat all lines before it."""
    with serving(lambda e: e.respond(200, lines(1, 2) + last)) as server:
        assert list(texts(ndjson(server.url, retry=SOON))) == [record(1), record(2)]
    assert len(server.requests) == 1
    assert f"the response ends within a line: {last.decode()}; it is dropped" in caplog.text


def test_html_is_refused_by_its_content_type() -> None:
    with serving(lambda e: e.respond(200, b"<html>\n", Content_Type="text/html; charset=utf-8")) as server:
        for source in (ndjson(server.url), resumable(server.url)):
            with pytest.raises(HttpError, match="'text/html'"):
                list(source.read(None))


DEEP = b'{"meta": ' + b"[" * 20_000 + b"]" * 20_000 + b"}\n"


def test_a_deeply_nested_record_has_no_cursor_and_is_a_bad_row() -> None:
    with serving(lambda e: e.stream(KIND, lines(1, 1) + DEEP + DEEP), gone) as server:
        source = resumable(server.url, decode="json", schema="word STRING", max_retries=0)
        item = next(source.read(None))
    assert item.cursor == 1
    assert [isinstance(one, hw.BadRow) for one in item.rows] == [False, True, True]


@pytest.mark.parametrize(
    ("cursor", "in_query", "in_header"),
    [
        (b"9" * 1000, True, True),
        (b"9" * 1001, False, False),
        (b"9" * 5000, False, False),
        (b"1e999", False, False),
        (b'{"a": "%b"}' % (b"x" * 1000), False, False),
        (b'"%b"' % (b"9" * 1001), True, True),
        (b'"%b"' % (b"x" * 8193), False, False),
        (rb'"\ud800"', False, False),
        (rb'"a\r\nX-Other: b"', True, False),
        (b'" a"', True, False),
        (rb'"a\u001b"', True, False),
    ],
    ids=lambda value: repr(value[:16]) if isinstance(value, bytes) else None,
)
@pytest.mark.parametrize("resume", ["query:after", "header:X-After"])
def test_a_cursor_that_cannot_be_sent_back_is_refused_before_it_is_saved(
    cursor: bytes, resume: str, in_query: bool, in_header: bool
) -> None:
    """With the record, not with the next request, which would fail at each start."""
    body = b'{"meta": {"offset": 1}}\n{"meta": {"offset": %b}}\n' % cursor
    with serving(lambda e: e.stream(KIND, body), gone) as server:
        items = resumable(server.url, resume).read(None)
        if in_query if resume.startswith("query") else in_header:
            assert next(items).cursor == json.loads(cursor)
            with pytest.raises(HttpError, match="404"):
                next(items)
        else:
            with pytest.raises(HttpError, match="cursor") as raised:
                next(items)
            assert str(raised.value).isprintable()


def test_no_cursor_is_taken_from_another_origin() -> None:
    """A server could otherwise have itself sent what it cannot read itself."""

    def elsewhere(exchange: Exchange) -> None:
        exchange.respond(302, Location=f"http://localhost:{exchange.socket.getsockname()[1]}/")

    with serving(elsewhere, lambda e: e.stream(KIND, lines(1, 1)), elsewhere, gone) as server:
        with pytest.raises(HttpError, match="redirects to another origin"):
            list(resumable(server.url).read(None))
        server.requests.clear()
        assert list(texts(ndjson(server.url))) == [record(1)]  # without a cursor it is read
    assert all("after" not in sent.query for sent in server.requests)


def test_a_response_without_records_means_caught_up() -> None:
    with serving(lambda e: e.stream(KIND, lines(1, 1)), lambda e: e.respond(204), gone) as server:
        items = resumable(server.url).read(None)
        assert next(items).cursor == 1
        assert next(items) is hw.CAUGHT_UP


def test_a_line_is_yielded_when_it_has_arrived() -> None:
    steps = threading.Semaphore(0)

    def handler(exchange: Exchange) -> None:
        exchange.stream(KIND, end=False)
        for number in range(1, 4):
            assert steps.acquire(timeout=10)
            exchange.send(chunked(lines(number, number)))
        exchange.hang()

    with serving(handler) as server:
        source = ndjson(server.url)
        received = texts(source)
        for number in range(1, 4):
            steps.release()
            assert next(received) == record(number)
        source.close()
        assert list(received) == []


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
def test_wrong_options_are_reported_before_anything_is_requested(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ndjson(**{"url": "https://example.org/", **options})


def silent(exchange: Exchange) -> None:
    exchange.hang()


def waiting(exchange: Exchange) -> None:
    exchange.stream(KIND, lines(1, 2) + b"half", end=False)
    exchange.hang()


def busy(exchange: Exchange) -> None:
    exchange.respond(429, Retry_After="500")


@pytest.mark.parametrize("state", [silent, waiting, busy])
def test_close_from_another_thread_ends_a_read(state: Callable[[Exchange], None]) -> None:
    with serving(state) as server:
        source = ndjson(server.url)
        thread = threading.Thread(target=lambda: list(texts(source)))
        thread.start()
        wait_until(lambda: bool(server.requests), lambda: server.requests)
        begun = monotonic()
        source.close()
        thread.join(10)
        assert not thread.is_alive()
        assert monotonic() - begun < 5


# In a query


def test_a_query_drops_a_deeply_nested_record_and_continues(stream: Callable[..., RunningStream]) -> None:
    with serving(
        lambda e: e.stream(KIND, lines(1, 1) + DEEP), lambda e: e.stream(KIND, lines(2, 2)), silent
    ) as server:
        source = resumable(server.url, decode="json", schema="word STRING")
        query = stream(source, on_bad_row="drop")
        assert [one.word for one in query.rows(2)] == ["Grüße 1", "Grüße 2"]
        assert query.feeds[0].bad_rows == 1


def test_a_query_resumes_after_the_last_durable_record(spark_session: SparkSession, tmp_path: Path) -> None:
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
    """Across a cut, a restart and a cut within a record, at each place in eight records with five times.

    The server resumes strictly after a cursor. If the next record has another cursor, none is lost. Records
    that share the cursor of the last record that arrived are lost, and none is repeated.
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
        assert {sim.record(n)["mtime"] for n in lost} <= {int(query["since_mtime"]) for query in resumed}
        assert [one[0] for one in checkpoint.sink.rows] == [
            sim.line(n).decode().rstrip("\n") for n in range(count) if n not in lost
        ]


def test_a_starlette_server_is_read_to_its_end_across_connections_and_restarts(
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
    fields = json.loads(line)
    return [(fields["meta"]["offset"], word) for word in fields["word"].split()]


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
    ids=["binary", "a function"],
)
def test_a_query_gets_the_rows_of_a_decoder(
    stream: Callable[..., RunningStream], options: dict[str, Any], rows: list[Any], bad: int
) -> None:
    with serving(lambda e: e.stream(KIND, lines(1, 1) + b"\xff {\n" + lines(2, 2))) as server:
        query = stream(ndjson(server.url, **options), on_bad_row="drop")
        assert query.to_end() == rows
        assert query.feeds[0].bad_rows == bad


def test_an_available_now_query_ends_when_caught_up(stream: Callable[..., RunningStream]) -> None:
    def handler(exchange: Exchange) -> None:
        start = int(exchange.query.get("after", 0)) + 1
        exchange.stream(KIND, lines(start, min(start + 9, 25)))

    with serving(handler) as server:
        source = resumable(server.url, decode="json", schema="word STRING")
        rows = stream(source, available_now=True, available_now_wait="50s").done()
    assert [one.word for one in rows] == [f"Grüße {n}" for n in range(1, 26)]


def test_a_query_uses_the_format_and_its_options(spark_session: SparkSession) -> None:
    with serving(gone) as server:
        hw.attach(spark_session)
        reader = (
            spark_session.readStream.format("ndjson")
            .option("url", server.url)
            .option("cursor", "meta.offset")
        )
        frame = reader.option("resume", "query:after").option("decode", "json").schema("word STRING").load()
    assert frame.schema.simpleString() == "struct<word:string>"
