"""The sources `redis` and `redis_group` on a real Redis, which is killed and restarted."""

from __future__ import annotations

import itertools
import re
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from killed_driver import KilledDriver
from processes import wait_until
from pyspark.sql import SparkSession
from servers import PASSWORD, RedisServer, redis_server
from test_log import Checkpointed, Sink, by_partition

import headwater as hw
from headwater.sources import redis, redis_group
from headwater.testing import RunningStream

Stream = Callable[..., RunningStream]
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis", *DURABLE) as running:
        yield running


def add(server: RedisServer, stream: str, start: int, end: int) -> None:
    for n in range(start, end):
        server.client.xadd(stream, {"n": n, "word": f"Grüße {n}"})


def numbers(rows: list[Any], stream: str = "s:a") -> list[int]:
    return [int(row[2]["n"]) for row in rows if row[0] == stream]


def group(server: RedisServer, *streams: str, **options: Any) -> Any:
    return redis_group(server.url, list(streams or ("s:a",)), "g", **options)


def pending(server: RedisServer, stream: str = "s:a") -> int:
    return int(server.client.xpending(stream, "g")["pending"])


def caught_up(source: Any, since: Any = None, *, durable: bool = True) -> tuple[list[Any], Any]:
    """The rows up to CAUGHT_UP and the cursor after them; they are acknowledged if they are durable."""
    rows, cursor, items = [], since, source.read(since)
    for item in itertools.takewhile(lambda item: item is not hw.CAUGHT_UP, items):
        rows += item.rows
        cursor = item.cursor
        if durable:
            source.ack(cursor)
    source.close()
    items.close()
    return rows, cursor


# Partitions


@pytest.fixture
def checkpoint(spark_session: SparkSession, tmp_path: Path) -> Checkpointed:
    return Checkpointed(spark_session, tmp_path / "checkpoint", Sink(comparable=by_partition))


def test_the_streams_that_match_are_read_by_tasks_each_once_and_in_order(
    server: RedisServer, checkpoint: Checkpointed
) -> None:
    """While they grow, a new one appears, and the query is stopped and started again."""
    source = redis(server.url, match="s:*")
    add(server, "s:a", 0, 100)
    add(server, "other", 0, 10)
    with checkpoint.running(source, max_rows_per_trigger=30) as query:
        checkpoint.until(query, 60)
        add(server, "s:b", 0, 50)
    add(server, "s:a", 100, 120)
    with checkpoint.running(source) as query:
        checkpoint.until(query, 170)
    rows = checkpoint.sink.rows
    assert (numbers(rows), numbers(rows, "s:b")) == (list(range(120)), list(range(50)))
    assert {stream for stream, _, _ in rows} == {"s:a", "s:b"}
    assert max(map(len, checkpoint.sink.batches.values())) <= 120


def test_partitions_go_on_exactly_after_redis_was_killed(
    server: RedisServer, checkpoint: Checkpointed
) -> None:
    add(server, "s:a", 0, 100)
    restart: dict[str, Any] = {"on_error": "restart", "max_restarts": 20, "max_rows_per_trigger": 30}
    with checkpoint.running(redis(server.url, match="s:*"), **restart) as query:
        checkpoint.until(query, 60)
        server.kill()
        wait_until(lambda: [feed.state for feed in hw.feeds()] == ["restarting"], hw.feeds)
        server.start()
        add(server, "s:a", 100, 200)
        checkpoint.until(query, 200)
    assert numbers(checkpoint.sink.rows) == list(range(200))


def test_a_query_begins_at_a_time(server: RedisServer, checkpoint: Checkpointed) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    for n in range(10):
        ms = int((noon + timedelta(seconds=n)).timestamp() * 1000)
        server.client.xadd("s:a", {"n": n}, id=f"{ms}-{n}")
    rows = checkpoint.drain(redis(server.url), start_from=noon + timedelta(seconds=4))
    assert numbers(rows) == [4, 5, 6, 7, 8, 9]


def test_trimmed_entries_are_data_loss(server: RedisServer, checkpoint: Checkpointed) -> None:
    add(server, "s:a", 0, 10)
    checkpoint.drain(redis(server.url))
    add(server, "s:a", 10, 30)
    server.client.xtrim("s:a", maxlen=10, approximate=False)
    assert re.search(r"offsets \d+ to \d+ of partition 's:a' are gone", checkpoint.failure(redis(server.url)))


# Consumer groups


def test_a_group_gives_all_entries_and_those_that_are_durable_are_acknowledged(
    server: RedisServer, tmp_path: Path, stream: Stream
) -> None:
    add(server, "s:a", 0, 2500)
    query = stream(group(server, "s:a", "s:b"), checkpoint=tmp_path / "checkpoint")
    query.rows(2500)
    add(server, "s:b", 0, 10)
    rows = query.rows(2510)
    assert (numbers(rows), numbers(rows, "s:b")) == (list(range(2500)), list(range(10)))
    assert rows[0].asDict().keys() == {"stream", "id", "fields"}
    wait_until(lambda: pending(server) == pending(server, "s:b") == 0, lambda: query.feeds)
    assert [info["name"] for info in server.client.xinfo_consumers("s:a", "g")] == ["headwater"]


def test_nothing_is_acknowledged_before_it_is_durable(server: RedisServer) -> None:
    add(server, "s:a", 0, 5)
    rows, _ = caught_up(group(server), durable=False)
    assert (numbers(rows), pending(server)) == ([0, 1, 2, 3, 4], 5)


def test_pending_entries_are_read_again_but_for_those_in_the_log(server: RedisServer) -> None:
    add(server, "s:a", 0, 5)
    _, cursor = caught_up(group(server), durable=False)
    add(server, "s:a", 5, 8)
    rows, _ = caught_up(group(server), cursor, durable=False)  # the first five were in the log
    assert numbers(rows) == [5, 6, 7]
    rows, cursor = caught_up(group(server), cursor)  # and the others were not
    assert (numbers(rows), pending(server)) == ([5, 6, 7], 0)
    assert caught_up(group(server), cursor)[0] == []


def test_an_entry_that_is_claimed_for_this_consumer_is_read_although_later_ones_were(
    server: RedisServer,
) -> None:
    add(server, "s:a", 0, 1)
    caught_up(group(server, consumer="gone"), durable=False)
    add(server, "s:a", 1, 3)
    rows, cursor = caught_up(group(server), durable=False)
    assert numbers(rows) == [1, 2]
    (lost,) = server.client.xpending_range("s:a", "g", "-", "+", 10, consumername="gone")
    server.client.xclaim("s:a", "g", "headwater", 0, [lost["message_id"]])
    rows, _ = caught_up(group(server), cursor)
    assert (numbers(rows), pending(server)) == ([0], 0)


def test_a_pending_entry_that_was_deleted_is_left_out_with_a_warning(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    add(server, "s:a", 0, 3)
    rows, _ = caught_up(group(server), durable=False)
    server.client.xdel("s:a", rows[1][1])
    rows, _ = caught_up(group(server))
    assert (numbers(rows), pending(server)) == ([0, 2], 0)
    assert "was deleted before it was read" in caplog.text


def test_two_feeds_share_a_group(server: RedisServer, stream: Stream) -> None:
    query = stream(group(server), concurrency=2)
    query.wait_for(lambda feeds: [feed.state for feed in feeds] == ["running"] * 2)
    add(server, "s:a", 0, 300)
    assert sorted(numbers(query.rows(300))) == list(range(300))
    names = {info["name"] for info in server.client.xinfo_consumers("s:a", "g")}
    assert names == {"headwater-0", "headwater-1"}


def test_a_killed_query_and_a_killed_redis_lose_and_repeat_nothing(
    server: RedisServer, tmp_path: Path, stream: Stream
) -> None:
    add(server, "s:a", 0, 100)
    query = stream(group(server), checkpoint=tmp_path / "checkpoint", max_rows_per_trigger=40)
    for start in (100, 300, 500):
        query.rows(start - 50)
        query.kill()
        add(server, "s:a", start, start + 100)
        query.restart()
        query.rows(start + 20)
        server.kill()
        query.wait_for(lambda feeds: [feed.state for feed in feeds] == ["reconnecting"])
        server.start()
        add(server, "s:a", start + 100, start + 200)
    rows = query.rows(700)
    assert sorted(numbers(rows)) == list(range(700))
    wait_until(lambda: pending(server) == 0, lambda: query.feeds)


@pytest.mark.process
def test_a_driver_and_a_redis_killed_with_sigkill_lose_and_repeat_nothing(
    server: RedisServer, tmp_path: Path
) -> None:
    options = {"url": server.url, "streams": "s:a,s:b", "group": "g"}
    driver = KilledDriver(tmp_path, "redis_group", options)
    stop, written = threading.Event(), {"s:a": 0, "s:b": 0}

    def write(stream: str) -> None:
        """Every entry that Redis has answered for; one that it may have or not is written again."""
        while not stop.wait(0.005):
            try:
                server.client.xadd(stream, {"n": written[stream]}, id=f"{written[stream] + 1}-1")
                written[stream] += 1
            except Exception as error:
                if "equal or smaller" in str(error):  # it was there
                    written[stream] += 1

    writers = [threading.Thread(target=write, args=(name,)) for name in written]
    for writer in writers:
        writer.start()
    try:
        for _ in range(2):
            seen = len(driver.rows)
            with driver.run() as process:
                process.until("rows", lambda seen=seen: len(driver.rows) > seen + 50, 180)  # type: ignore[misc]
                server.kill()
                server.start()
                seen = len(driver.rows)
                process.until("rows", lambda seen=seen: len(driver.rows) > seen + 50, 180)  # type: ignore[misc]
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    driver.run_until(lambda rows: len(rows) >= sum(written.values()), "all rows")
    for name, count in written.items():
        found = [int(row["fields"]["n"]) for row in driver.rows if row["stream"] == name]
        assert sorted(found) == list(range(count))


def test_a_group_that_is_gone_is_not_begun_anew(server: RedisServer) -> None:
    add(server, "s:a", 0, 3)
    _, cursor = caught_up(group(server))
    server.client.xgroup_destroy("s:a", "g")
    with pytest.raises(hw.HeadwaterError, match="the consumer group 'g' of stream 's:a' is gone"):
        caught_up(group(server), cursor)
    assert numbers(caught_up(group(server, "s:a", "s:new"))[0]) == [0, 1, 2]


def test_bytes_that_are_not_utf8_make_a_bad_row(server: RedisServer, stream: Stream) -> None:
    add(server, "s:a", 0, 1)
    server.client.xadd("s:a", {"n": b"\xff"})
    add(server, "s:a", 1, 2)
    assert numbers(stream(group(server), on_bad_row="drop").rows(2)) == [0, 1]
    failed = redis_group(server.url, ["s:a"], "other")
    assert "row 1" in stream(failed).failure()


def test_a_password_is_not_told(server: RedisServer, stream: Stream) -> None:
    wrong = server.url.replace(PASSWORD, "another-secret")
    message = stream(redis_group(wrong, ["s:a"], "g")).failure()
    assert "AuthenticationError: invalid username-password pair" in message
    assert "another-secret" not in message
    assert PASSWORD not in repr(group(server))


def test_a_read_that_waits_can_be_closed(server: RedisServer) -> None:
    source = group(server)
    reader = threading.Thread(target=lambda: list(source.read(None)))
    reader.start()
    wait_until(lambda: bool(server.client.exists("s:a")), lambda: "no group")
    source.close()
    reader.join(60)
    assert not reader.is_alive()


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"streams": []}, "option 'streams' is [], it must have the key of at least one stream"),
        ({"group": ""}, "option 'group' is empty, it must be a name"),
        ({"consumer": ""}, "option 'consumer' is empty, it must be a name"),
        ({"url": "http://localhost"}, "option 'url' of source 'redis_group' is not a URL of Redis"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        redis_group(**{"url": "redis://localhost", "streams": ["a"], "group": "g", **options})


def test_a_cursor_of_something_else_is_refused(server: RedisServer) -> None:
    for cursor in ("5-0", {"version": 1}, {"version": 1, "number": 1, "unacked": {"a": "!"}}):
        with pytest.raises(ValueError, match="is not one of source 'redis_group'"):
            next(group(server).read(cursor))


@pytest.mark.parametrize(
    "make", [lambda: redis("redis://localhost"), lambda: redis_group("redis://a", ["a"], "g")]
)
def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any]) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(
        hw.HeadwaterError, match=r"^source 'redis\w*' needs redis: pip install headwater\[redis\]"
    ):
        make()
