"""Real-time mode: rows are handed on as they arrive, from Spark 4.2 on in PySpark.

The shortest batch that Spark allows takes 5 seconds, so these tests share queries.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import wait_until
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import headwater as hw

BATCH = "5 seconds"


@hw.source("n LONG")
def rt_numbers(*, since: int | None = None) -> Iterator[hw.At]:
    for n in itertools.count(0 if since is None else since + 1):
        yield hw.At(n, n)
        time.sleep(0.005)


@hw.source("shard INT, n LONG")
async def rt_shards() -> AsyncIterator[tuple[int, int]]:
    shard = hw.shard().index
    for n in itertools.count():
        yield shard, n
        await asyncio.sleep(0.002 * (1 + 5 * shard))


@hw.source("n LONG")
def rt_failing() -> Iterator[int]:
    yield from range(3)
    raise ValueError("the upstream said no")


def real_time(frame: DataFrame, function: Callable[[dict[str, Any]], object], folder: Path) -> StreamingQuery:
    writer = hw.foreach(frame, function).option("checkpointLocation", str(folder))
    return writer.trigger(realTime=BATCH).start()


def batches(query: StreamingQuery) -> int:
    return len({progress["batchId"] for progress in query.recentProgress})


def state(query: StreamingQuery, rows: list[Any]) -> str:
    return f"{len(rows)} rows, {query.status}, {query.exception()}, {query.lastProgress}"


@pytest.mark.parametrize("durability", ["memory", "log"])
def test_rows_are_handed_on_before_their_batch_ends_and_each_comes_once(
    spark_session: SparkSession, durability: str, tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = []
    frame = hw.stream(spark_session, rt_numbers(), durability=durability, linger="0ms")
    query = real_time(frame.selectExpr("n", "_metadata.seq", "_metadata.run"), rows.append, tmp_path)
    try:
        wait_until(lambda: len(rows) > 10, lambda: state(query, rows))
        assert batches(query) == 0  # the first batch is not over
        wait_until(lambda: batches(query) >= 2, lambda: state(query, rows))
    finally:
        query.stop()
    assert query.exception() is None
    assert [row["n"] for row in rows] == [row["seq"] for row in rows] == list(range(len(rows)))
    assert len({row["run"] for row in rows}) == 1
    counted = {p["batchId"]: int(p["sources"][0]["metrics"]["rowsInBatch"]) for p in query.recentProgress}
    assert 0 < sum(counted.values()) <= len(rows)


def test_a_query_goes_from_micro_batches_to_real_time_mode_and_back(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    """Real-time mode logs the end of a batch when it is over: the rows of the last one come again."""
    seen: dict[str, list[tuple[str, int]]] = {"v1": [], "real": [], "v2": []}
    frame = hw.stream(spark_session, rt_numbers(), linger="0ms")
    columns = frame.selectExpr("n", "_metadata.seq", "_metadata.run")

    def micro_batches(which: str, frame: DataFrame) -> None:
        def collect(batch: DataFrame, number: int) -> None:
            seen[which] += [("", row.n) for row in batch.collect()]

        query = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path)).start()
        try:
            wait_until(lambda: batches(query) >= 3, lambda: state(query, seen[which]))
        finally:
            query.stop()
        assert query.exception() is None

    # Without it Spark 4.3 starts no real-time mode on a checkpoint that micro-batches have begun.
    spark_session.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    spark_session.conf.set("spark.headwater.api", "v1")
    try:
        micro_batches("v1", hw.stream(spark_session, rt_numbers(), linger="0ms"))
    finally:
        spark_session.conf.unset("spark.headwater.api")
        spark_session.conf.unset("spark.sql.streaming.stateStore.checkpointFormatVersion")
    query = real_time(columns, lambda row: seen["real"].append((row["run"], row["seq"])), tmp_path)
    try:
        wait_until(lambda: batches(query) >= 1, lambda: state(query, seen["real"]))
    finally:
        query.stop()
    assert query.exception() is None
    micro_batches("v2", frame)

    def numbers(which: str) -> list[int]:
        return [n for _, n in seen[which]]

    first, live, last = numbers("v1"), numbers("real"), numbers("v2")
    assert first == list(range(len(first)))
    # A micro-batch that was not finished is not in the commit log, and real-time mode reads its rows again.
    assert live == list(range(live[0], live[0] + len(live)))
    assert live[0] <= len(first)
    assert last == list(range(last[0], last[0] + len(last)))
    assert live[0] < last[0] <= live[-1] + 1  # no gap; only rows of the batch in flight come again
    assert len({run for run, _ in seen["real"]}) == 1


def test_each_shard_is_read_by_a_task_of_its_own(spark_session: SparkSession, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    frame = hw.stream(spark_session, rt_shards(), concurrency=2, linger="0ms")
    query = real_time(
        frame.selectExpr("shard", "n", "_metadata.shard AS s", "spark_partition_id() AS task"),
        rows.append,
        tmp_path,
    )
    try:
        wait_until(lambda: batches(query) >= 2, lambda: state(query, rows))
    finally:
        query.stop()
    assert query.exception() is None
    for shard in (0, 1):
        own = [row for row in rows if row["shard"] == shard]
        assert [row["n"] for row in own] == list(range(len(own)))
        assert {(row["s"], row["task"]) for row in own} == {(shard, shard)}
        assert own


def test_a_failure_of_the_feed_fails_the_query_before_its_batch_ends(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    rows: list[int] = []
    frame = hw.stream(spark_session, rt_failing(), linger="0ms")
    writer = hw.foreach(frame, lambda row: rows.append(row["n"]))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(realTime="1 hour").start()
    try:
        wait_until(lambda: not query.isActive, lambda: state(query, rows))
    finally:
        query.stop()
    assert "ValueError: the upstream said no" in str(query.exception())
    assert rows == [0, 1, 2]


def test_an_error_of_the_function_fails_the_query_with_its_traceback(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    def refuse(row: dict[str, Any]) -> None:
        raise LookupError(f"no place for {row['n']}")

    query = real_time(hw.stream(spark_session, rt_numbers(), linger="0ms"), refuse, tmp_path)
    try:
        wait_until(lambda: not query.isActive, lambda: state(query, []))
    finally:
        query.stop()
    assert "LookupError: no place for 0" in str(query.exception())
    assert "in refuse" in str(query.exception())


def test_a_row_is_given_as_to_json_writes_it(spark_session: SparkSession, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    frame = hw.stream(spark_session, rt_numbers(), linger="0ms").selectExpr(
        "n", "CAST(NULL AS INT) AS nothing", "named_struct('a', array(1, 2)) AS nested", "'ä' AS text"
    )
    query = real_time(frame, rows.append, tmp_path)
    try:
        wait_until(lambda: bool(rows), lambda: state(query, rows))
    finally:
        query.stop()
    assert rows[0] == {"n": 0, "nothing": None, "nested": {"a": [1, 2]}, "text": "ä"}
