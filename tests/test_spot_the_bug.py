"""The mistakes of wiki/Spot-the-bug.md in real queries, beside the same queries without them."""

from __future__ import annotations

import os
import queue
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from bugs import api, batches, counts, iterators, lines, listening, messages, shards, silence, stamps
from bugs.client import Client
from processes import wait_until
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headwater.testing import RunningStream

Stream = Callable[..., RunningStream]


class Queries:
    """Queries on one checkpoint, one after the other, and the first column of all that they gave."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._by_number: dict[int, list[Any]] = {}
        self.sink_is_broken = False

    @property
    def batches(self) -> list[list[Any]]:
        return list(self._by_number.values())

    @property
    def rows(self) -> list[Any]:
        return [row for batch in self.batches for row in batch]

    def read(self, reader: type[Any], ddl: str, **options: str) -> DataFrame:
        return self.spark.readStream.format(api.register(self.spark, reader, ddl)).options(**options).load()

    @contextmanager
    def running(self, stream: DataFrame) -> Iterator[Any]:
        writer = stream.writeStream.foreachBatch(self._sink)
        query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        try:
            yield query
        finally:
            query.stop()

    def until(self, query: Any, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            if (error := query.exception()) is not None:
                raise error
            return condition()

        wait_until(holds, lambda: (self.batches, query.status, query.lastProgress))

    def failure(self, stream: DataFrame) -> str:
        with self.running(stream) as query, pytest.raises(StreamingQueryException) as raised:
            assert not query.awaitTermination(60), "the query ended without an error"
        return str(raised.value)

    def fail_in_the_sink(self, stream: DataFrame) -> None:
        self.sink_is_broken = True
        assert "the sink is broken" in self.failure(stream)
        self.sink_is_broken = False

    def _sink(self, frame: DataFrame, number: int) -> None:
        """Idempotent, as a sink has to be: a batch that was stopped before its commit comes again."""
        if self.sink_is_broken:
            raise OSError("the sink is broken")
        self._by_number[number] = [row[0] for row in frame.collect()]


@pytest.fixture
def queries(spark_session: SparkSession, tmp_path: Path) -> Queries:
    return Queries(spark_session, tmp_path)


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    """The clients that sources have made; none of them survives the test."""
    Client.made.clear()
    yield Client.made
    for client in Client.made:
        client.close()
        with suppress(queue.Empty):
            client.on_message.__self__.get_nowait()  # it may wait for room, in a queue that nobody reads
        client.thread.join(60)
        assert not client.thread.is_alive()


@pytest.mark.parametrize(
    ("reader", "is_broken"),
    [(counts.CountsAnew, True), (counts.NumbersAnew, True), (counts.CountsOn, False)],
)
def test_an_offset_that_begins_anew_repeats_rows(queries: Queries, reader: type, is_broken: bool) -> None:
    stream = queries.read(reader, "n LONG")
    for _ in range(2):
        done = len(queries.batches)
        with queries.running(stream) as query:
            queries.until(query, lambda done=done: len(queries.batches) >= done + 4)
    repeated = [row for row, times in Counter(queries.rows).items() if times > 1]
    if is_broken:
        assert repeated[:3] == [3, 4, 5]
        assert [] in queries.batches
    else:
        assert queries.rows == list(range(len(queries.rows)))


def test_an_offset_that_goes_back_loses_rows(queries: Queries) -> None:
    assert read_while_the_file_is_replaced(queries, lines.LinesThereAre) == ["a1", "a2", "a3", "b3"]


def test_an_offset_that_says_of_which_file_goes_on(queries: Queries) -> None:
    rows = read_while_the_file_is_replaced(queries, lines.LinesOfWhichFile)
    assert rows == ["a1", "a2", "a3", "b1", "b2", "b3"]


def read_while_the_file_is_replaced(queries: Queries, reader: type) -> list[str]:
    file, new = queries.folder / "lines", queries.folder / "new"
    file.write_text("a1\na2\na3\n")
    with queries.running(queries.read(reader, "line STRING", file=str(file))) as query:
        queries.until(query, lambda: len(queries.rows) == 3)
        new.write_text("b1\nb2\n")
        os.replace(new, file)
        queries.until(query, lambda: len(queries.batches) == 2)
        with file.open("a") as more:
            more.write("b3\n")
        queries.until(query, lambda: queries.rows[-1] == "b3")
    return queries.rows


def test_an_offset_without_an_order_of_its_keys_makes_empty_batches_for_ever(queries: Queries) -> None:
    with queries.running(queries.read(shards.AsTheyAnswer, "row STRING")) as query:
        queries.until(query, lambda: len(queries.batches) > 5)
    assert len(queries.rows) == 5
    assert queries.batches[1:] == [[]] * (len(queries.batches) - 1)


def test_an_offset_with_an_order_of_its_keys_makes_one_batch(queries: Queries) -> None:
    stream = queries.read(shards.InOneOrder, "row STRING")
    with every_trigger_reports(queries.spark), queries.running(stream) as query:
        queries.until(query, lambda: idle_reports(query) > 5)
    assert len(queries.rows) == 5
    assert len(queries.batches) == 1


@contextmanager
def every_trigger_reports(spark: SparkSession) -> Iterator[None]:
    """Those without a batch too, of queries that are started meanwhile."""
    setting = "spark.sql.streaming.noDataProgressEventInterval"
    spark.conf.set(setting, "1")
    try:
        yield
    finally:
        spark.conf.unset(setting)


def idle_reports(query: Any) -> int:
    return sum(progress["numInputRows"] == 0 for progress in query.recentProgress)


def test_what_is_taken_when_spark_asks_is_lost_with_its_batch(queries: Queries) -> None:
    stream = queries.read(messages.DeletesWhenAsked, "text STRING", folder=str(spool(queries)))
    queries.fail_in_the_sink(stream)
    with queries.running(stream) as query:
        queries.until(query, lambda: len(queries.batches) > 0)
    assert queries.rows == []
    assert list((queries.folder / "spool").iterdir()) == []


def test_what_is_taken_when_its_batch_is_done_is_not_lost(queries: Queries) -> None:
    folder = spool(queries)
    stream = queries.read(messages.DeletesWhenDone, "text STRING", folder=str(folder))
    queries.fail_in_the_sink(stream)
    with queries.running(stream) as query:
        queries.until(query, lambda: len(queries.rows) == 3)
        (folder / "3").write_text("d")
        queries.until(query, lambda: [file.name for file in folder.iterdir()] == ["3"])
        queries.until(query, lambda: len(queries.rows) == 4)
    assert queries.rows == ["a", "b", "c", "d"]


def spool(queries: Queries) -> Path:
    folder = queries.folder / "spool"
    folder.mkdir()
    for n, text in enumerate("abc"):
        (folder / str(n)).write_text(text)
    return folder


def test_batches_that_are_kept_are_not_there_after_a_restart(queries: Queries) -> None:
    stream = queries.read(batches.KeepsBatches, "n LONG")
    queries.fail_in_the_sink(stream)
    for _ in range(2):
        assert "KeyError: 3" in queries.failure(stream)


def test_ranges_can_be_read_at_any_time(queries: Queries) -> None:
    stream = queries.read(batches.ServesRanges, "n LONG")
    queries.fail_in_the_sink(stream)
    with queries.running(stream) as query:
        queries.until(query, lambda: len(queries.rows) >= 6)
    assert queries.rows == list(range(6))


def test_a_simple_reader_that_gives_a_generator_fails(queries: Queries) -> None:
    assert "cannot pickle 'generator' object" in queries.failure(
        queries.read(iterators.GivesGenerator, "n LONG")
    )


def test_a_simple_reader_that_gives_the_iterator_of_a_list_works(queries: Queries) -> None:
    with queries.running(queries.read(iterators.GivesList, "n LONG")) as query:
        queries.until(query, lambda: len(queries.rows) > 0)
    assert queries.rows == [0, 1, 2]


def test_milliseconds_are_in_january_1970(stream: Stream) -> None:
    query = stream(stamps.taken_for_micros(), apply=as_micros)
    assert [moment(row) for row in query.to_end()] == [
        datetime(1970, 1, 20, 16, 13, 20, tzinfo=timezone.utc),
        datetime(1970, 1, 20, 16, 13, 20, 500, tzinfo=timezone.utc),
    ]


def test_milliseconds_that_are_said_to_be_some_arrive_as_they_were_sent(stream: Stream) -> None:
    query = stream(stamps.said_to_be_millis(), apply=as_micros)
    assert [moment(row).timestamp() * 1000 for row in query.to_end()] == stamps.SENT


def test_a_number_is_no_time(stream: Stream) -> None:
    assert "field 'at': int does not fit" in stream(stamps.without_unit()).failure()


def as_micros(frame: DataFrame) -> DataFrame:
    """A TIMESTAMP as PySpark gives it is in the zone of this machine."""
    return frame.selectExpr("unix_micros(at) AS micros")


def moment(row: Any) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=row.micros)


def test_a_queue_without_a_bound_grows_while_nobody_reads(stream: Stream, clients: list[Client]) -> None:
    query = hold_back(stream, listening.never_full())
    wait_until(lambda: clients[0].sent > 1_000_000, lambda: clients[0].sent)
    assert query.feeds[0].rows < 200_000


def test_a_queue_with_a_bound_holds_its_client_back(stream: Stream, clients: list[Client]) -> None:
    query = hold_back(stream, listening.full_and_closed())
    query.wait_for(lambda feeds: feeds[0].blocked > 1)
    assert clients[0].sent < 200_000  # the queue's thousand, and some batches on their way


def hold_back(stream: Stream, source: Any) -> RunningStream:
    """A query that takes a row at a time, on a buffer that has room for ten."""
    query = stream(source, durability="memory", buffer_rows=10, max_rows_per_trigger=1)
    query.wait_for(lambda feeds: bool(feeds) and feeds[0].blocked > 0)
    return query


def test_a_client_that_is_not_closed_outlives_its_query(stream: Stream, clients: list[Client]) -> None:
    query = stream(listening.never_closed())
    query.rows(1)
    query.stop()
    assert clients[0].thread.is_alive()


def test_a_client_that_is_closed_ends_with_its_query(stream: Stream, clients: list[Client]) -> None:
    query = stream(listening.full_and_closed())
    query.rows(1)
    query.stop()
    wait_until(lambda: not clients[0].thread.is_alive(), lambda: "the client lives")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port where nobody listens, and nobody else can."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


def test_an_error_that_is_swallowed_is_seen_nowhere(stream: Stream, closed_port: int) -> None:
    silence.attempts = 0
    query = stream(silence.tries_for_ever(port=closed_port))
    (feed,) = query.wait_for(lambda feeds: silence.attempts > 100)
    assert query.query.isActive
    assert (feed.state, feed.rows, feed.restarts, feed.last_error) == ("running", 0, 0, None)


def test_an_error_that_is_let_out_fails_the_query_or_is_told(stream: Stream, closed_port: int) -> None:
    assert "ConnectionRefusedError" in stream(silence.tries_once(port=closed_port)).failure()
    query = stream(silence.tries_once(port=closed_port), on_error="restart")
    (feed,) = query.wait_for(lambda feeds: bool(feeds) and feeds[0].restarts > 0)
    assert feed.last_error is not None
    assert "refused" in feed.last_error
