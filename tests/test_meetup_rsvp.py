"""`meetup_rsvp` against the simulator, which knows what it sent: every fault, and restarts, through Spark.

Imports the private Position, to test it without a server.
"""

from __future__ import annotations

import doctest
import importlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from http_server import Exchange, serving
from hypothesis import given
from hypothesis import strategies as st
from processes import wait_until
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType
from test_log import Checkpointed

import headwater as hw
from headwater.http import HttpError
from headwater.sim import (
    BadRecord,
    Cut,
    CutMidCharacter,
    CutMidRecord,
    End,
    Fault,
    Redirect,
    Repeat,
    Reset,
    RsvpSim,
    Skip,
    Stall,
    Status,
)
from headwater.sources import meetup_rsvp
from headwater.sources.rsvp_lines import Position
from headwater.testing import RunningStream

Stream = Callable[..., RunningStream]

SOON = timedelta(milliseconds=10)
START = datetime(2024, 5, 31, 12, tzinfo=timezone.utc)


@pytest.fixture(autouse=True)
def no_simulator_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("headwater-sim")]


@pytest.fixture
def closed_later() -> Iterator[Callable[[RsvpSim], RsvpSim]]:
    with ExitStack() as stack:
        yield stack.enter_context


def source(sim: RsvpSim, **options: Any) -> Any:
    return meetup_rsvp(url=sim.url, **{"retry": SOON, **options})


def texts(rows: list[Any]) -> list[str]:
    return [row.rsvp for row in rows]


def different(sim: RsvpSim) -> list[str]:
    """The records that the simulator sent, without repeats, in order."""
    return [sim.line(n).decode().rstrip("\n") for n in dict.fromkeys(sim.sent)]


def test_rows_are_the_lines_and_their_time_of_arrival(stream: Stream) -> None:
    with RsvpSim(seed=1, rate=0, count=50) as sim:
        before = datetime.now()
        rows = stream(source(sim)).rows(50)
        assert texts(rows) == different(sim)
        assert len(sim.sent) == 50
        assert all(before - timedelta(seconds=1) < row.timestamp <= datetime.now() for row in rows)


FAULTS = [
    Cut(20),
    CutMidRecord(20),
    CutMidCharacter(20),
    End(20),
    Reset(20),
    Repeat(20, count=7),
    Stall(20),
    Skip(20, count=3),
    Status(429, retry_after=0, times=2),
    Status(503),
    Redirect(),
]


@pytest.mark.parametrize("planned", FAULTS, ids=lambda planned: type(planned).__name__)
def test_a_fault_loses_and_repeats_no_record(stream: Stream, planned: Fault) -> None:
    with RsvpSim(seed=2, rate=0, count=60, faults=[planned]) as sim:
        count = 60 - getattr(planned, "count", 0) if isinstance(planned, Skip) else 60
        rows = stream(source(sim, idle_timeout=timedelta(seconds=0.5))).rows(count)
        assert texts(rows) == different(sim)
        assert sim.faults_come == [planned] * planned.times


def test_all_faults_at_once_at_a_rate(stream: Stream) -> None:
    every = [type(planned)(after=9 * n) for n, planned in enumerate(FAULTS[:5], 1)]
    more = [Repeat(60), Cut(70, times=5), Status(after=80)]
    with RsvpSim(seed=3, rate=400, count=200, faults=[*every, *more]) as sim:
        rows = stream(source(sim, since_count=1000)).rows(200)
        assert texts(rows) == [sim.line(n).decode().rstrip("\n") for n in range(200)]
        assert len(sim.faults_come) >= 11


def test_a_reconnect_requests_the_millisecond_before_and_drops_repeats(stream: Stream) -> None:
    with RsvpSim(seed=2, rate=0, count=30, start=START, faults=[Cut(12)]) as sim:
        rows = stream(source(sim)).rows(30)
        again = {"since_mtime": str(sim.record(11)["mtime"] - 1)}
        assert [request.query for request in sim.requests] == [{}, again]
        assert sim.sent[10:14] == [10, 11, 10, 11]
        assert texts(rows) == different(sim)


@pytest.mark.parametrize("decode", ["text", "json"])
def test_on_bad_row_decides_what_happens_to_a_bad_record(
    stream: Stream, closed_later: Callable[[RsvpSim], RsvpSim], decode: str
) -> None:
    def reading(on_bad_row: str) -> tuple[RsvpSim, RunningStream]:
        sim = closed_later(RsvpSim(seed=4, rate=0, count=20, faults=[BadRecord(5)]))
        return sim, stream(source(sim, decode=decode), on_bad_row=on_bad_row)

    _, query = reading("fail")
    message = query.failure()
    assert "row 5" in message
    assert '{"rsvp_id":17,"venue":' in message
    sim, query = reading("drop")
    good = query.rows(20)
    assert [id_of(row) for row in good] == [sim.record(n)["rsvp_id"] for n in sim.sent]
    assert query.feeds[0].bad_rows == 1
    sim, query = reading("null")
    rows = query.rows(21)
    assert [id_of(row) for row in rows] == [id_of(row) for row in [*good[:5], rows[5], *good[5:]]]
    assert id_of(rows[5]) is None


def id_of(row: Any) -> Any:
    if "rsvp" in row:
        return json.loads(row.rsvp)["rsvp_id"] if row.rsvp.endswith("}") else None
    return row.rsvp_id


def test_the_schema_parses_the_records_of_the_feed(stream: Stream) -> None:
    def parsed(frame: DataFrame) -> DataFrame:
        options = {"mode": "FAILFAST"}
        return frame.select(F.from_json("rsvp", hw.RSVP_SCHEMA, options).alias("r")).select("r.*")

    with RsvpSim(seed=5, rate=0, count=300) as sim:
        by_spark = stream(source(sim), apply=parsed).rows(300)
        by_decoder = stream(source(sim, decode="json")).rows(300)
        assert by_spark == by_decoder
        for n, row in enumerate(by_decoder):
            assert without_none(row.asDict(recursive=True)) == sim.record(n)


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_none(part) for key, part in value.items() if part is not None}
    return [without_none(part) for part in value] if isinstance(value, list) else value


def test_decoded_rows_have_a_time_of_arrival_with_metadata(stream: Stream) -> None:
    with RsvpSim(seed=5, rate=0, count=3) as sim:
        rows = stream(source(sim, decode="json", metadata=True)).rows(3)
        assert [row.rsvp_id for row in rows] == [sim.record(n)["rsvp_id"] for n in range(3)]
        assert all(abs(datetime.now() - row.timestamp) < timedelta(minutes=1) for row in rows)
    assert source(sim, decode="json").schema.names == StructType.fromDDL(hw.RSVP_SCHEMA).names
    assert source(sim, decode="json", metadata=True).schema.names[-1] == "timestamp"


def test_restarts_of_the_query_lose_and_repeat_nothing(spark_session: SparkSession, tmp_path: Path) -> None:
    """Each query reads up to a stall; the next one is cut before it reaches another."""
    stalls = [Stall(after) for after in (50, 150, 250)]
    faults = [Cut(40), CutMidRecord(130), Repeat(170), Reset(200), CutMidCharacter(260)]
    hw.attach(spark_session)
    checkpoint = Checkpointed(spark_session, tmp_path)
    checkpoint.sink.columns = ["rsvp"]
    with RsvpSim(seed=6, rate=0, count=400, faults=[*faults, *stalls]) as sim:
        for target in (50, 150, 250, 400):
            reader = spark_session.readStream.format("meetup_rsvp").option("url", sim.url)
            with checkpoint.reading(reader.option("retry", "10ms").load()) as query:
                checkpoint.until(query, target)
            assert query.exception() is None
            assert len(checkpoint.sink.rows) == target
        assert checkpoint.sink.rows == [(sim.line(n).decode().rstrip("\n"),) for n in range(400)]
        assert set(sim.faults_come) == {*faults, *stalls}
        assert len(sim.requests) == 8
        assert all("since_mtime" in request.query for request in sim.requests[1:])


def test_another_url_on_the_same_checkpoint_is_refused(spark_session: SparkSession, tmp_path: Path) -> None:
    def run(sim: RsvpSim) -> Any:
        frame = hw.stream(spark_session, source(sim), available_now_wait="300ms")
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        return writer.trigger(availableNow=True).start()

    with RsvpSim(rate=0, count=5) as one, RsvpSim(rate=0, count=5) as two:
        assert run(one).awaitTermination(60)
        with pytest.raises(Exception, match=r"its option 'url' was .* and is .* now"):
            run(two).awaitTermination(60)


def test_the_first_start_begins_with_new_records_or_since_count_or_at_a_cursor(stream: Stream) -> None:
    with RsvpSim(seed=7, rate=0, count=40, start=START) as sim:
        assert texts(stream(source(sim, since_count=7)).rows(7)) == different(sim)
        mtime = sim.record(30)["mtime"]
        assert len(stream(source(sim), start_cursor=mtime).rows(10)) == 10
        cursor = {"mtime": mtime, "ids": [sim.record(30)["rsvp_id"]]}
        assert len(stream(source(sim), start_cursor=cursor).rows(9)) == 9
        queries = [request.query for request in sim.requests]
        assert queries == [{"since_count": "7"}, *[{"since_mtime": str(mtime - 1)}] * 2]
    with RsvpSim(rate=100) as sim:
        wait_until(lambda: sim.timeline.made > 10, lambda: sim.timeline.made)
        stream(source(sim)).rows(3)
        assert sim.sent[0] > 10


def test_a_changed_rsvp_is_not_a_repeat() -> None:
    with RsvpSim(rate=0, count=60) as sim:
        rows = list(itertools.islice(source(sim, decode="json"), 60))
        ids = [row["rsvp_id"] for row in rows]
        assert len(set(ids)) < 60
        assert len({(row["rsvp_id"], row["mtime"]) for row in rows}) == 60


def test_late_records_are_not_repeats() -> None:
    position = Position({"mtime": 50, "ids": [1]})
    late, newest = b'{"rsvp_id": 2, "mtime": 40}', b'{"rsvp_id": 3, "mtime": 50}'
    assert [line.data for line in position.new_lines([late, newest, late, newest])] == [late, newest]
    assert position.cursor == {"mtime": 50, "ids": [1, 3]}
    assert len(position.new_lines([b'{"mtime": 1}', b"[]", b"{}"] * 2)) == 6


def rsvp(id: Any, mtime: Any) -> bytes:
    return json.dumps({"rsvp_id": id, "mtime": mtime}).encode()


@pytest.mark.parametrize(
    ("id", "mtime"), [(1, -5), (-1, 5), (1, 1 << 63), (10**1500, 5), (1, 1.5), (True, 5)]
)
def test_numbers_that_a_cursor_cannot_have_do_not_get_into_it(id: Any, mtime: Any) -> None:
    """The line is new each time, as one without an id is."""
    position = Position(None)
    assert len(position.new_lines([rsvp(id, mtime), rsvp(id, mtime)])) == 2
    assert position.cursor is None
    position.new_lines([rsvp(1, 1000), rsvp(id, mtime)])
    assert Position(position.cursor).cursor == {"mtime": 1000, "ids": [1]}


def test_the_cursor_stays_small_however_many_records_share_a_time() -> None:
    position = Position(None)
    assert len(position.new_lines([rsvp(id, 1000) for id in range(5000)])) == 5000
    assert position.cursor == {"mtime": 1000, "ids": list(range(4000, 5000))}
    assert position.new_lines([rsvp(id, 1000) for id in range(5000)]) == []


@pytest.mark.parametrize("decode", ["text", "json"])
def test_a_response_that_ends_within_a_record_is_requested_again(decode: str) -> None:
    one, two = rsvp(1, 1000), rsvp(2, 2000)
    with serving(
        lambda e: e.respond(200, one + b"\n" + two[:-3]),
        lambda e: e.respond(200, one + b"\n" + two),  # complete, although there is no line break
        lambda e: e.respond(404),
    ) as server:
        items = meetup_rsvp(server.url, decode=decode, retry=SOON).read(None)
        got = [item.rows for item in itertools.islice(items, 2)]
    rows = [row for rows in got for row in (rows if decode == "text" else rows.to_pylist())]
    assert len(rows) == 2
    assert not any(isinstance(row, hw.BadRow) for row in rows)
    assert server.requests[1].query == {"since_mtime": "999"}


def test_html_is_refused_by_its_content_type() -> None:
    with (
        serving(lambda e: e.respond(200, b"<html>\n", Content_Type="text/html")) as server,
        pytest.raises(HttpError, match="'text/html'"),
    ):
        list(meetup_rsvp(server.url).read(None))


def test_no_cursor_is_taken_from_another_origin() -> None:
    def elsewhere(exchange: Exchange) -> None:
        exchange.respond(302, Location=f"http://localhost:{exchange.socket.getsockname()[1]}/")

    with (
        serving(elsewhere, lambda e: e.respond(200, rsvp(1, 1000) + b"\n")) as server,
        pytest.raises(HttpError, match="redirects to another origin"),
    ):
        list(meetup_rsvp(server.url).read(None))


@given(
    steps=st.lists(st.integers(0, 2), max_size=60),
    cuts=st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=8),
)
def test_each_record_comes_once_whatever_is_cut_and_restarted(
    steps: list[int], cuts: list[tuple[int, bool]]
) -> None:
    """A restart keeps only the cursor, as JSON; a reconnect keeps the whole position."""
    mtimes = list(itertools.accumulate([1000, *steps]))
    lines = [json.dumps({"rsvp_id": n, "mtime": mtime}).encode() for n, mtime in enumerate(mtimes)]
    position, got = Position(None), []
    for count, is_restart in [*cuts, (len(lines), True)]:
        after = int(position.params.get("since_mtime", 0))
        first = next((n for n, mtime in enumerate(mtimes) if mtime > after), len(lines))
        for line in lines[first : first + count]:
            got += [new.data for new in position.new_lines([line])]
        if is_restart:
            position = Position(json.loads(json.dumps(position.cursor)))
    assert got == lines[: len(got)]
    assert len(got) == len(lines)


CURSORS = ["x", {"mtime": "5", "ids": []}, {"mtime": 5}, {"mtime": -1, "ids": []}, [5], True]


@pytest.mark.parametrize("cursor", CURSORS)
def test_a_malformed_cursor_is_refused(cursor: Any) -> None:
    with pytest.raises(ValueError, match="is not a cursor of RSVPs; it must look like") as caught:
        Position(cursor)
    assert repr(cursor) in str(caught.value)


def test_permanent_errors_of_the_server_fail_the_source() -> None:
    with RsvpSim(rate=0, count=5, faults=[Status(404)]) as sim, pytest.raises(HttpError, match="404"):
        next(iter(source(sim)))
    with (
        RsvpSim(rate=0, count=5, faults=[Status(503, times=9)]) as sim,
        pytest.raises(HttpError, match="max_retries=2"),
    ):
        next(iter(source(sim, max_retries=2)))


def test_without_a_url_the_error_says_that_the_public_feed_is_gone(spark_session: SparkSession) -> None:
    with pytest.raises(ValueError, match=r"shut its public feed down.*headwater sim rsvp"):
        meetup_rsvp()
    hw.attach(spark_session)
    with pytest.raises(Exception, match=r"shut its public feed down.*headwater sim rsvp"):
        spark_session.readStream.format("meetup_rsvp").load()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decode": "xml"}, "option 'decode' of source 'meetup_rsvp' is 'xml'"),
        ({"since_count": -1}, "option 'since_count' is -1, it must be 0 or more"),
        ({"url": "http://stream.example.org/2/rsvps"}, "allow_http"),
    ],
)
def test_options_are_validated(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        meetup_rsvp(**{"url": "http://127.0.0.1:1/2/rsvps", **options})


def test_close_ends_a_read_that_waits() -> None:
    with RsvpSim(rate=0, count=3) as sim:
        reader = source(sim)
        rows: list[Any] = []
        thread = threading.Thread(target=lambda: rows.extend(reader.read(None)))
        thread.start()
        wait_until(lambda: bool(rows), lambda: rows)
        reader.close()
        thread.join(10)
        assert not thread.is_alive()
        assert rows[-1].cursor == {"mtime": sim.record(2)["mtime"], "ids": [sim.record(2)["rsvp_id"]]}


def test_the_cursor_is_json() -> None:
    with RsvpSim(rate=0, count=30) as sim:
        for item in itertools.islice(source(sim).read(None), 1):
            assert json.loads(json.dumps(item.cursor)) == item.cursor


@pytest.mark.parametrize("module", ["rsvp_lines", "meetup_rsvp"])
def test_the_examples_in_docstrings_run(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"headwater.sources.{module}"))
    assert (results.attempted > 0, results.failed) == (True, 0)
