"""What operators see of a running feed: metrics, `hw.feeds()`, the log, and the listener to copy."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from http_server import Exchange, serving
from processes import ROOT, run_command, wait_until
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import headwater as hw
from headwater.sources import sse
from headwater.testing import FAIL, PAUSE, ListSource, RunningStream

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test

Stream = Callable[..., RunningStream]


@pytest.fixture
def soon(spark_session: SparkSession) -> Iterator[None]:
    """Queries without data report their progress every 100 ms, not every ten seconds."""
    name = "spark.sql.streaming.noDataProgressEventInterval"
    spark_session.conf.set(name, "100")
    yield
    spark_session.conf.unset(name)


def metrics_of(query: StreamingQuery) -> dict[str, str]:
    progress = query.lastProgress
    return dict(progress["sources"][0]["metrics"]) if progress else {}


def until(query: StreamingQuery, condition: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """The metrics, once the condition holds for them."""
    wait_until(lambda: condition(metrics_of(query)), lambda: (metrics_of(query), query.status))
    return metrics_of(query)


def now() -> datetime:
    return datetime.now(timezone.utc)


def time_in(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


class Faults(hw.Source, name="operating_faults", schema="n LONG"):
    """Two rows and a bad one, then an error with a secret, and after a restart a row and silence."""

    starts = 0

    def __init__(self, token: hw.Secret) -> None:
        self._token = token
        self._closed = threading.Event()

    def read(self) -> Iterator[Any]:
        type(self).starts += 1
        if type(self).starts == 1:
            yield from [1, 2, "three"]
            raise OSError(f"refused with {self._token.reveal()}")
        yield 4
        self._closed.wait()

    def close(self) -> None:
        self._closed.set()


@pytest.mark.usefixtures("soon")
def test_restarts_bad_rows_and_the_last_error_are_in_metrics_and_feeds(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faults, "starts", 0)
    begun = now() - timedelta(milliseconds=1)  # times in metrics have milliseconds
    running = stream(Faults(hw.Secret("hush-hush")), on_error="restart", on_bad_row="drop")
    assert running.rows(3) == [(1,), (2,), (4,)]
    metrics = until(running.query, lambda m: m.get("state") == "running" and m["restarts"] == "1")
    assert metrics["badRows"] == "1"
    assert metrics["lastError"] == "OSError: refused with ***"
    assert begun <= time_in(metrics["lastErrorAt"]) <= time_in(metrics["lastRowAt"]) <= now()
    (feed,) = running.feeds
    assert (feed.state, feed.restarts, feed.bad_rows, feed.last_error) == (
        "running",
        1,
        1,
        "OSError: refused with ***",
    )
    assert feed.last_error_at is not None
    assert feed.last_row_at is not None
    assert begun <= feed.last_error_at <= feed.last_row_at + timedelta(milliseconds=1) <= now()


@hw.source("n LONG")
def operating_ticks() -> Iterator[int]:
    for n in itertools.count():
        yield n
        time.sleep(0.01)


def test_rates_are_in_metrics_and_feeds(stream: Stream) -> None:
    running = stream(operating_ticks())
    metrics = until(running.query, lambda m: float(m.get("rowsPerSecond", 0)) > 0)
    assert float(metrics["bytesPerSecond"]) > float(metrics["rowsPerSecond"]), "a row has eight bytes"
    (feed,) = running.wait_for(lambda feeds: bool(feeds) and feeds[0].rows_per_second > 0)
    assert feed.bytes_per_second is not None
    assert feed.bytes_per_second > feed.rows_per_second
    running.stop()


def test_feeds_tell_for_how_long_rows_wait(spark_session: SparkSession, stream: Stream) -> None:
    """Batches come once an hour, so what arrives after the first one waits."""
    source = ListSource([1, PAUSE, 2, 3])
    writer = hw.stream(spark_session, source).writeStream.format("noop").queryName("operating_lag")
    query = writer.trigger(processingTime="1 hour").start()
    try:
        wait_until(lambda: query.lastProgress is not None, lambda: query.status)
        source.go_on()

        def feed() -> Any:
            return next(feed for feed in hw.feeds() if feed.query == "operating_lag")

        wait_until(lambda: feed().waiting >= 2 and feed().lag > 0, feed)
        first = feed().lag
        wait_until(lambda: feed().lag > first, feed)
    finally:
        query.stop()


def a_server_that_is_busy(exchange: Exchange) -> None:
    exchange.respond(503, b"try later", Retry_After="500")


def an_open_stream(exchange: Exchange) -> None:
    exchange.stream("text/event-stream", b"id: 1\ndata: one\n\n", end=False)
    exchange.hang()


def a_stream_that_is_cut(exchange: Exchange) -> None:
    exchange.stream("text/event-stream", b"id: 1\ndata: one\n\n", end=False)


@pytest.mark.usefixtures("soon")
def test_an_http_feed_that_tries_again_says_so(stream: Stream) -> None:
    with serving(a_stream_that_is_cut, a_server_that_is_busy) as server:
        running = stream(sse(server.url, retry=timedelta(0)))
        running.rows(1)
        (feed,) = running.wait_for(lambda feeds: [feed.state for feed in feeds] == ["reconnecting"])
        assert feed.restarts == 0
        wait_until(lambda: "503" in str(running.feeds[0].last_error), lambda: running.feeds)
        metrics = until(running.query, lambda m: "503" in m.get("lastError", ""))
        assert metrics["state"] == "reconnecting"
        running.stop()


@pytest.mark.usefixtures("soon")
def test_an_http_feed_that_is_connected_again_runs(stream: Stream) -> None:
    with serving(a_stream_that_is_cut, an_open_stream) as server:
        running = stream(sse(server.url, retry=timedelta(0)))
        running.rows(1)
        metrics = until(running.query, lambda m: "lastError" in m and m["state"] == "running")
        assert server.url in metrics["lastError"]
        assert running.feeds[0].state == "running"
        running.stop()


def test_an_author_reports_a_lost_connection_and_a_new_one(stream: Stream) -> None:
    found = threading.Event()

    class Reporting(hw.Source, name="operating_reporting", schema="n LONG"):
        def __init__(self) -> None:
            self._closed = threading.Event()

        def read(self) -> Iterator[int]:
            yield 1
            hw.report_connection(False, OSError("gone"))
            found.wait(60)
            hw.report_connection(True)
            yield 2
            self._closed.wait(60)

        def close(self) -> None:
            self._closed.set()

    running = stream(Reporting())
    (feed,) = running.wait_for(lambda feeds: bool(feeds) and feeds[0].state == "reconnecting")
    assert feed.last_error == "OSError: gone"
    found.set()
    assert running.rows(2) == [(1,), (2,)]
    assert running.feeds[0].state == "running"
    hw.report_connection(False)  # nothing happens outside of a feed
    assert running.feeds[0].state == "running"
    running.stop()


# Partitioned sources


class Watched(hw.PartitionedSource, name="operating_watched", schema="p STRING, n LONG"):
    """A file for each partition says how far it goes."""

    events: list[tuple[Any, ...]] = []  # noqa: RUF012
    errors: list[Exception] = []  # noqa: RUF012

    def __init__(self, folder: str, hang: bool = False) -> None:
        self._folder, self._hang = Path(folder), hang
        self._closed = threading.Event()

    def partitions(self) -> list[int]:
        return [int(file.stem) for file in sorted(self._folder.glob("*.p"))]

    def earliest(self, p: int) -> int:
        return 0

    def latest(self, p: int) -> int:
        if self._hang:
            self._closed.wait()
        if (self._folder / "fail").exists():
            raise OSError("the folder is not there")
        return int((self._folder / f"{p}.p").read_text())

    def read(self, p: int, start: int, end: int) -> Iterator[Any]:
        for n in range(start, end):
            yield str(p), n

    def close(self) -> None:
        self._closed.set()

    def committed(self, offsets: dict[int, int]) -> None:
        type(self).events.append(("committed", offsets))
        if type(self).errors:
            raise type(self).errors.pop()

    def partitions_changed(self, added: list[int], removed: list[int]) -> None:
        type(self).events.append(("changed", added, removed))


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Watched, "events", [])
    monkeypatch.setattr(Watched, "errors", [])
    folder = tmp_path / "watched"
    folder.mkdir()
    return folder


def test_a_partitioned_source_is_told_of_commits_and_of_partitions_that_come_and_go(
    stream: Stream, watched: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Watched.errors.append(OSError("no group"))
    (watched / "0.p").write_text("3")
    running = stream(Watched(str(watched)), fail_on_data_loss=False)
    running.rows(3)
    assert Watched.events == [("changed", [0], [])], "no batch is committed before the next one is planned"
    (watched / "1.p").write_text("2")
    running.rows(5)
    wait_until(lambda: len(Watched.events) == 3, lambda: Watched.events)
    assert sorted(Watched.events[1:], key=str) == [("changed", [1], []), ("committed", {0: 3})]
    (watched / "0.p").unlink()
    (watched / "1.p").write_text("4")
    running.rows(7)
    wait_until(lambda: ("committed", {0: 3, 1: 2}) in Watched.events, lambda: Watched.events)
    wait_until(lambda: ("changed", [], [0]) in Watched.events, lambda: Watched.events)
    assert "committed failed: OSError: no group" in caplog.text, "and the query goes on"
    running.stop()


@pytest.mark.usefixtures("soon")
def test_errors_and_arrivals_of_partitions_are_in_metrics_and_feeds(stream: Stream, watched: Path) -> None:
    (watched / "0.p").write_text("3")
    running = stream(Watched(str(watched)), on_error="restart")
    running.rows(3)
    metrics = until(running.query, lambda m: m.get("state") == "running")
    assert (metrics["restarts"], metrics["badRows"], "lastError" in metrics) == ("0", "0", False)
    begun = now() - timedelta(milliseconds=1)
    (watched / "0.p").write_text("5")
    running.rows(5)
    metrics = until(running.query, lambda m: "lastRowAt" in m)
    assert begun <= time_in(metrics["lastRowAt"]) <= now()
    (watched / "fail").touch()
    metrics = until(running.query, lambda m: int(m["restarts"]) > 0)
    assert (metrics["state"], metrics["lastError"]) == ("restarting", "OSError: the folder is not there")
    assert begun <= time_in(metrics["lastErrorAt"]) <= now()
    (feed,) = running.feeds
    assert (feed.lag, feed.bytes_per_second) == (None, None)
    assert feed.last_row_at is not None
    assert feed.last_error_at is not None
    assert begun <= feed.last_row_at <= feed.last_error_at <= now()
    (watched / "fail").unlink()
    until(running.query, lambda m: m["state"] == "running")
    running.stop()


def test_call_timeout_limits_the_calls_of_a_partitioned_source(stream: Stream, watched: Path) -> None:
    (watched / "0.p").write_text("3")
    failure = stream(Watched(str(watched), hang=True), call_timeout="200ms").failure()
    assert "latest(0): TimeoutError: it has not returned for 0.2 s" in failure


# Acknowledging


class Broker:
    """An upstream that delivers again what was not acknowledged."""

    def __init__(self, messages: list[int]) -> None:
        self.changed = threading.Condition()
        self.messages = messages
        self.acknowledged: list[int] = []

    def add(self, *messages: int) -> None:
        with self.changed:
            self.messages += messages
            self.changed.notify_all()

    def ack(self, message: int) -> None:
        with self.changed:
            self.acknowledged.append(message)
            self.messages = [m for m in self.messages if m > message]
            self.changed.notify_all()


class Delivered(hw.Source, name="operating_delivered", schema="n LONG"):
    broker: Broker

    def __init__(self) -> None:
        self._closed = False

    def read(self, since: Any) -> Iterator[hw.At]:
        delivered: set[int] = set()
        while not self._closed:
            with self.broker.changed:
                self.broker.changed.wait_for(lambda: self._closed or {*self.broker.messages} - delivered)
                new = sorted({*self.broker.messages} - delivered)
            for message in new:
                delivered.add(message)
                yield hw.At(message, (message,))

    def ack(self, cursor: int) -> None:
        self.broker.ack(cursor)

    def close(self) -> None:
        with self.broker.changed:
            self._closed = True
            self.broker.changed.notify_all()


def test_with_ack_on_commit_rows_are_acknowledged_after_their_commit_and_else_come_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker([1])
    monkeypatch.setattr(Delivered, "broker", broker, raising=False)
    first = stream(Delivered(), durability="memory", ack_on="commit")
    assert first.rows(1) == [(1,)]
    assert broker.acknowledged == [], "a batch is committed when the next one is planned"
    broker.add(2)
    assert first.rows(2) == [(1,), (2,)]
    wait_until(lambda: broker.acknowledged == [1], lambda: broker.acknowledged)
    first.stop()
    assert broker.messages == [2]
    second = stream(Delivered(), durability="memory", ack_on="commit")
    assert second.rows(1) == [(2,)], "it was read, and not acknowledged"
    second.stop()
    assert broker.acknowledged == [1]


def test_ack_on_commit_is_refused_where_rows_are_in_the_log_or_there_is_no_ack(
    spark_session: SparkSession,
) -> None:
    with pytest.raises(
        Exception, match=r"'ackOn' of source 'operating_delivered' is 'commit', and 'dur"
    ) as e:
        hw.stream(spark_session, Delivered(), ack_on="commit")
    assert "would come again after a restart. Set durability to memory" in str(e.value)

    @hw.source("n LONG")
    def without_ack() -> Iterator[int]:
        yield 1

    with pytest.raises(Exception, match="the source has no method 'ack'"):
        hw.stream(spark_session, without_ack(), ack_on="commit", durability="memory")


# The listener to copy


@pytest.fixture
def alerts() -> Any:
    spec = importlib.util.spec_from_file_location("operating_alerts", ROOT / "examples" / "alerts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def listen(spark_session: SparkSession, alerts: Any, soon: None) -> Iterator[Callable[..., list[str]]]:
    listeners: list[Any] = []

    def add(**options: Any) -> list[str]:
        lines: list[str] = []
        listeners.append(alerts.FeedAlerts(spark_session, lines.append, **options))
        spark_session.streams.addListener(listeners[-1])
        return lines

    yield add
    for listener in listeners:
        spark_session.streams.removeListener(listener)


Listen = Callable[..., list[str]]


def test_the_listener_alerts_on_a_failed_query(stream: Stream, listen: Listen) -> None:
    lines = listen()
    running = stream(ListSource([1, FAIL]))
    assert "FAIL in the items" in running.failure()
    wait_until(lambda: bool(lines), lambda: lines)
    assert len(lines) == 1
    assert "The feed of source 'list_source' failed: RuntimeError: FAIL in the items" in lines[0]


def test_the_listener_alerts_on_each_restart(stream: Stream, listen: Listen) -> None:
    lines = listen()
    running = stream(ListSource([1, FAIL, 2]), on_error="restart")
    running.rows(2)
    wait_until(lambda: bool(lines), lambda: lines)
    running.stop()
    assert len(lines) == 1
    assert "restarts is 1; RuntimeError: FAIL in the items of a ListSource" in lines[0]


def test_the_listener_alerts_once_on_a_feed_gone_stale(stream: Stream, listen: Listen) -> None:
    """The query is idle, so its metrics come with no progress event."""
    lines = listen(stale_after=timedelta(milliseconds=300))
    source = ListSource([1, PAUSE, 2])
    running = stream(source)

    def after_a_row() -> list[str]:  # the start may have taken long enough for an alert of its own
        return [line for line in lines if "is stale: its last row arrived at 2" in line]

    wait_until(lambda: len(after_a_row()) == 1, lambda: lines)
    source.go_on()
    wait_until(lambda: len(after_a_row()) == 2, lambda: lines)
    running.stop()
    assert len(set(lines)) == len(lines), "each silence once"


def test_the_listener_alerts_on_a_feed_that_never_had_a_row(stream: Stream, listen: Listen) -> None:
    lines = listen(stale_after=timedelta(milliseconds=300))
    running = stream(ListSource([PAUSE, 1], "n LONG"))
    wait_until(lambda: bool(lines), lambda: lines)
    running.stop()
    assert "is stale: its last row arrived at no time" in lines[0]


def test_the_listener_alerts_on_a_lost_connection(stream: Stream, listen: Listen) -> None:
    lines = listen()
    with serving(a_server_that_is_busy) as server:
        running = stream(sse(server.url))
        wait_until(lambda: bool(lines), lambda: lines)
        running.stop()
    assert "has lost its connection" in lines[0]
    assert "503" in lines[0]


# The log

_FAILING = """
import headwater as hw
from pyspark.sql import SparkSession
spark = hw.session(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false"))

@hw.source("n LONG")
def letters(since=None):
    yield hw.At(1, 1)
    raise OSError("the server is gone")

query = hw.stream(spark, letters()).writeStream.format("noop").start()
try:
    query.awaitTermination()
except Exception:
    print("exception() has it:", "the server is gone" in str(query.exception()))
"""


def test_an_error_of_a_feed_is_logged_once_and_a_source_that_will_not_resume_is_warned_of(
    own_spark: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "failing.py"
    file.write_text(_FAILING, encoding="utf-8")
    log = run_command([sys.executable, str(file)], own_spark, tmp_path)
    assert "exception() has it: True" in log
    errors = [line for line in log.splitlines() if "OSError: the server is gone (failing.py:9" in line]
    assert len(errors) == 1, log
    assert errors[0].startswith("headwater.FeedFailedException: The feed of source 'letters' failed: OSError")
    assert log.count("Traceback (most recent call last)") == 1
    assert 'raise OSError("the server is gone")' in log
    assert "\tat " not in log, "no frame of the JVM"
    assert "headwater/runtime" not in log
    warnings = [
        line for line in log.splitlines() if "source 'letters' can resume, but this query will not" in line
    ]
    assert len(warnings) == 1
    assert 'Set .option("checkpointLocation", …) on writeStream.' in warnings[0]
