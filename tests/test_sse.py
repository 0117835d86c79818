"""The source `sse`: the standard to the letter, cuts, repeats and gaps, and restarts of a query."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from http_server import Exchange, chunked, serving, till
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from servers import starlette_server
from test_log import Checkpointed

import headwater as hw
from headwater.http import HttpError
from headwater.sources import sse
from headwater.sources.sse_events import IDS, Events, EventStream, parse_uniform
from headwater.testing import RunningStream

SOON = timedelta(milliseconds=1)
KIND = "text/event-stream"


def parsed(*chunks: bytes) -> list[tuple[str, str, str | None]]:
    stream = EventStream()
    found: list[tuple[str, str, str | None]] = []
    for chunk in chunks:
        events = stream.feed(chunk)
        found += zip(events.data.to_pylist(), events.event.to_pylist(), events.id, strict=True)
    return found


# The standard


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("data: YHOO\ndata: +2\ndata: 10\n\n", [("YHOO\n+2\n10", "message", None)]),
        (
            ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
            [
                ("first event", "message", "1"),
                ("second event", "message", None),
                (" third event", "message", None),
            ],
        ),
        ("data\n\ndata\ndata\n\ndata:", [("", "message", None), ("\n", "message", None)]),
        ("data:test\n\ndata: test\n\n", [("test", "message", None)] * 2),
        (
            "event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\nevent: add\ndata: 113411\n\n",
            [("73857293", "add", None), ("2153", "remove", None), ("113411", "add", None)],
        ),
    ],
    ids=["stocks", "test stream", "empty data", "blank", "kinds"],
)
def test_the_examples_of_the_standard(text: str, events: list[Any]) -> None:
    assert parsed(text.encode()) == events


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b"\xef\xbb\xbfdata: x\n\n", [("x", "message", None)]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", []),
        (b"data: a\rdata: b\r\ndata: c\n\r\n", [("a\nb\nc", "message", None)]),
        (b"data: a\r\rdata: b\r\n\r\n", [("a", "message", None), ("b", "message", None)]),
        (b"id: 1\n\ndata: x\n\n", [("x", "message", "1")]),
        (b"id: 1\ndata: x\n\ndata: y\n\n", [("x", "message", "1"), ("y", "message", "1")]),
        (b"id: 1\ndata: x\n\nid:\ndata: y\n\n", [("x", "message", "1"), ("y", "message", None)]),
        (b"id: 1\nid: a\0b\ndata: x\n\n", [("x", "message", "1")]),
        (b"id: 1\ndata: x\nid: 2\n\n", [("x", "message", "2")]),
        (b"event: e\n\ndata: x\n\n", [("x", "message", None)]),
        (b"event: e\nevent:\ndata: x\n\n", [("x", "message", None)]),
        (b"Data: x\nDATA: y\nfoo: z\n: data: w\ndata : v\n\n", []),
        (b"data: a:b: c\n\n", [("a:b: c", "message", None)]),
        (b"data: \xff!\n\n", [("�!", "message", None)]),
        (b"data: x\n\ndata: half\n", [("x", "message", None)]),
        (b"\n\n\n\ndata: x\n\n\n\n", [("x", "message", None)]),
        (
            "data: Zeile\u2028zwei\x85\x0b\x0c\n\n".encode(),
            [("Zeile\u2028zwei\x85\x0b\x0c", "message", None)],
        ),
    ],
)
def test_what_the_standard_says_of_odd_streams(text: bytes, events: list[Any]) -> None:
    assert parsed(text) == events
    assert parsed(*(bytes([byte]) for byte in text)) == events


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"retry: 1500\n\n", 1.5),
        (b"retry:20\ndata: x\n\n", 0.02),
        (b"retry: 1.5\n\n", None),
        (b"retry: x\n\n", None),
    ],
)
def test_retry_counts_with_and_without_data_if_it_is_a_number(text: bytes, seconds: float | None) -> None:
    stream = EventStream()
    stream.feed(b"data: y\n\n" + text)
    assert stream.retry == seconds


def by_the_standard(data: bytes) -> list[tuple[str, str, str | None]]:
    """The standard's own words, line by line; slow, and independent of what it is compared with."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    found, values, kind, last_id = [], [], "", ""
    for line in text.split("\n")[:-1]:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if values:
                found.append(("\n".join(values), kind or "message", last_id or None))
            values, kind = [], ""
        elif name == "data":
            values.append(value)
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            last_id = value
    return found


LINES = st.sampled_from(
    [
        *("data: x", "data:x", "data", "data: ", "data:  y", "data: ü🌍", "\ufeffdata: x", " ", "", "", ""),
        *("event: e", "event: f", "event", "id: 1", "id: 2", "id", "id: \0", ": c", ":", "foo: bar"),
        *("retry: 5", "retry: x"),
    ]
)
ENDS = st.sampled_from(["\n", "\r", "\r\n"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=30), st.booleans(), st.randoms())
def test_any_stream_is_read_as_the_standard_says_however_it_is_cut(lines: Any, mark: bool, dice: Any) -> None:
    data = ("\ufeff" * mark + "".join(line + end for line, end in lines)).encode()
    chunks, at = [], 0
    while at < len(data):
        step = dice.choice([1, 2, 3, 10, 1000])
        chunks.append(data[at : at + step])
        at += step
    assert parsed(*chunks) == parsed(data) == by_the_standard(data)


@given(
    st.integers(1, 20), st.permutations(["data: ü", "id: 7", "event: e"]), st.integers(0, 2), st.booleans()
)
def test_events_that_look_alike_are_read_the_same_way_fast(
    count: int, fields: list[str], left_out: int, odd: bool
) -> None:
    event = "\n".join(fields[left_out:]) + "\n\n"
    text = (event * count + ("data: odd\nid: 8\n\n" if odd else "") + event).encode()
    assert parsed(text) == by_the_standard(text)


VALUES = st.sampled_from(["x", " x", "", " ", "ü🌍", "a: b", "data: x", "\0", "1", "2", "\ufeff", "x" * 1000])


@st.composite
def nearly_alike(draw: st.DrawFn) -> bytes:
    """Events with the same fields, most of which have the same blanks too."""
    names = draw(st.permutations(["data", "event", "id"]))[draw(st.integers(0, 2)) :]
    begins = {name: draw(st.sampled_from([":", ": "])) for name in names}
    text = ""
    for _ in range(draw(st.integers(1, 8))):
        for name in names:
            text += name + draw(st.sampled_from([begins[name]] * 9 + [":", ": ", ""])) + draw(VALUES) + "\n"
        text += "\n"
    return text.encode()


@given(nearly_alike(), st.integers(1, 2000))
def test_events_taken_apart_by_column_are_those_of_the_standard(block: bytes, step: int) -> None:
    expected = by_the_standard(block)
    assert parsed(*(block[at : at + step] for at in range(0, len(block), step))) == expected
    if (found := parse_uniform(block, None)) is not None:
        assert [*zip(found.data.to_pylist(), found.event.to_pylist(), found.id, strict=True)] == expected
        found.data.validate(full=True)


@pytest.mark.parametrize("fields", ["data: ü {}", "id:{}\ndata:{}", "event: e{}\nid: {}\ndata: {}"])
def test_a_busy_server_s_events_are_taken_apart_by_column(fields: str) -> None:
    text = "".join(f"{fields}\n\n".replace("{}", str(n)) for n in range(100)).encode()
    found = parse_uniform(text, "before")
    assert found is not None
    assert found.records[99] == fields.rpartition(":")[2].strip().replace("{}", "99").encode()
    assert found.id == ([str(n) for n in range(100)] if "id" in fields else ["before"] * 100)


# Ids


def events(*ids: str | None, data: str = "d") -> Events:
    return Events.of(
        [f"{data}{id}".encode() for id in ids],
        ["message"] * len(ids),
        list(ids),
        [id is not None for id in ids],
    )


def test_a_repeat_has_id_and_data_of_an_earlier_event() -> None:
    known = IDS["any"](None)
    assert known.fresh(events("a", "b")).id == ["a", "b"]
    assert known.fresh(events("b", "c", "a")).id == ["c"]
    assert known.fresh(events("a", data="other")).id == ["a"]
    assert known.fresh(events("a", "a", data="other")).id == []
    assert known.fresh(events("n", "n")).id == ["n"]
    assert known.fresh(events(None, None)).id == [None, None]


def test_the_event_to_go_on_after_is_a_repeat_at_the_beginning() -> None:
    known = IDS["any"]("a")
    assert known.fresh(events("a")).id == []
    assert known.fresh(events("a", "b", "a")).id == ["b", "a"]


def test_the_memory_for_ids_is_bounded() -> None:
    known = IDS["any"](None)
    for start in range(0, 60_000, 1000):
        assert len(known.fresh(events(*map(str, range(start, start + 1000)))).id) == 1000
    assert known.fresh(events("50001")).id == []
    assert known.fresh(events("1")).id == ["1"]


def test_the_memory_for_data_is_bounded_and_repeats_of_what_is_not_kept_are_known() -> None:
    known = IDS["any"](None)
    heavy = "x" * (1 << 20)
    before = pa.total_allocated_bytes()
    for n in range(100):
        assert known.fresh(events(f"{n}a", f"{n}b", data=heavy)).id == [f"{n}a", f"{n}b"]
    assert 0 < pa.total_allocated_bytes() - before <= 32 << 20
    for n in range(100):
        assert known.fresh(events(f"{n}b", f"{n}c", f"{n}a", data=heavy)).id == [f"{n}c"]
        assert known.fresh(events(f"{n}a", f"{n}b")).id == [f"{n}a", f"{n}b"]
        assert known.fresh(events(f"{n}a", f"{n}b")).id == []


def test_events_without_an_id_of_their_own_are_no_repeats() -> None:
    known = IDS["any"]("a")
    shared = Events.of([b"x", b"x"], ["message"] * 2, ["a", "a"], [False, False])
    assert known.fresh(shared) is shared
    assert known.fresh(events("a", "b")).id == ["b"]


def test_a_gap_in_a_sequence_is_told_with_its_numbers(caplog: pytest.LogCaptureFixture) -> None:
    numbers = IDS["sequence"](None)
    with caplog.at_level(logging.WARNING, "headwater.sources.sse"):
        assert numbers.fresh(events("5", "6", "7")).id == ["5", "6", "7"]
        assert caplog.text == ""
        assert numbers.fresh(events("7", "8", "11", None)).id == ["8", "11", None]
    assert "events 9 to 10 are missing: 11 follows 8" in caplog.text
    assert IDS["sequence"]("4").fresh(events("4", "5")).id == ["5"]


def test_an_id_that_is_no_number_is_no_sequence() -> None:
    with pytest.raises(ValueError, match="the id of an event is 'x'; with ids=sequence"):
        IDS["sequence"](None).fresh(events("1", "x"))


# The source


def event(number: int) -> bytes:
    return f"id: {number}\nevent: tick\ndata: line {number}\ndata: of ünicode\n\n".encode()


def row(number: int) -> tuple[str, str, str]:
    return f"line {number}\nof ünicode", "tick", str(number)


def rows_of(source: Any, since: Any = None) -> Iterator[Any]:
    for item in source.read(since):
        rows = item.rows.to_pylist() if hasattr(item.rows, "to_pylist") else item.rows
        yield from ((one["data"], one["event"], one["id"]) for one in rows)


def read(url: str, **options: Any) -> list[Any]:
    source = sse(url, **{"retry": SOON, **options})
    try:
        return list(rows_of(source))
    finally:
        source.close()


def gone(exchange: Exchange) -> None:
    exchange.answer(204)


def after(exchange: Exchange, count: int = 12) -> bytes:
    last = int(exchange.headers.get("last-event-id", 0))
    return b"".join(event(n) for n in range(last + 1, count + 1))


def test_events_come_with_their_names_ids_and_time() -> None:
    before = datetime.now(timezone.utc)
    with serving(lambda e: e.stream(KIND + "; charset=utf-8", event(1)), gone) as server:
        (item,) = list(sse(server.url, retry=SOON).read(None))
    (found,) = item.rows.to_pylist()
    assert (found["data"], found["event"], found["id"]) == row(1)
    assert before <= found["arrived"] <= datetime.now(timezone.utc)
    assert item.cursor == "1"
    assert server.requests[0].headers["accept"] == KIND
    assert "last-event-id" not in server.requests[0].headers
    assert server.requests[1].headers["last-event-id"] == "1"


def test_metadata_adds_the_headers_of_the_answer() -> None:
    with serving(lambda e: e.stream(KIND, b"id: 4\ndata: {}\n\n", X_Some="thing"), gone) as server:
        options: dict[str, Any] = {"decode": "json", "schema": "n INT", "metadata": True}
        found = list(sse(server.url, retry=SOON, **options))
        assert sse(server.url, **options).schema.names == ["n", "event", "id", "arrived", "headers"]
    (one,) = [dict(one, headers=dict(one["headers"])) for one in found]
    assert (one["n"], one["event"], one["id"]) == (None, "message", "4")
    assert one["headers"]["x-some"] == "thing"


def test_json_gives_the_columns_of_the_schema_only() -> None:
    with serving(lambda e: e.stream(KIND, b'data: {"n": 1}\n\ndata: {"n":\ndata: 2}\n\n'), gone) as server:
        assert list(sse(server.url, decode="json", schema="n INT", retry=SOON)) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("cut", range(1, len(event(1)) + 1, 4))
def test_a_cut_within_an_event_costs_nothing_and_repeats_nothing(cut: int) -> None:
    def handler(exchange: Exchange) -> None:
        rest = after(exchange)
        if not rest:
            return gone(exchange)
        whole = rest.index(b"\n\n") + 2
        return exchange.stream(KIND, rest[: whole + cut], end=False)  # and a part of the next

    with serving(handler) as server:
        assert read(server.url) == [row(n) for n in range(1, 13)]


def test_a_cut_within_the_head_is_tried_again() -> None:
    head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: {KIND}".encode()
    for cut in (3, 11, 20, 40, 50, len(head)):
        with serving(
            lambda e, cut=cut: e.send(head[:cut]), lambda e: e.stream(KIND, event(1)), gone
        ) as server:
            assert read(server.url) == [row(1)]


def test_repeats_are_dropped_on_one_connection_and_over_many() -> None:
    first = b"".join(map(event, (1, 2, 2, 3)))
    second = b"".join(map(event, (2, 3, 4)))
    with serving(lambda e: e.stream(KIND, first), lambda e: e.stream(KIND, second), gone) as server:
        assert read(server.url) == [row(n) for n in (1, 2, 3, 4)]
        server.requests.clear()
        assert len(read(server.url, ids="free")) == 7


def test_skips_are_told_by_ids_in_sequence(caplog: pytest.LogCaptureFixture) -> None:
    with serving(lambda e: e.stream(KIND, event(1), event(4)), gone) as server:
        assert read(server.url, ids="sequence") == [row(1), row(4)]
    assert "events 2 to 3 are missing" in caplog.text


def test_an_empty_id_takes_the_last_one_back() -> None:
    with serving(lambda e: e.stream(KIND, b"id: 1\ndata: x\n\nid\ndata: y\n\n"), gone) as server:
        assert read(server.url) == [("x", "message", "1"), ("y", "message", None)]
    assert "last-event-id" not in server.requests[1].headers


def test_a_cursor_that_is_json_is_sent_as_json() -> None:
    cursor = [{"topic": "eqiad.mediawiki", "partition": 0, "offset": 7}]
    with serving(gone) as server:
        assert list(sse(server.url).read(cursor)) == []
    assert json.loads(server.requests[0].headers["last-event-id"]) == cursor


def test_retry_of_the_server_is_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda e: e.stream(KIND, b"retry: 100\ndata: x\n\n"), gone) as server:
        begun = monotonic()
        read(server.url, retry=timedelta(hours=1))
        assert monotonic() - begun < 30


def test_204_ends_for_good() -> None:
    with serving(gone) as server:
        assert read(server.url) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", ["text/html", "text/event-streams", "application/json"])
@pytest.mark.parametrize("body", [b"data: x\n\n", b""])
def test_another_content_type_fails(kind: str, body: bytes) -> None:
    refused = pytest.raises(HttpError, match=f"'{kind}', it must be text/event-stream")
    with serving(lambda e: e.answer(200, body, Content_Type=kind)) as server, refused:
        read(server.url)
    assert len(server.requests) == 1


@pytest.mark.parametrize("tail", [b"", b"\n\n"])
def test_an_event_that_is_too_long_fails(tail: bytes) -> None:
    long = b"data: " + b"x" * 2000 + tail
    refused = pytest.raises(HttpError, match="max_record_bytes")
    with serving(lambda e: e.stream(KIND, long)) as server, refused:
        read(server.url, max_record_bytes=1000)


def test_an_event_is_given_when_its_blank_line_has_come() -> None:
    steps = threading.Semaphore(0)

    def handler(exchange: Exchange) -> None:
        exchange.stream(KIND, end=False)
        for number in range(1, 4):
            assert steps.acquire(timeout=10)
            exchange.send(chunked(event(number)))
        exchange.hang()

    with serving(handler) as server:
        source = sse(server.url)
        found = rows_of(source)
        for number in range(1, 4):
            steps.release()
            assert next(found) == row(number)
        source.close()
        assert list(found) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "http://example.org/"}, "allow_http"),
        ({"ids": "none"}, "any, sequence, free"),
        ({"decode": "json"}, "schema"),
        ({"schema": "a INT"}, "schema"),
        ({"decode": "json", "schema": "id INT", "metadata": True}, "duplicate column"),
        ({"idle_timeout": timedelta(0)}, "idle_timeout"),
    ],
)
def test_wrong_options_are_told_before_anything_is_asked(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        sse(**{"url": "https://example.org/", **options})


def test_headers_are_sent_and_not_shown() -> None:
    with serving(gone) as server:
        source = sse(server.url, headers="Authorization: Bearer hush")
        assert list(source) == []
    assert server.requests[0].headers["authorization"] == "Bearer hush"
    assert "hush" not in repr(source)


@contextmanager
def reading(source: Any) -> Iterator[list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(rows_of(source)))
    thread.start()
    try:
        yield found
    finally:
        begun = monotonic()
        source.close()
        thread.join(10)
    assert not thread.is_alive()
    assert monotonic() - begun < 5


def silent(exchange: Exchange) -> None:
    exchange.hang()


def waiting(exchange: Exchange) -> None:
    exchange.stream(KIND, event(1), b"data: ha", end=False)
    exchange.hang()


def busy(exchange: Exchange) -> None:
    exchange.answer(503, Retry_After="500")


@pytest.mark.parametrize(
    "state", [silent, waiting, busy], ids=["no answer", "waiting for bytes", "backing off"]
)
def test_close_from_another_thread_ends_a_read(state: Callable[[Exchange], None]) -> None:
    with serving(state) as server, reading(sse(server.url)):
        till(lambda: server.requests, "the request")


# In a query


def test_a_query_goes_on_after_the_last_durable_event(spark_session: SparkSession, tmp_path: Path) -> None:
    """Through stops, with a server that cuts each connection within an event."""
    count = 40

    def handler(exchange: Exchange) -> None:
        rest = after(exchange, limit)
        exchange.stream(KIND, rest[: 5 * len(event(1)) + 7], end=len(rest) < 5 * len(event(1)))
        if not rest:
            exchange.hang()

    checkpoint = Checkpointed(spark_session, tmp_path)
    checkpoint.sink.columns = ["data", "event", "id"]
    with serving(handler) as server:
        for limit in (10, 23, count):
            with checkpoint.running(sse(server.url, retry=SOON)) as query:
                checkpoint.until(query, limit)
    assert checkpoint.sink.rows == [row(n) for n in range(1, count + 1)]
    asked = [exchange.headers.get("last-event-id") for exchange in server.requests]
    assert asked[0] is None
    assert None not in asked[1:]


def test_bad_rows_of_a_query_go_by_its_policy(stream: Callable[..., RunningStream]) -> None:
    def handler(exchange: Exchange) -> None:
        exchange.stream(KIND, b'data: {"n": 1}\n\ndata: oops\n\ndata: {"n": 3}\n\n')

    with serving(handler, gone) as server:
        source = sse(server.url, decode="json", schema="n INT", retry=SOON)
        assert [one.n for one in stream(source, on_bad_row="drop").to_end()] == [1, 3]
        server.requests.clear()
        assert "oops" in stream(source).failure()


def test_a_query_takes_the_format_and_the_schema_of_spark(spark_session: SparkSession) -> None:
    hw.attach(spark_session)
    with serving(lambda e: e.stream(KIND, b'data: {"n": 1}\n\n'), gone) as server:
        reader = spark_session.readStream.format("sse").schema("n INT").option("decode", "json")
        assert reader.option("url", server.url).load().schema.simpleString() == "struct<n:int>"


def test_a_failure_shows_no_secret(stream: Callable[..., RunningStream]) -> None:
    with serving(lambda e: e.answer(401, e.headers["authorization"].encode())) as server:
        said = stream(sse(server.url, headers="Authorization: Bearer hush-hush")).failure()
    assert "answers 401" in said
    assert "hush" not in said


def test_the_first_rows_of_an_endless_stream_are_enough() -> None:
    def endless(exchange: Exchange) -> None:
        exchange.stream(KIND, *(event(n) for n in range(1, 100)), end=False)
        exchange.hang()

    with serving(endless) as server:
        assert [one["id"] for one in islice(sse(server.url), 5)] == ["1", "2", "3", "4", "5"]


def test_a_server_that_is_not_ours_is_read_to_its_end_over_connections_and_restarts(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    with starlette_server(tmp_path) as url:
        checkpoint = Checkpointed(spark_session, tmp_path / "checkpoint")
        checkpoint.sink.columns = ["data", "event", "id"]
        for rows in (100, 200):  # where a connection stays open
            with checkpoint.running(sse(f"{url}/sse")) as query:
                checkpoint.until(query, rows)
            assert len(checkpoint.sink.rows) == rows
    assert checkpoint.sink.rows == [(f"line {n}\nof ünicode", "tick", str(n)) for n in range(1, 201)]
