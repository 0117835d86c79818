"""Sources written in Python that must run on every line of Spark. `make matrix` runs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.testing import END, FAIL, ListSource, RunningStream, stream

__all__ = ["stream"]

Stream = Callable[..., RunningStream]


@hw.source("n LONG, word STRING")
def matrix_words(count: int = 5) -> Iterator[Any]:
    for n in range(count):
        yield n, f"w{n}"


def test_the_three_forms_read_the_same_rows(spark: SparkSession, stream: Stream) -> None:
    frames = [
        spark.readStream.format("matrix_words").option("count", 1000).load(),
        spark.readStream.format("headwater").option("source", "matrix_words").option("count", 1000).load(),
        hw.stream(spark, matrix_words(count=1000)),
    ]
    for number, frame in enumerate(frames):
        writer = frame.writeStream.format("memory").queryName(f"form{number}")
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60), query.status
        assert spark.table(f"form{number}").collect() == [(n, f"w{n}") for n in range(1000)]


def test_rows_and_arrow_batches_cross_exactly(stream: Stream) -> None:
    schema = (
        "at TIMESTAMP, d DECIMAL(20, 4), a ARRAY<STRING>, m MAP<STRING, INT>, s STRUCT<x: INT, y: BINARY>"
    )
    row = (datetime(2026, 1, 2, tzinfo=timezone.utc), Decimal("1.5000"), ["x", None], {"k": 1}, (7, b"z"))
    rows = stream(ListSource([row, [row], END], schema)).to_end()
    assert [tuple(found)[1:] for found in rows] == [(row[1], row[2], row[3], (7, b"z"))] * 2
    batch = pa.RecordBatch.from_pydict({"word": ["a"], "n": [1]})
    assert stream(ListSource([batch, END], "n LONG, word STRING")).to_end() == [(1, "a")]


def test_a_failure_is_the_query_s_with_its_traceback(stream: Stream) -> None:
    failure = stream(ListSource([1, FAIL(LookupError("nothing"))])).failure()
    assert "The feed of source 'list_source' failed: LookupError: nothing" in failure
    assert "Traceback (most recent call last)" in failure


def test_a_wrong_option_fails_at_load(spark: SparkSession) -> None:
    hw.attach(spark)
    with pytest.raises(Exception, match=r"'count'.*'x'.*an integer"):
        spark.readStream.format("matrix_words").option("count", "x").load()


def test_stop_ends_a_feed_that_is_busy(stream: Stream, feed_threads: Callable[[], list[str]]) -> None:
    @hw.source("n LONG")
    def matrix_busy() -> Iterator[int]:
        yield 1
        while True:
            sum(range(100))

    query = stream(matrix_busy())
    assert query.rows(1) == [(1,)]
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 5
    assert hw.feeds() == []
    assert feed_threads() == []


@hw.source("n LONG, word STRING")
def matrix_counted(count: int, *, since: int | None = None) -> Iterator[Any]:
    for n in range(0 if since is None else since + 1, count):
        yield hw.At(n, (n, f"w{n}"))


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_the_log_survives_a_restart_and_the_source_goes_on(
    spark: SparkSession, tmp_path: Path, compression: str
) -> None:
    batches: dict[int, list[Any]] = {}

    def sink(frame: DataFrame, batch: int) -> None:
        rows = [tuple(row) for row in frame.collect()]
        assert batches.setdefault(batch, rows) == rows, "a batch that is run again is the same"

    def run(count: int) -> list[Any]:
        stream = hw.stream(
            spark, matrix_counted(count=count), max_rows_per_trigger=70, log_compression=compression
        )
        writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
        assert writer.trigger(availableNow=True).start().awaitTermination(60)
        return [row for batch in sorted(batches) for row in batches[batch]]

    assert run(100) == [(n, f"w{n}") for n in range(100)]
    commits = tmp_path / "c" / "commits"
    last = max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    assert run(200) == [(n, f"w{n}") for n in range(200)]


def test_partitions_are_read_in_tasks_and_go_on_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    class MatrixShards(
        hw.PartitionedSource, name="matrix_shards", schema="p STRING, n LONG, words ARRAY<STRING>"
    ):
        def __init__(self, rows: int) -> None:
            self._rows = rows

        def partitions(self) -> list[str]:
            return ["a", "b"]

        def earliest(self, p: str) -> int:
            return 0

        def latest(self, p: str) -> int:
            return self._rows

        def read(self, p: str, start: int, end: int) -> Iterator[Any]:
            for n in range(start, end):
                yield p, n, [p, str(n)]

    batches: dict[int, list[Any]] = {}

    def sink(frame: DataFrame, batch: int) -> None:
        batches[batch] = [tuple(row) for row in frame.collect()]

    def run(rows: int) -> dict[str, list[int]]:
        stream = hw.stream(spark, MatrixShards(rows=rows), max_rows_per_trigger=150)
        writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60), query.status
        counts = [p["sources"][0]["metrics"]["rowsInBatch"] for p in query.recentProgress]
        assert set(counts) <= {"150", "100", "50", "0"}
        found = [row for batch in sorted(batches) for row in batches[batch]]
        assert all(words == [p, str(n)] for p, n, words in found)
        return {p: [n for q, n, _ in found if q == p] for p in ("a", "b")}

    assert run(100) == {p: list(range(100)) for p in ("a", "b")}
    assert run(200) == {p: list(range(200)) for p in ("a", "b")}
