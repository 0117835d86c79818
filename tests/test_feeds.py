"""Sources written in Python, read by Spark: what arrives, and how feeds run.

One test imports private modules, to count the requests that the JVM sends.
"""

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from processes import wait_until
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

import headwater as hw
from headwater.runtime.protocol import StatusRequest, StopRequest
from headwater.spark import attach as attach_module
from headwater.testing import END, PAUSE, ListSource, RunningStream

Stream = Callable[..., RunningStream]


@hw.source("n LONG, word STRING")
def feeds_words(count: int = 3, prefix: str = "w", pause: timedelta = timedelta(0)) -> Iterator[Any]:
    """Some words."""
    for n in range(count):
        time.sleep(pause.total_seconds())
        yield n, f"{prefix}{n}"


def test_rows_arrive_once_and_in_order(stream: Stream) -> None:
    rows = [(n, f"w{n}") for n in range(50_000)]
    assert stream(feeds_words(count=50_000)).to_end() == rows


def test_a_format_a_source_option_and_a_value_give_the_same_stream(
    spark_session: SparkSession, stream: Stream
) -> None:
    hw.attach(spark_session)
    named = spark_session.readStream.format("feeds_words").option("count", 5).option("maxRowsPerTrigger", 2)
    plain = spark_session.readStream.format("headwater").option("source", "feeds_words").option("COUNT", "5")
    values = hw.stream(spark_session, feeds_words(count=5), max_rows_per_trigger=2)
    frames = [named.load(), plain.option("max_rows_per_trigger", 2).load(), values]
    for number, frame in enumerate(frames):
        assert frame.schema.simpleString() == "struct<n:bigint,word:string>"
        writer = frame.writeStream.format("memory").queryName(f"form{number}")
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60), query.status
        assert spark_session.table(f"form{number}").collect() == [(n, f"w{n}") for n in range(5)]
        assert {int(p.sources[0].metrics["rowsInBatch"]) for p in query.recentProgress} <= {0, 1, 2}


def test_a_source_defined_late_in_another_thread_is_a_format_in_every_thread(
    spark_session: SparkSession,
) -> None:
    hw.attach(spark_session)

    def define() -> None:
        @hw.source("n LONG")
        def defined_late() -> Iterator[int]:
            yield 1

    thread = threading.Thread(target=define)
    thread.start()
    thread.join()
    assert spark_session.readStream.format("defined_late").load().columns == ["n"]
    assert spark_session.readStream.format("Defined_Late").load().columns == ["n"]
    columns: list[Any] = []
    reader = threading.Thread(
        target=lambda: columns.extend(spark_session.readStream.format("defined_late").load().columns)
    )
    reader.start()
    reader.join()
    assert columns == ["n"]


def test_the_name_of_another_format_is_refused(spark_session: SparkSession) -> None:
    class Taken(DataSource):
        @classmethod
        def name(cls) -> str:
            return "taken_by_another"

    hw.attach(spark_session)
    spark_session.dataSource.register(Taken)
    # The thread of the JVM that serves this thread may be a new one, which has no active session.
    spark_session._jvm.org.apache.spark.sql.SparkSession.clearActiveSession()  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"'taken_by_another' is taken.*another name"):

        @hw.source("n LONG")
        def taken_by_another() -> Iterator[int]:
            yield 1

    assert "taken_by_another" not in [source.name for source in hw.registered()]


def test_two_queries_on_one_source_are_two_feeds(stream: Stream) -> None:
    source = feeds_words(count=1000)
    one, two = stream(source), stream(source)
    assert one.to_end() == two.to_end() == [(n, f"w{n}") for n in range(1000)]
    assert len(hw.feeds()) == 2
    one.stop()
    assert [feed.query for feed in hw.feeds()] == [feed.query for feed in two.feeds]
    two.stop()
    assert hw.feeds() == []


def test_a_row_after_a_pause_is_sent_at_once(stream: Stream) -> None:
    query = stream(ListSource([1, PAUSE]), linger="3650d")  # longer than any machine runs
    assert query.rows(1) == [(1,)]


def test_a_row_waits_no_longer_than_linger(stream: Stream) -> None:
    source = ListSource([1, 2, PAUSE, 3])
    query = stream(source)
    assert query.rows(2) == [(1,), (2,)]
    assert query.feeds[0].rows == 2


@dataclass
class Tick:
    at: datetime
    price: float | None


@hw.source()
def feeds_ticks() -> Iterator[Tick]:
    yield Tick(datetime(2026, 1, 2, 3, 4, 5, 6, timezone.utc), 1.5)
    yield Tick(datetime(1, 1, 1, tzinfo=timezone.utc), None)


def test_a_dataclass_can_be_the_schema(stream: Stream) -> None:
    query = stream(feeds_ticks(), apply=lambda frame: frame.selectExpr("cast(at as string)", "price"))
    assert query.to_end() == [("2026-01-02 03:04:05.000006", 1.5), ("0001-01-01 00:00:00", None)]


def test_the_schema_can_depend_on_the_options(stream: Stream) -> None:
    class Wide(hw.Source, name="feeds_wide"):
        def __init__(self, columns: list[str]) -> None:
            self.columns = columns

        @property
        def schema(self) -> str:
            return ", ".join(f"{name} INT" for name in self.columns)

        def read(self) -> Iterator[dict[str, int]]:
            yield {name: n for n, name in enumerate(self.columns)}

    assert stream(Wide(["a", "b"])).to_end()[0].asDict() == {"a": 0, "b": 1}
    assert stream(Wide(["x"])).to_end()[0].asDict() == {"x": 0}


def test_many_rows_can_be_yielded_at_once(stream: Stream) -> None:
    pandas = pytest.importorskip("pandas")
    batch = pa.RecordBatch.from_pydict({"n": [5, 6], "word": ["e", "f"]})
    items = [
        (1, "a"),
        [(2, "b"), {"n": 3, "word": "c"}],
        [],
        pa.Table.from_batches([batch]).slice(1),
        batch,
        pandas.DataFrame({"word": ["h"], "n": [8]}),
        END,
    ]
    rows = stream(ListSource(items, "n LONG, word STRING")).to_end()
    assert rows == [(1, "a"), (2, "b"), (3, "c"), (6, "f"), (5, "e"), (6, "f"), (8, "h")]


@hw.source("n LONG")
async def feeds_async(count: int = 10) -> AsyncIterator[int]:
    for n in range(count):
        await asyncio.sleep(0)
        yield n


def test_an_async_generator_can_be_a_source(stream: Stream) -> None:
    assert stream(feeds_async(count=5000)).to_end() == [(n,) for n in range(5000)]


def test_the_event_loop_of_a_blocked_async_feed_keeps_running(spark_session: SparkSession) -> None:
    beats: list[float] = []

    @hw.source("n LONG")
    async def feeds_beating() -> AsyncIterator[int]:
        async def beat() -> None:
            while True:
                beats.append(time.monotonic())
                await asyncio.sleep(0.01)

        beating = asyncio.create_task(beat())
        try:
            for n in itertools.count():
                yield n
        finally:
            beating.cancel()

    frame = hw.stream(spark_session, feeds_beating(), durability="memory", buffer_rows=10, batch_rows=10)
    query = frame.writeStream.format("noop").trigger(processingTime="1 hour").start()
    try:
        wait_until(lambda: any(feed.blocked > 0 for feed in hw.feeds()), hw.feeds)
        before = len(beats)
        wait_until(lambda: len(beats) > before + 20, lambda: len(beats))
        assert hw.feeds()[0].blocked > 0
    finally:
        query.stop()


def test_a_full_buffer_holds_the_feed_back(spark_session: SparkSession) -> None:
    numbers = itertools.count()

    @hw.source("n LONG")
    def feeds_eager() -> Iterator[int]:
        yield from numbers

    frame = hw.stream(spark_session, feeds_eager(), durability="memory", buffer_rows=1000, batch_rows=100)
    query = frame.writeStream.format("noop").trigger(processingTime="1 hour").start()
    try:
        wait_until(lambda: any(feed.blocked > 0.2 for feed in hw.feeds()), hw.feeds)
        feed = hw.feeds()[0]
        # In the buffer, taken by the first batch, in the socket, and about to be sent.
        assert next(numbers) < 500_000
        assert feed.waiting == 1000
        assert feed.state == "running"
    finally:
        began = time.monotonic()
        query.stop()
    assert time.monotonic() - began < 5
    assert hw.feeds() == []


def test_an_idle_query_sends_no_requests_to_python(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    query = stream(ListSource([1]))
    query.rows(1)
    current = attach_module.current()
    assert current is not None
    requests: list[type] = []
    control = current[1]._control
    handle = control._handle
    monkeypatch.setattr(
        control, "_handle", lambda request, reply: (requests.append(type(request)), handle(request, reply))
    )
    assert not query.query.awaitTermination(1.5)
    assert requests in ([], [StatusRequest]), "the one that waits for the next change of its status"
    requests.clear()
    query.stop()
    assert requests == [StopRequest]


def test_concurrent_feeds_know_their_shard(stream: Stream) -> None:
    @hw.source("shard INT, of INT, n LONG")
    def feeds_shards(count: int = 100) -> Iterator[tuple[int, int, int]]:
        mine = hw.shard()
        for n in range(count):
            yield mine.index, mine.count, n

    query = stream(feeds_shards(count=2000), concurrency=3)
    rows = query.to_end()
    assert sorted(rows) == [(shard, 3, n) for shard in range(3) for n in range(2000)]
    for shard in range(3):
        assert [n for index, _, n in rows if index == shard] == list(range(2000))
    assert sorted((feed.shard, feed.shards, feed.rows) for feed in query.feeds) == [
        (n, 3, 2000) for n in range(3)
    ]
    assert hw.shard() == type(hw.shard())(0, 1)


def test_a_feed_can_be_paused_and_resumed(stream: Stream) -> None:
    numbers = itertools.count()

    @hw.source("n LONG")
    def feeds_steady() -> Iterator[int]:
        for n in numbers:
            time.sleep(0.002)
            yield n

    query = stream(feeds_steady())
    query.rows(10)
    query.feeds[0].pause()
    query.wait_for(lambda feeds: feeds[0].state == "paused")
    held = next(numbers)
    assert not query.query.awaitTermination(0.5)
    assert next(numbers) <= held + 3
    query.feeds[0].resume()
    before = query.feeds[0].rows
    query.wait_for(lambda feeds: feeds[0].state == "running" and feeds[0].rows > before + 10)
    query.feeds[0].pause()
    query.stop()


def test_available_now_ends_when_the_source_has_caught_up(stream: Stream) -> None:
    began = time.monotonic()
    query = stream(ListSource([1, 2, hw.CAUGHT_UP]), available_now=True, available_now_wait="60s")
    assert query.done() == [(1,), (2,)]
    assert time.monotonic() - began < 50


def test_available_now_ends_with_the_source(stream: Stream) -> None:
    query = stream(feeds_words(count=100), available_now=True, available_now_wait="60s")
    assert len(query.done()) == 100


def test_with_concurrency_all_feeds_must_have_caught_up(stream: Stream) -> None:
    @hw.source("n LONG")
    def feeds_staggered() -> Iterator[Any]:
        time.sleep(0.3 * hw.shard().index)
        yield hw.shard().index
        yield hw.CAUGHT_UP
        while True:
            time.sleep(0.01)

    query = stream(feeds_staggered(), concurrency=3, available_now=True, available_now_wait="60s")
    assert sorted(query.done()) == [(0,), (1,), (2,)]


def test_feeds_log_with_source_and_query_in_every_line(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "headwater.feed")
    query = stream(ListSource([1, END]))
    query.to_end()
    name = query.query.name
    query.stop()
    lines = [record.getMessage() for record in caplog.records if record.name == "headwater.feed"]
    assert [line for line in lines if "ended after 1 rows" in line]
    assert all(line.startswith(f"[list_source, query {name}] ") for line in lines)


def test_the_plan_and_the_progress_show_the_source_without_its_secrets(
    spark_session: SparkSession, stream: Stream
) -> None:
    @hw.source("n LONG")
    def feeds_secretive(token: hw.Secret, topic: str = "t") -> Iterator[int]:
        yield len(token.reveal())
        raise RuntimeError(f"cannot log in with {token.reveal()}")

    query = stream(feeds_secretive(token="hush-hush", topic="x"))
    assert query.rows(1) == [(9,)]
    report = query.query.lastProgress
    assert report is not None
    assert "feeds_secretive(token=***, topic='x')" in report["sources"][0]["description"]
    failure = query.failure()
    assert "cannot log in with ***" in failure
    assert "hush-hush" not in failure + str(report) + repr(hw.feeds())


def test_wrong_options_fail_at_load(spark_session: SparkSession) -> None:
    hw.attach(spark_session)
    reader = spark_session.readStream.format("feeds_words")
    for options, parts in [
        ({"count": "many"}, ["'count'", "'many'", "an integer", "feeds_words"]),
        ({"counts": "5"}, ["'counts'", "Did you mean 'count'", "prefix"]),
        ({"pause": "5"}, ["'pause'", "'5'", "250ms"]),
        ({"onError": "panic"}, ["'onError'", "'panic'", "fail or restart or end"]),
        ({"onBadRow": "hide"}, ["'onBadRow'", "'hide'", "fail or drop or null or keep"]),
        ({"concurrency": "0"}, ["'concurrency'", "'0'", "1 to 256"]),
        ({"batchRows": "0"}, ["'batchRows'", "'0'"]),
        ({"linger": "10"}, ["'linger'", "'10'", "with its unit"]),
        ({"maxRestarts": "3"}, ["'maxRestarts'", "'onError'", "restart"]),
    ]:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            spark_session.readStream.format("feeds_words").options(**options).load()
        first_line = str(caught.value).partition("\n")[0]
        assert all(part in first_line for part in parts), first_line
    with pytest.raises(Exception, match=r"has a fixed schema.*Remove .schema"):
        reader.schema("x INT").load()
    with pytest.raises(Exception, match=r"No source 'feeds_wrods' is defined.*Did you mean 'feeds_words'"):
        spark_session.readStream.format("headwater").option("source", "feeds_wrods").load()
    with pytest.raises(Exception, match="needs the option 'source'"):
        spark_session.readStream.format("headwater").load()
