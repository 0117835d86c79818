"""The source `sse`: the standard to the letter, cuts, repeats and gaps, and restarts of a query.

The parser is private and has no I/O: it is tested here directly, with every split of its input.
"""

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
from growth import assert_linear
from http_server import Exchange, chunked, serving
from hypothesis import given
from hypothesis import strategies as st
from processes import wait_until
from pyspark.sql import SparkSession
from servers import starlette_server
from test_log import Checkpointed

import headwater as hw
from headwater.http import HttpError
from headwater.sources import sse
from headwater.sources.sse_events import REPEAT_FILTERS, Events, EventStream, TimestampIds, parse_uniform
from headwater.testing import RunningStream

SOON = timedelta(milliseconds=1)
KIND = "text/event-stream"


def parsed(*chunks: bytes) -> list[tuple[str, str, str | None]]:
    stream = EventStream()
    result: list[tuple[str, str, str | None]] = []
    for chunk in chunks:
        events = stream.feed(chunk)
        result += zip(events.data.to_pylist(), events.event.to_pylist(), events.id, strict=True)
    return result


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
    ids=["stocks", "test stream", "empty data", "leading space", "event types"],
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
def test_unusual_streams_are_parsed_as_the_standard_says(text: bytes, events: list[Any]) -> None:
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
def test_retry_counts_with_or_without_data_if_it_is_a_number(text: bytes, seconds: float | None) -> None:
    stream = EventStream()
    stream.feed(b"data: y\n\n" + text)
    assert stream.retry == seconds


def by_the_standard(data: bytes) -> list[tuple[str, str, str | None]]:
    """The algorithm of the standard, line by line: slow, and independent of the code under test."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    result, values, kind, last_id = [], [], "", ""
    for line in text.split("\n")[:-1]:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if values:
                result.append(("\n".join(values), kind or "message", last_id or None))
            values, kind = [], ""
        elif name == "data":
            values.append(value)
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            last_id = value
    return result


LINES = st.sampled_from(
    [
        *("data: x", "data:x", "data", "data: ", "data:  y", "data: ü🌍", "\ufeffdata: x", " ", "", "", ""),
        *("event: e", "event: f", "event", "id: 1", "id: 2", "id", "id: \0", ": c", ":", "foo: bar"),
        *("retry: 5", "retry: x"),
    ]
)
ENDS = st.sampled_from(["\n", "\r", "\r\n"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=30), st.booleans(), st.randoms())
def test_any_stream_is_parsed_as_the_standard_says_however_it_is_split(
    lines: Any, mark: bool, dice: Any
) -> None:
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
def test_uniform_events_are_parsed_as_the_standard_says(
    count: int, fields: list[str], left_out: int, odd: bool
) -> None:
    event = "\n".join(fields[left_out:]) + "\n\n"
    text = (event * count + ("data: odd\nid: 8\n\n" if odd else "") + event).encode()
    assert parsed(text) == by_the_standard(text)


VALUES = st.sampled_from(["x", " x", "", " ", "ü🌍", "a: b", "data: x", "\0", "1", "2", "\ufeff", "x" * 1000])


@st.composite
def nearly_uniform(draw: st.DrawFn) -> bytes:
    """Events with the same fields, most of them with the same spacing."""
    names = draw(st.permutations(["data", "event", "id"]))[draw(st.integers(0, 2)) :]
    begins = {name: draw(st.sampled_from([":", ": "])) for name in names}
    text = ""
    for _ in range(draw(st.integers(1, 8))):
        for name in names:
            text += name + draw(st.sampled_from([begins[name]] * 9 + [":", ": ", ""])) + draw(VALUES) + "\n"
        text += "\n"
    return text.encode()


@given(nearly_uniform(), st.integers(1, 2000))
def test_events_parsed_by_column_are_those_of_the_standard(block: bytes, step: int) -> None:
    expected = by_the_standard(block)
    assert parsed(*(block[at : at + step] for at in range(0, len(block), step))) == expected
    if (parsed_events := parse_uniform(block, None)) is not None:
        assert [
            *zip(
                parsed_events.data.to_pylist(), parsed_events.event.to_pylist(), parsed_events.id, strict=True
            )
        ] == expected
        parsed_events.data.validate(full=True)


@pytest.mark.parametrize("fields", ["data: ü {}", "id:{}\ndata:{}", "event: e{}\nid: {}\ndata: {}"])
def test_events_of_a_busy_server_are_parsed_by_column(fields: str) -> None:
    text = "".join(f"{fields}\n\n".replace("{}", str(n)) for n in range(100)).encode()
    parsed_events = parse_uniform(text, "before")
    assert parsed_events is not None
    assert parsed_events.records[99] == fields.rpartition(":")[2].strip().replace("{}", "99").encode()
    assert parsed_events.id == ([str(n) for n in range(100)] if "id" in fields else ["before"] * 100)


@pytest.mark.parametrize(
    "line",
    [
        b"data: x",
        b"data",
        b"unknown: x",
        b"u",
        b": comment",
        b"id: 7",
        b"retry: 5",
        b"retry: x",
        b"id: \0",
        b"event: e",
    ],
)
@pytest.mark.parametrize("step", [1000, 1 << 18])
def test_an_event_takes_time_that_grows_with_its_size(line: bytes, step: int) -> None:
    def parse(count: int) -> None:
        text = (line + b"\n") * count + b"data: y\n\n"
        stream = EventStream()
        found = [stream.feed(text[at : at + step]) for at in range(0, len(text), step)]
        assert sum(len(events.id) for events in found) == 1

    assert_linear(parse, 5_000)


@pytest.mark.parametrize("event", [b"id: 7\ndata: %d\n\n", b"id: %d\ndata: x\n\n", b"\n\n%d\n", b":%d\n\n"])
def test_events_take_time_that_grows_with_their_number(event: bytes) -> None:
    """Also if all of them share one id, with different data."""

    def parse(count: int) -> None:
        text = b"".join(event % number for number in range(count))
        stream, known = EventStream(), REPEAT_FILTERS["any"](None)
        for at in range(0, len(text), 10_000):
            known.drop_repeats(stream.feed(text[at : at + 10_000]))

    assert_linear(parse, 2_000)


def test_events_of_one_millisecond_take_time_that_grows_with_their_number_and_a_small_cursor() -> None:
    id = '[{"topic":"a","partition":0,"timestamp":71}]'

    def read(count: int) -> None:
        ids = TimestampIds(None)
        for at in range(0, count, 100):
            data = [b"%d" % number for number in range(at, at + 100)]
            batch = Events.from_lists(data, ["message"] * 100, [id] * 100, [True] * 100)
            assert len(ids.drop_repeats(batch).id) == 100
            assert len(json.dumps(ids.cursor(id))) < 25_000

    assert_linear(read, 1_000)


def test_ids_with_ever_other_topics_keep_the_cursor_small() -> None:
    ids = TimestampIds(None)
    for number in range(1000):
        id = json.dumps([{"topic": f"t{number}", "partition": 0, "timestamp": 71}])
        id = id.replace("[ {", "[{")
        ids.drop_repeats(Events.from_lists([b"%d" % number], ["message"], [id], [True]))
    assert len(json.dumps(ids.cursor(id))) < 1000


@pytest.mark.parametrize(
    "id", ["[{" * 100_000, '[{"a":' * 100_000, '[{"topic":"a","partition":0,"timestamp":%s}]' % ("9" * 5000)]
)
def test_an_id_that_is_no_list_of_times_is_any_id(id: str) -> None:
    ids = TimestampIds(id)
    assert ids.rewind(id) == id
    assert ids.cursor(id) == id


# Ids


def events(*ids: str | None, data: str = "d") -> Events:
    return Events.from_lists(
        [f"{data}{id}".encode() for id in ids],
        ["message"] * len(ids),
        list(ids),
        [id is not None for id in ids],
    )


def test_a_repeat_has_id_and_data_of_an_earlier_event() -> None:
    known = REPEAT_FILTERS["any"](None)
    assert known.drop_repeats(events("a", "b")).id == ["a", "b"]
    assert known.drop_repeats(events("b", "c", "a")).id == ["c"]
    assert known.drop_repeats(events("a", data="other")).id == ["a"]
    assert known.drop_repeats(events("a", "a", data="other")).id == []
    assert known.drop_repeats(events("n", "n")).id == ["n"]
    assert known.drop_repeats(events(None, None)).id == [None, None]


def test_the_event_to_resume_after_is_a_repeat_at_the_beginning() -> None:
    known = REPEAT_FILTERS["any"]("a")
    assert known.drop_repeats(events("a")).id == []
    assert known.drop_repeats(events("a", "b", "a")).id == ["b", "a"]


def test_the_memory_for_ids_is_bounded() -> None:
    known = REPEAT_FILTERS["any"](None)
    for start in range(0, 60_000, 1000):
        assert len(known.drop_repeats(events(*map(str, range(start, start + 1000)))).id) == 1000
    assert known.drop_repeats(events("50001")).id == []
    assert known.drop_repeats(events("1")).id == ["1"]


def test_the_memory_for_data_is_bounded_and_repeats_of_discarded_data_are_recognized() -> None:
    known = REPEAT_FILTERS["any"](None)
    heavy = "x" * (1 << 20)
    before = pa.total_allocated_bytes()
    for n in range(100):
        assert known.drop_repeats(events(f"{n}a", f"{n}b", data=heavy)).id == [f"{n}a", f"{n}b"]
    assert 0 < pa.total_allocated_bytes() - before <= 32 << 20
    for n in range(100):
        assert known.drop_repeats(events(f"{n}b", f"{n}c", f"{n}a", data=heavy)).id == [f"{n}c"]
        assert known.drop_repeats(events(f"{n}a", f"{n}b")).id == [f"{n}a", f"{n}b"]
        assert known.drop_repeats(events(f"{n}a", f"{n}b")).id == []


def test_events_without_an_id_of_their_own_are_not_repeats() -> None:
    known = REPEAT_FILTERS["any"]("a")
    shared = Events.from_lists([b"x", b"x"], ["message"] * 2, ["a", "a"], [False, False])
    assert known.drop_repeats(shared) is shared
    assert known.drop_repeats(events("a", "b")).id == ["b"]


def test_a_gap_in_a_sequence_is_logged_with_its_numbers(caplog: pytest.LogCaptureFixture) -> None:
    numbers = REPEAT_FILTERS["sequence"](None)
    with caplog.at_level(logging.WARNING, "headwater.sources.sse"):
        assert numbers.drop_repeats(events("5", "6", "7")).id == ["5", "6", "7"]
        assert caplog.text == ""
        assert numbers.drop_repeats(events("7", "8", "11", None)).id == ["8", "11", None]
    assert "events 9 to 10 are missing: 11 follows 8" in caplog.text
    assert REPEAT_FILTERS["sequence"]("4").drop_repeats(events("4", "5")).id == ["5"]


def test_ids_in_sequence_must_be_integers() -> None:
    with pytest.raises(ValueError, match="the id of an event is 'x'; with ids=sequence"):
        REPEAT_FILTERS["sequence"](None).drop_repeats(events("1", "x"))
    with pytest.raises(ValueError, match="with ids=sequence it must be an integer") as raised:
        REPEAT_FILTERS["sequence"](None).drop_repeats(events("1", "9" * 5000))
    assert len(str(raised.value)) < 200


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
    exchange.respond(204)


def after(exchange: Exchange, count: int = 12) -> bytes:
    last = int(exchange.headers.get("last-event-id", 0))
    return b"".join(event(n) for n in range(last + 1, count + 1))


def test_events_come_with_their_names_ids_and_time() -> None:
    before = datetime.now(timezone.utc)
    with serving(lambda e: e.stream(KIND + "; charset=utf-8", event(1)), gone) as server:
        (item,) = list(sse(server.url, retry=SOON).read(None))
    (event_row,) = item.rows.to_pylist()
    assert (event_row["data"], event_row["event"], event_row["id"]) == row(1)
    assert before <= event_row["arrived"] <= datetime.now(timezone.utc)
    assert item.cursor == "1"
    assert server.requests[0].headers["accept"] == KIND
    assert "last-event-id" not in server.requests[0].headers
    assert server.requests[1].headers["last-event-id"] == "1"


def test_metadata_adds_the_headers_of_the_response() -> None:
    with serving(lambda e: e.stream(KIND, b"id: 4\ndata: {}\n\n", X_Some="thing"), gone) as server:
        options: dict[str, Any] = {"decode": "json", "schema": "n INT", "metadata": True}
        rows = list(sse(server.url, retry=SOON, **options))
        assert sse(server.url, **options).schema.names == ["n", "event", "id", "arrived", "headers"]
    (one,) = [dict(one, headers=dict(one["headers"])) for one in rows]
    assert (one["n"], one["event"], one["id"]) == (None, "message", "4")
    assert one["headers"]["x-some"] == "thing"


def test_json_gives_only_the_columns_of_the_schema() -> None:
    with serving(lambda e: e.stream(KIND, b'data: {"n": 1}\n\ndata: {"n":\ndata: 2}\n\n'), gone) as server:
        assert list(sse(server.url, decode="json", schema="n INT", retry=SOON)) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("cut", range(1, len(event(1)) + 1, 4))
def test_a_cut_within_an_event_loses_and_repeats_nothing(cut: int) -> None:
    def handler(exchange: Exchange) -> None:
        rest = after(exchange)
        if not rest:
            return gone(exchange)
        whole = rest.index(b"\n\n") + 2
        return exchange.stream(KIND, rest[: whole + cut], end=False)  # and a part of the next

    with serving(handler) as server:
        assert read(server.url) == [row(n) for n in range(1, 13)]


def test_a_cut_within_the_headers_is_retried() -> None:
    head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: {KIND}".encode()
    for cut in (3, 11, 20, 40, 50, len(head)):
        with serving(
            lambda e, cut=cut: e.send(head[:cut]), lambda e: e.stream(KIND, event(1)), gone
        ) as server:
            assert read(server.url) == [row(1)]


def test_repeats_are_dropped_within_one_connection_and_across_connections() -> None:
    first = b"".join(map(event, (1, 2, 2, 3)))
    second = b"".join(map(event, (2, 3, 4)))
    with serving(lambda e: e.stream(KIND, first), lambda e: e.stream(KIND, second), gone) as server:
        assert read(server.url) == [row(n) for n in (1, 2, 3, 4)]
        server.requests.clear()
        assert len(read(server.url, ids="free")) == 7


def test_missing_events_are_logged_with_ids_in_sequence(caplog: pytest.LogCaptureFixture) -> None:
    with serving(lambda e: e.stream(KIND, event(1), event(4)), gone) as server:
        assert read(server.url, ids="sequence") == [row(1), row(4)]
    assert "events 2 to 3 are missing" in caplog.text


def test_an_empty_id_resets_the_last_one() -> None:
    with serving(lambda e: e.stream(KIND, b"id: 1\ndata: x\n\nid\ndata: y\n\n"), gone) as server:
        assert read(server.url) == [("x", "message", "1"), ("y", "message", None)]
    assert "last-event-id" not in server.requests[1].headers


@pytest.mark.parametrize(
    ("id", "why"),
    [
        (b"  x", "begins or ends with a blank"),
        (b" x\t", "begins or ends with a blank"),
        (b" a\x1bb", "has control characters"),
        ("\x9b".encode(), "has control characters"),
        (b"9" * 8193, "is longer than 8192 bytes"),
    ],
)
@pytest.mark.parametrize("kind", ["any", "free"])
def test_an_id_that_cannot_be_sent_back_is_refused_when_it_arrives(id: bytes, why: str, kind: str) -> None:
    with (
        serving(lambda e: e.stream(KIND, event(1) + b"id:" + id + b"\ndata: x\n\n"), gone) as server,
        pytest.raises(HttpError, match=why) as raised,
    ):
        read(server.url, ids=kind)
    assert str(raised.value).isprintable()
    assert len(server.requests) == 1


def test_an_id_that_is_too_long_is_refused_even_if_another_follows() -> None:
    """The ids are remembered, too."""
    text = b"id: " + b"x" * 9000 + b"\ndata: x\n\n" + event(2)
    refused = pytest.raises(HttpError, match="is longer than 8192 bytes")
    with serving(lambda e: e.stream(KIND, text), gone) as server, refused:
        read(server.url)


def test_no_id_is_taken_from_another_origin() -> None:
    """Events without ids are read: there is nothing that would be sent back."""

    def elsewhere(exchange: Exchange) -> None:
        exchange.respond(302, Location=f"http://localhost:{exchange.socket.getsockname()[1]}/")

    with serving(elsewhere, lambda e: e.stream(KIND, b"data: x\n\n"), gone) as server:
        assert read(server.url) == [("x", "message", None)]
    refused = pytest.raises(HttpError, match="redirects to another origin")
    with serving(elsewhere, lambda e: e.stream(KIND, event(1)), gone) as server, refused:
        read(server.url)
    assert len(server.requests) == 2


def test_a_cursor_that_is_json_is_sent_as_json() -> None:
    cursor = [{"topic": "eqiad.mediawiki", "partition": 0, "offset": 7}]
    with serving(gone) as server:
        assert list(sse(server.url).read(cursor)) == []
    assert json.loads(server.requests[0].headers["last-event-id"]) == cursor


def test_the_server_sets_the_pause_with_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda e: e.stream(KIND, b"retry: 100\ndata: x\n\n"), gone) as server:
        begun = monotonic()
        read(server.url, retry=timedelta(hours=1))
        assert monotonic() - begun < 30


def test_204_ends_the_source() -> None:
    with serving(gone) as server:
        assert read(server.url) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", ["text/html", "text/event-streams", "application/json"])
@pytest.mark.parametrize("body", [b"data: x\n\n", b""])
def test_another_content_type_fails(kind: str, body: bytes) -> None:
    refused = pytest.raises(HttpError, match=f"'{kind}', it must be text/event-stream")
    with serving(lambda e: e.respond(200, body, Content_Type=kind)) as server, refused:
        read(server.url)
    assert len(server.requests) == 1


@pytest.mark.parametrize("tail", [b"", b"\n\n"])
def test_an_event_that_is_too_long_fails(tail: bytes) -> None:
    long = b"data: " + b"x" * 2000 + tail
    refused = pytest.raises(HttpError, match="max_record_bytes")
    with serving(lambda e: e.stream(KIND, long)) as server, refused:
        read(server.url, max_record_bytes=1000)


def test_an_event_is_yielded_when_its_blank_line_has_arrived() -> None:
    steps = threading.Semaphore(0)

    def handler(exchange: Exchange) -> None:
        exchange.stream(KIND, end=False)
        for number in range(1, 4):
            assert steps.acquire(timeout=10)
            exchange.send(chunked(event(number)))
        exchange.hang()

    with serving(handler) as server:
        source = sse(server.url)
        rows = rows_of(source)
        for number in range(1, 4):
            steps.release()
            assert next(rows) == row(number)
        source.close()
        assert list(rows) == []


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
def test_wrong_options_are_reported_before_anything_is_requested(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        sse(**{"url": "https://example.org/", **options})


def test_headers_are_sent_and_not_displayed() -> None:
    with serving(gone) as server:
        source = sse(server.url, headers="Authorization: Bearer hush")
        assert list(source) == []
    assert server.requests[0].headers["authorization"] == "Bearer hush"
    assert "hush" not in repr(source)


@contextmanager
def reading(source: Any) -> Iterator[list[Any]]:
    rows: list[Any] = []
    thread = threading.Thread(target=lambda: rows.extend(rows_of(source)))
    thread.start()
    try:
        yield rows
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
    exchange.respond(503, Retry_After="500")


@pytest.mark.parametrize(
    "state", [silent, waiting, busy], ids=["no response", "waiting for bytes", "backing off"]
)
def test_close_from_another_thread_ends_a_read(state: Callable[[Exchange], None]) -> None:
    with serving(state) as server, reading(sse(server.url)):
        wait_until(lambda: bool(server.requests), lambda: server.requests)


# In a query


def test_a_query_resumes_after_the_last_durable_event(spark_session: SparkSession, tmp_path: Path) -> None:
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
    last_ids = [exchange.headers.get("last-event-id") for exchange in server.requests]
    assert last_ids[0] is None
    assert None not in last_ids[1:]


def test_on_bad_row_decides_what_happens_to_bad_rows(stream: Callable[..., RunningStream]) -> None:
    def handler(exchange: Exchange) -> None:
        exchange.stream(KIND, b'data: {"n": 1}\n\ndata: oops\n\ndata: {"n": 3}\n\n')

    with serving(handler, gone) as server:
        source = sse(server.url, decode="json", schema="n INT", retry=SOON)
        assert [one.n for one in stream(source, on_bad_row="drop").to_end()] == [1, 3]
        server.requests.clear()
        assert "oops" in stream(source).failure()


def test_a_query_uses_the_format_and_the_schema_of_spark(spark_session: SparkSession) -> None:
    with serving(lambda e: e.stream(KIND, b'data: {"n": 1}\n\n'), gone) as server:
        hw.attach(spark_session)
        reader = spark_session.readStream.format("sse").schema("n INT").option("decode", "json")
        assert reader.option("url", server.url).load().schema.simpleString() == "struct<n:int>"


def test_a_failure_shows_no_secret(stream: Callable[..., RunningStream]) -> None:
    with serving(lambda e: e.respond(401, e.headers["authorization"].encode())) as server:
        message = stream(sse(server.url, headers="Authorization: Bearer hush-hush")).failure()
    assert "responds with status 401" in message
    assert "hush" not in message


def test_the_first_rows_of_an_endless_stream_can_be_read() -> None:
    def endless(exchange: Exchange) -> None:
        exchange.stream(KIND, *(event(n) for n in range(1, 100)), end=False)
        exchange.hang()

    with serving(endless) as server:
        assert [one["id"] for one in islice(sse(server.url), 5)] == ["1", "2", "3", "4", "5"]


def test_a_starlette_server_is_read_to_its_end_across_connections_and_restarts(
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
