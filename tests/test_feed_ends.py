"""How feeds end: by themselves, by `query.stop()` whatever they are doing, and by failing."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

import pytest
from processes import wait_until
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.testing import END, FAIL, PAUSE, ListSource, RunningStream

Stream = Callable[..., RunningStream]


class Stubborn(hw.Source, name="ends_stubborn", schema="n LONG"):
    """Yields one row, then does what the test sets, and records the calls of its hooks."""

    after: ClassVar[Callable[["Stubborn"], Iterator[int]]]
    closing: ClassVar[Callable[["Stubborn"], None]]
    events: ClassVar[list[str]]

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.is_running = False

    def on_start(self) -> None:
        self.is_running = True
        self.events.append("on_start")

    def read(self) -> Iterator[int]:
        yield 1
        yield from type(self).after(self)

    def on_failure(self, error: BaseException) -> None:
        self.events.append(f"on_failure {error}")

    def on_stop(self) -> None:
        self.events.append("on_stop")

    def close(self) -> None:
        if not self.is_running:  # the instance that described the source when its stream was loaded
            self.events.append("close unread")
            return
        self.events.append("close")
        self.closed.set()
        type(self).closing(self)


def endless_sleep_in_c(source: Stubborn) -> Iterator[int]:
    time.sleep(8)
    yield 2


def busy(source: Stubborn) -> Iterator[int]:
    while True:
        sum(range(100))
    yield 2


def swallowing(source: Stubborn) -> Iterator[int]:
    while not source.closed.wait(6):
        try:
            time.sleep(0.01)
        except BaseException:
            continue
    end = time.monotonic() + 6
    while time.monotonic() < end:
        try:
            time.sleep(0.01)
        except BaseException:
            continue
    yield 2


def waiting_for_close(source: Stubborn) -> Iterator[int]:
    source.closed.wait()
    yield 2


def reading_a_socket(source: Stubborn) -> Iterator[int]:
    one, two = socket.socketpair()
    source.__dict__["socket"] = one
    with one, two:
        one.recv(1)
    yield 2


def ignoring_generator_exit(source: Stubborn) -> Iterator[int]:
    ignored = 0
    while ignored < 3:  # else Python warns of it once more when the generator is collected
        try:
            yield 2
        except GeneratorExit:
            ignored += 1


def producing(source: Stubborn) -> Iterator[int]:
    n = 2
    while True:
        yield n
        n += 1


def nothing(source: Stubborn) -> None:
    pass


def shutting_the_socket(source: Stubborn) -> None:
    source.__dict__["socket"].shutdown(socket.SHUT_RDWR)


def failing(source: Stubborn) -> None:
    raise RuntimeError("close fails")


def hanging(source: Stubborn) -> None:
    time.sleep(6)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("headwater-feed-")]


@pytest.fixture(autouse=True)
def no_feed_survives() -> Iterator[None]:
    yield
    wait_until(lambda: not threads(), threads, timeout=20)


def run_and_stop(stream: Stream, monkeypatch: pytest.MonkeyPatch, after: Any, closing: Any) -> list[str]:
    events: list[str] = []
    monkeypatch.setattr(Stubborn, "after", after, raising=False)
    monkeypatch.setattr(Stubborn, "closing", closing, raising=False)
    monkeypatch.setattr(Stubborn, "events", events, raising=False)
    query = stream(Stubborn(), durability="memory", buffer_rows=1000)
    query.rows(1)
    began = time.monotonic()
    query.stop()
    took = time.monotonic() - began
    assert took < 5, f"stop() took {took:.1f} s"
    assert query.query.exception() is None
    return events


@pytest.mark.parametrize(
    ("after", "closing"),
    [
        (waiting_for_close, nothing),
        (reading_a_socket, shutting_the_socket),
        (busy, nothing),
        (ignoring_generator_exit, nothing),
        (producing, nothing),
        (waiting_for_close, failing),
    ],
    ids=lambda function: function.__name__,
)
def test_stop_ends_a_feed_whatever_it_is_doing(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, after: Any, closing: Any
) -> None:
    events = run_and_stop(stream, monkeypatch, after, closing)
    assert threads() == []
    assert hw.feeds() == []
    assert events.count("close") == events.count("on_start") == events.count("on_stop") == 1
    assert not [event for event in events if event.startswith("on_failure")]


@pytest.mark.parametrize(
    ("after", "closing"),
    [(endless_sleep_in_c, nothing), (swallowing, nothing), (waiting_for_close, hanging)],
    ids=lambda function: function.__name__,
)
def test_a_feed_that_cannot_be_stopped_is_abandoned(
    stream: Stream,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    after: Any,
    closing: Any,
) -> None:
    events = run_and_stop(stream, monkeypatch, after, closing)
    assert events.count("close") == 1
    assert [(feed.source, feed.state, feed.rows) for feed in hw.feeds()] == [
        ("ends_stubborn", "abandoned", 1)
    ]
    assert "it is abandoned, and its rows are discarded" in caplog.text
    wait_until(lambda: not hw.feeds(), hw.feeds, timeout=20)
    assert threads() == []
    assert events.count("close") == 1


class Sleeping(hw.Source, name="ends_sleeping", schema="n LONG"):
    """Sits in a call that neither `close` nor an interrupt ends."""

    awake: ClassVar[threading.Event]

    def read(self) -> Iterator[int]:
        yield 1
        while not self.awake.is_set():
            time.sleep(8)


@pytest.mark.parametrize("are_shards", [True, False], ids=["shards", "sources"])
def test_twenty_sleeping_feeds_are_stopped_side_by_side(
    spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch, are_shards: bool
) -> None:
    monkeypatch.setattr(Sleeping, "awake", threading.Event(), raising=False)
    if are_shards:
        frame = hw.stream(spark_session, Sleeping(), concurrency=20)
    else:
        frame = reduce(DataFrame.union, [hw.stream(spark_session, Sleeping()) for _ in range(20)])
    query = frame.writeStream.format("noop").start()
    wait_until(lambda: sum(feed.rows for feed in hw.feeds()) == 20, hw.feeds)
    began = time.monotonic()
    query.stop()
    took = time.monotonic() - began
    Sleeping.awake.set()
    assert took < 5, f"stop() took {took:.1f} s"
    assert query.exception() is None


def test_an_async_feed_is_cancelled_where_it_awaits(stream: Stream) -> None:
    seen: list[str] = []

    class Waiting(hw.Source, name="ends_waiting", schema="n LONG"):
        async def read(self) -> AsyncIterator[int]:
            yield 1
            try:
                await asyncio.sleep(3600)
            finally:
                seen.append("cancelled")

        def close(self) -> None:
            seen.append("close")

    query = stream(Waiting())
    query.rows(1)
    query.stop()
    assert seen[0] == "close", "the instance that described the source"
    assert sorted(seen[1:]) == ["cancelled", "close"]
    assert threads() == []


def test_stopped_feeds_leave_no_file_descriptor_open(stream: Stream) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    counts = []
    for _ in range(6):
        query = stream(ListSource([1]), concurrency=3)
        query.rows(3)
        query.stop()
        counts.append(open_files())
    assert max(counts[2:]) <= counts[1] + 2, counts


def test_a_feed_that_hangs_in_on_start_can_be_stopped(stream: Stream) -> None:
    started = threading.Event()

    class Starting(hw.Source, name="ends_starting", schema="n LONG"):
        def on_start(self) -> None:
            started.set()
            while True:
                time.sleep(0.01)

        def read(self) -> Iterator[int]:
            yield 1

    query = stream(Starting())
    assert started.wait(30)
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 5


def test_hooks_are_called_in_order_when_a_source_ends_by_itself(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    monkeypatch.setattr(Stubborn, "after", lambda source: iter(()), raising=False)
    monkeypatch.setattr(Stubborn, "closing", nothing, raising=False)
    monkeypatch.setattr(Stubborn, "events", events, raising=False)
    query = stream(Stubborn())
    assert query.to_end() == [(1,)]
    assert events == ["close unread", "on_start", "on_stop", "close"]
    assert [feed.state for feed in query.feeds] == ["ended"]
    query.stop()
    assert events == ["close unread", "on_start", "on_stop", "close"]


def test_a_failure_fails_the_query_with_its_traceback_after_the_rows_before_it(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def broken(source: Stubborn) -> Iterator[int]:
        yield 2
        raise LookupError("nothing there")

    monkeypatch.setattr(Stubborn, "after", broken, raising=False)
    monkeypatch.setattr(Stubborn, "closing", nothing, raising=False)
    monkeypatch.setattr(Stubborn, "events", events, raising=False)
    query = stream(Stubborn())
    assert query.rows(2) == [(1,), (2,)]
    failure = query.failure()
    first = failure.partition("\n")[0]
    assert (
        "The feed of source 'ends_stubborn' failed: LookupError: nothing there (test_feed_ends.py:" in first
    )
    assert first.endswith("in broken).")
    assert 'raise LookupError("nothing there")' in failure
    assert "headwater/runtime" not in failure
    assert events == ["close unread", "on_start", "on_failure nothing there", "on_stop", "close"]


@pytest.mark.parametrize("rows", [0, 1, 100_000])
def test_a_failure_reaches_the_query_after_any_number_of_rows(stream: Stream, rows: int) -> None:
    query = stream(ListSource([[(n,) for n in range(rows)], FAIL], "n LONG"))
    if rows:
        assert len(query.rows(rows)) == rows
    assert "RuntimeError: FAIL in the items of a ListSource" in query.failure()


def test_an_error_in_init_fails_at_load(spark_session: SparkSession) -> None:
    class Unmade(hw.Source, name="ends_unmade", schema="n LONG"):
        def __init__(self, good: bool = True) -> None:
            if not good:
                raise LookupError("there is no such thing")

        def read(self) -> Iterator[int]:
            yield 1

    with pytest.raises(LookupError, match="no such thing"):
        Unmade(good=False)
    hw.attach(spark_session)
    with pytest.raises(
        Exception, match=r"Source 'ends_unmade' cannot be created: LookupError: there is no such"
    ):
        spark_session.readStream.format("ends_unmade").option("good", "false").load()


def test_with_end_the_query_continues_after_a_failure(stream: Stream) -> None:
    query = stream(ListSource([1, FAIL, 2]), on_error="end")
    assert query.to_end() == [(1,)]
    (feed,) = query.feeds
    assert (feed.state, feed.last_error) == ("ended", "RuntimeError: FAIL in the items of a ListSource")
    assert query.query.isActive


def test_restart_continues_after_the_failure_and_is_counted(stream: Stream) -> None:
    query = stream(ListSource([1, FAIL, 2, FAIL(OSError("gone")), 3, END]), on_error="restart")
    assert query.to_end() == [(1,), (2,), (3,)]
    (feed,) = query.feeds
    assert (feed.restarts, feed.last_error) == (2, "OSError: gone")


def test_restarts_in_a_row_are_limited(stream: Stream) -> None:
    items = [1, FAIL, 2, FAIL, 3, FAIL, FAIL(OSError("the last one")), 4]
    query = stream(ListSource(items), on_error="restart", max_restarts=1)
    assert query.rows(3) == [(1,), (2,), (3,)]
    assert "OSError: the last one" in query.failure()


def test_a_resumable_source_restarts_after_its_last_cursor(stream: Stream) -> None:
    began: list[Any] = []

    @hw.source("n LONG")
    def ends_resumable(since: int | None = None) -> Iterator[hw.At]:
        began.append(since)
        first = 0 if since is None else since + 1
        for n in range(first, 7):
            yield hw.At(n, n)
            if n in (2, 4) and first <= n - 1:
                raise OSError("cut")

    query = stream(ends_resumable(), on_error="restart")
    assert query.to_end() == [(n,) for n in range(7)]
    assert began == [None, 2, 4]
    assert query.feeds[0].cursor == 6


def test_a_feed_that_waits_to_restart_stops_quickly(stream: Stream) -> None:
    query = stream(ListSource([FAIL] * 100, "n LONG"), on_error="restart")
    query.wait_for(lambda feeds: bool(feeds) and feeds[0].restarts >= 2)
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 2


def test_bad_rows_are_dropped_or_nulled_or_fail_the_query(stream: Stream) -> None:
    items = [(1, "a"), ("two", "b"), (3, 3), (4, "d", "more"), {"n": 5, "word": None}, END]
    dropping = stream(ListSource(items, "n LONG, word STRING"), on_bad_row="drop")
    nulling = stream(ListSource(items, "n LONG, word STRING"), on_bad_row="null")
    failing = stream(ListSource(items, "n LONG, word STRING"), on_error="restart")
    assert dropping.to_end() == [(1, "a"), (5, None)]
    assert nulling.to_end() == [(1, "a"), (None, "b"), (3, None), (5, None)]
    assert dropping.feeds[0].bad_rows == nulling.feeds[0].bad_rows == 3
    samples = dropping.feeds[0].bad_row_samples
    assert len(samples) == 3
    assert all(part in samples[0] for part in ("row 1", "'n'", "'two'"))
    assert failing.rows(1) == [(1, "a")]
    failure = failing.failure().partition("\n")[0]
    assert all(part in failure for part in ("row 1", "'n'", "'two'", "Set the option onBadRow to drop"))


def test_a_bad_row_fails_the_query_even_while_the_feed_waits(stream: Stream) -> None:
    assert "row 0" in stream(ListSource([("x",), PAUSE], "n LONG")).failure()


def test_a_row_of_64_mb_passes_and_a_larger_one_is_a_bad_row(stream: Stream) -> None:
    class Heavy(hw.Source, name="ends_heavy", schema="n LONG, payload STRING"):
        def __init__(self, size: int) -> None:
            self.size = size

        def read(self) -> Iterator[tuple[int, str]]:
            yield 1, "x" * self.size
            yield 2, "small"

    sizes = stream(Heavy(64_000_000), apply=lambda frame: frame.selectExpr("n", "length(payload)"))
    assert sizes.to_end() == [(1, 64_000_000), (2, 5)]
    failure = stream(Heavy(70_000_000)).failure().partition("\n")[0]
    assert all(part in failure for part in ("row 0", "'payload'", "70,000,0", "67,108,864"))
    dropping = stream(Heavy(70_000_000), on_bad_row="drop")
    assert dropping.to_end() == [(2, "small")]


def test_rows_before_an_invalid_item_are_read(stream: Stream) -> None:
    @hw.source("n LONG")
    def ends_forgetful(since: int | None = None) -> Iterator[Any]:
        for n in range(1000):
            yield hw.At(n, n)
        yield 5

    query = stream(ends_forgetful(), linger="1s")
    assert len(query.rows(1000)) == 1000
    assert "it yielded 5" in query.failure()


def test_the_place_of_a_failure_is_the_authors_line(stream: Stream) -> None:
    @hw.source("n LONG")
    def ends_in_a_library() -> Iterator[int]:
        yield int(json.loads("{"))

    assert "(test_feed_ends.py:" in stream(ends_in_a_library()).failure().partition("\n")[0]


def test_an_author_may_reuse_a_dict_or_a_list_for_the_next_row(stream: Stream) -> None:
    @hw.source("n LONG")
    def ends_thrifty() -> Iterator[Any]:
        row: dict[str, int] = {}
        page: list[int] = []
        for n in range(1000):
            row["n"] = n
            yield row
            page.append(n)
            if len(page) == 100:
                yield page
                page.clear()

    rows = sorted(n for (n,) in stream(ends_thrifty()).to_end())
    assert rows == sorted([*range(1000), *range(1000)])
