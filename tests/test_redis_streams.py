"""The example `redis_streams.py` with a real Redis: ids as offsets, trimmed streams, a server that dies."""

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
from processes import ROOT, wait_until
from pyspark.sql import SparkSession
from servers import PASSWORD, RedisServer, redis_server
from test_log import Checkpointed, Sink, by_partition

import headwater as hw
from headwater.testing import RunningStream

sys.path.append(str(ROOT / "examples"))

from redis_streams import MAX_SEQ, PAGE, RedisStreams, id_of, offset_of

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NOON_MS = 1_769_860_800_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def shipped(spark_session: SparkSession) -> None:
    """Workers have the module of the source."""
    spark_session.sparkContext.addPyFile(str(ROOT / "examples" / "redis_streams.py"))


@pytest.fixture
def checkpoint(shipped: None, spark_session: SparkSession, tmp_path: Path) -> Checkpointed:
    return Checkpointed(spark_session, tmp_path / "checkpoint", Sink(comparable=by_partition))


def streams(server: RedisServer, match: str = "s:*") -> RedisStreams:
    return RedisStreams(url=hw.Secret(server.url), match=match)


def add(server: RedisServer, key: str, start: int, end: int) -> None:
    """Entries with ids that have gaps: 5 share a millisecond, and 100 are in each second."""
    for n in range(start, end):
        server.client.xadd(key, {"n": n, "word": f"Grüße {n}"}, id=id_at(n))


def id_at(n: int) -> str:
    return f"{NOON_MS + n // 100 * 1000 + n % 100 // 5}-{n % 5}"


def entries(key: str, *numbers: int) -> list[Any]:
    return [(key, id_at(n), {"n": str(n), "word": f"Grüße {n}"}) for n in numbers]


def numbers(rows: list[Any], key: str = "s:a") -> list[int]:
    return [int(fields["n"]) for _, _, fields in by_partition(rows).get(key, [])]


# Without Spark


def test_the_source_alone_gives_all_entries_of_keys_that_match(server: RedisServer) -> None:
    for key, end in (("s:b", 3), ("s:a", 2 * PAGE + 7), ("other", 3)):
        add(server, key, 0, end)
    server.client.set("s:text", "no stream")
    assert list(streams(server)) == [*entries("s:a", *range(2 * PAGE + 7)), *entries("s:b", 0, 1, 2)]
    assert numbers(list(streams(server, match="oth?r")), "other") == [0, 1, 2]
    assert list(streams(server, match="none")) == []


@pytest.mark.parametrize("id", ["0-1", "1-0", f"1-{MAX_SEQ}", f"{2**43 - 1}-{MAX_SEQ}"])
def test_an_id_becomes_an_offset_and_back(id: str) -> None:
    assert id_of(offset_of(id)) == id
    assert offset_of(id) < 2**63


def test_an_id_that_no_offset_has_room_for_is_told_and_not_left_out(server: RedisServer) -> None:
    source = streams(server)
    server.client.xadd("s:a", {"n": 0}, id=f"5-{MAX_SEQ + 1}")
    with pytest.raises(ValueError, match=f"the id 5-{MAX_SEQ + 1} is too large"):
        source.latest("s:a")
    server.client.xadd("s:a", {"n": 1}, id="6-0")
    for cut in (5 << 20, 5 << 20 | MAX_SEQ, 6 << 20):
        with pytest.raises(ValueError, match="too large"):
            list(itertools.chain(source.read("s:a", 0, cut), source.read("s:a", cut, 7 << 20)))


def test_the_first_offset_is_that_of_the_first_entry_once_one_was_removed(server: RedisServer) -> None:
    source = streams(server)
    add(server, "s:a", 0, 10)
    end = source.latest("s:a")
    assert (source.earliest("s:a"), end) == (0, offset_of(id_at(9)) + 1)
    server.client.xtrim("s:a", maxlen=4, approximate=False)
    assert (source.earliest("s:a"), source.latest("s:a")) == (offset_of(id_at(6)), end)
    server.client.xtrim("s:a", maxlen=0, approximate=False)
    assert (source.earliest("s:a"), source.latest("s:a")) == (end, end)


def test_so_many_rows_end_behind_an_entry(server: RedisServer) -> None:
    source = streams(server)
    add(server, "s:a", 0, 20)
    server.client.xdel("s:a", id_at(3), id_at(19))
    end = source.latest("s:a")
    for first, rows in itertools.product((0, 3, 17, 19), (1, 2, 5, 100)):
        start = offset_of(id_at(first))
        there = list(source.read("s:a", start, end))
        assert start < source.after("s:a", start, rows) <= end
        assert list(source.read("s:a", start, source.after("s:a", start, rows))) == there[:rows]


def test_a_time_is_the_first_entry_at_or_behind_it(server: RedisServer) -> None:
    source = streams(server)
    add(server, "s:a", 0, 300)
    end = source.latest("s:a")

    def found(at: datetime) -> list[int]:
        return numbers(list(source.read("s:a", source.at("s:a", at), end)))

    assert found(NOON) == list(range(300))
    assert found(NOON + timedelta(seconds=1)) == list(range(100, 300))
    assert found(NOON + timedelta(microseconds=1)) == list(range(5, 300))
    assert source.at("s:a", NOON + timedelta(days=1)) == end


# In a query


def test_each_entry_comes_once_and_in_order_while_streams_grow_and_new_ones_appear(
    server: RedisServer, checkpoint: Checkpointed
) -> None:
    """The query is stopped and started again on the way."""

    def produce() -> None:
        for start, key in zip(range(0, 300, 100), ("s:b", "s:c", "s:d"), strict=True):
            add(server, "s:a", start, start + 100)
            add(server, key, 0, 100)

    source, batches = streams(server), checkpoint.sink.batches
    producer = threading.Thread(target=produce)
    with checkpoint.running(source, max_rows_per_trigger=80) as query:
        producer.start()
        checkpoint.until(query, 160)
    producer.join()
    assert max(map(len, batches.values())) <= 80
    add(server, "s:e", 0, 50)
    with checkpoint.running(source, max_rows_per_trigger=150, min_partitions=6) as query:
        checkpoint.until(query, 300)
        add(server, "s:f", 0, 50)
        checkpoint.until(query, 700)
    counts = {"s:a": 300, "s:b": 100, "s:c": 100, "s:d": 100, "s:e": 50, "s:f": 50}
    expected = {key: entries(key, *range(count)) for key, count in counts.items()}
    assert by_partition(checkpoint.sink.rows) == expected
    assert max(map(len, batches.values())) <= 150


def test_a_batch_has_as_many_entries_as_it_may_have(server: RedisServer, checkpoint: Checkpointed) -> None:
    add(server, "s:a", 0, 300)
    told: list[tuple[int, int]] = []

    def is_told() -> bool:
        reports = query.recentProgress
        told[:] = [(r["numInputRows"], int(r["sources"][0]["metrics"]["rowsInBatch"])) for r in reports]
        return sum(rows for rows, _ in told) == 300

    with checkpoint.running(streams(server), max_rows_per_trigger=130) as query:
        wait_until(is_told, lambda: told)
    sizes = [len(batch) for batch in checkpoint.sink.batches.values()]
    assert sizes == [130, 130, 40]
    assert [rows for rows in told if any(rows)] == [(size, size) for size in sizes]
    assert checkpoint.sink.rows == entries("s:a", *range(300))


@pytest.mark.parametrize(
    ("start_from", "first"),
    [
        ("earliest", 0),
        ("latest", 200),
        (NOON + timedelta(seconds=1), 100),
        ({"s:a": offset_of(id_at(42))}, 42),
        ({"s:a": offset_of(id_at(42)) + 1}, 43),
    ],
    ids=["earliest", "latest", "a time", "an offset", "an offset in a gap"],
)
def test_a_query_begins_where_it_is_told_to(
    start_from: Any, first: int, server: RedisServer, checkpoint: Checkpointed
) -> None:
    """A restart goes on, and a new stream is read whole. One that is quiet since a time begins at its end."""
    add(server, "s:a", 0, 200)
    add(server, "s:quiet", 0, 1)
    checkpoint.drain(streams(server), start_from=start_from)
    add(server, "s:a", 200, 210)
    add(server, "s:quiet", 200, 201)
    add(server, "s:new", 0, 10)
    checkpoint.drain(streams(server), start_from="latest")
    rows = checkpoint.sink.rows
    assert numbers(rows) == list(range(first, 210))
    assert numbers(rows, "s:new") == list(range(10))
    is_read_whole = start_from == "earliest" or isinstance(start_from, dict)
    assert numbers(rows, "s:quiet") == ([0, 200] if is_read_whole else [200])


def test_entries_that_were_trimmed_before_they_were_read_are_told_or_counted(
    server: RedisServer, checkpoint: Checkpointed
) -> None:
    add(server, "s:a", 0, 10)
    add(server, "s:b", 0, 10)
    checkpoint.drain(streams(server))
    add(server, "s:a", 10, 30)
    server.client.xtrim("s:a", minid=id_at(20), approximate=False)
    lost = f"offsets {offset_of(id_at(9)) + 1} to {offset_of(id_at(20)) - 1} of partition 's:a' are gone"
    assert lost in checkpoint.failure(streams(server))
    add(server, "s:b", 10, 12)
    with checkpoint.running(streams(server), fail_on_data_loss=False) as query:
        checkpoint.until(query, 32)
        wait_until(lambda: lost_rows(query) > 0, lambda: query.lastProgress)
    assert numbers(checkpoint.sink.rows) == [*range(10), *range(20, 30)]
    assert numbers(checkpoint.sink.rows, "s:b") == list(range(12))


def lost_rows(query: Any) -> int:
    progress = query.lastProgress
    return int(progress["sources"][0]["metrics"]["rowsLost"]) if progress else 0


def test_nothing_is_lost_where_the_last_entry_that_was_read_is_kept(
    server: RedisServer, checkpoint: Checkpointed
) -> None:
    add(server, "s:a", 0, 10)
    checkpoint.drain(streams(server))
    server.client.xtrim("s:a", minid=id_at(9), approximate=False)
    add(server, "s:a", 10, 20)
    checkpoint.drain(streams(server))
    assert checkpoint.sink.rows == entries("s:a", *range(20))


def test_a_key_that_is_deleted_fails_the_query_or_is_left_out(
    server: RedisServer, checkpoint: Checkpointed
) -> None:
    source = streams(server)
    add(server, "s:a", 0, 10)
    add(server, "s:b", 0, 10)
    with checkpoint.running(source) as query:
        checkpoint.until(query, 20)
        server.client.delete("s:a")
        with pytest.raises(Exception, match=f"partition 's:a' is gone, at offset {offset_of(id_at(9)) + 1}"):
            query.awaitTermination(60)
    add(server, "s:b", 10, 20)
    checkpoint.drain(source, fail_on_data_loss=False)
    assert by_partition(checkpoint.sink.rows) == {
        "s:a": entries("s:a", *range(10)),
        "s:b": entries("s:b", *range(20)),
    }


def test_a_query_goes_on_exactly_after_redis_was_killed(tmp_path: Path, checkpoint: Checkpointed) -> None:
    """What it has answered is on the disk, and so is there again."""
    keys = ("s:a", "s:b")
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with redis_server(tmp_path / "redis", *options) as server:
        for key in keys:
            add(server, key, 0, 100)
        restart: dict[str, Any] = {"on_error": "restart", "max_restarts": 20, "max_rows_per_trigger": 30}
        with checkpoint.running(streams(server), **restart) as query:
            for begun in (100, 200):
                checkpoint.until(query, 2 * begun - 140)
                server.kill()
                wait_until(lambda: [feed.state for feed in hw.feeds()] == ["restarting"], hw.feeds)
                server.start()
                for key in keys:
                    add(server, key, begun, begun + 100)
            checkpoint.until(query, 600)
    assert by_partition(checkpoint.sink.rows) == {key: entries(key, *range(300)) for key in keys}
    assert max(map(len, checkpoint.sink.batches.values())) <= 30


@pytest.mark.parametrize(
    "most_rows",
    [None, 30],
)
def test_a_query_goes_on_after_redis_has_refused_to_be_read(
    most_rows: int | None, server: RedisServer, checkpoint: Checkpointed
) -> None:
    """It says how far streams go, and not what is in them."""
    add(server, "s:a", 0, 100)
    server.client.execute_command("ACL SETUSER", "default", "-xrange")
    restart: dict[str, Any] = {"on_error": "restart", "max_restarts": 20, "max_rows_per_trigger": most_rows}
    with checkpoint.running(streams(server), **restart) as query:
        wait_until(lambda: bool(server.client.acl_log()), lambda: query.status)
        server.client.execute_command("ACL SETUSER", "default", "+xrange")
        checkpoint.until(query, 100)
    assert checkpoint.sink.rows == entries("s:a", *range(100))


@pytest.mark.usefixtures("shipped")
def test_a_password_is_not_told(server: RedisServer, stream: Callable[..., RunningStream]) -> None:
    add(server, "s:a", 0, 1)
    query = stream(streams(server))
    query.rows(1)
    wrong = server.url.replace(PASSWORD, "another-secret")
    said = stream(RedisStreams(url=hw.Secret(wrong))).failure()
    assert "partitions(): AuthenticationError: invalid username-password pair" in said
    assert "another-secret" not in said
    assert PASSWORD not in f"{query.query.lastProgress}{query.feeds}{streams(server)}"


@pytest.mark.usefixtures("shipped")
def test_a_redis_that_does_not_answer_fails_the_query(
    server: RedisServer, stream: Callable[..., RunningStream]
) -> None:
    add(server, "s:a", 0, 1)
    query = stream(streams(server))
    query.rows(1)
    server.kill()
    said = query.failure()
    # Who was connected is told in another way than who was not, and either may come first.
    assert re.search(rf": ConnectionError: .*(:{server.port}|Connection closed by server)", said)
    assert "onError" in said
