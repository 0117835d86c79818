"""Real queries that must run on every line of Spark with the same jar. `make matrix` runs them."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

Words = Callable[..., DataFrame]

METRICS = {"rowsInBatch", "rowsRead", "rowsLost", "waitingRows", "waitingBytes", "blockedMs", "lagMs"}


class Sink:
    """Keeps the rows of each batch by its id, so that a batch that runs twice is seen once."""

    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.batches[number] = [row.value for row in batch.collect()]

    @property
    def values(self) -> list[str]:
        return [value for number in sorted(self.batches) for value in self.batches[number]]


def to_the_end(frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    """Runs with AvailableNow until that has ended."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(60), f"still running: {query.status}, {query.lastProgress}"
    finally:
        query.stop()
    return query


def await_batch(query: StreamingQuery, number: int) -> None:
    """Waits until that batch is done, or fails with what went wrong. Reports of idle times have no rows."""

    def done() -> bool:
        with_rows = [p for p in query.recentProgress if p["sources"][0]["numInputRows"] > 0]
        return any(p["batchId"] >= number for p in with_rows)

    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, f"no batch {number}: {query.status}, {query.lastProgress}"
        assert not query.awaitTermination(0.05), "the query ended"


def sources(query: StreamingQuery) -> list[dict[str, Any]]:
    """What the progress of each batch that had rows says of the source."""
    return [p["sources"][0] for p in query.recentProgress if p["sources"][0]["numInputRows"] > 0]


def end_of(source: dict[str, Any]) -> int:
    return seq_of(source["endOffset"])


def seq_of(offset: str) -> int:
    """From an offset in a progress report: JSON, which PySpark 4.0 turns into the text of a Python dict."""
    return int(ast.literal_eval(offset)["seq"])


def test_available_now_ends_with_all_rows_in_batches_of_the_limit(words: Words, tmp_path: Path) -> None:
    sink = Sink()
    query = to_the_end(words(maxRowsPerTrigger=300), sink, tmp_path)
    sizes = [len(sink.batches[n]) for n in sorted(sink.batches)]
    assert len(sizes) > 2
    assert set(sizes[:-1]) == {300}
    assert 0 < sizes[-1] <= 300
    assert sum(sizes) == end_of(sources(query)[-1]) + 1
    assert len(set(sink.values)) == len(sink.values)
    assert {len(value) for value in sink.values} == {6}


def test_a_query_without_a_limit_runs_batch_after_batch(spark: SparkSession, words: Words) -> None:
    query = words(rowsPerSecond=500).writeStream.format("memory").queryName("live").start()
    try:
        await_batch(query, 3)
    finally:
        query.stop()
    values = [row.value for row in spark.table("live").collect()]
    assert len(set(values)) == len(values) >= end_of(sources(query)[-1]) + 1 > 3


def test_a_restart_goes_on_after_the_last_row(words: Words, tmp_path: Path) -> None:
    sink = Sink()
    first = to_the_end(words(), sink, tmp_path / "restarted")
    rows = len(sink.values)
    second = to_the_end(words(), sink, tmp_path / "restarted")
    assert end_of(sources(first)[-1]) + 1 == rows < len(sink.values)
    assert end_of(sources(second)[-1]) + 1 == len(sink.values)
    in_one_go = Sink()
    to_the_end(words(availableNowWait="3s"), in_one_go, tmp_path / "in one go")
    shared = min(len(sink.values), len(in_one_go.values))
    assert shared > rows
    assert sink.values[:shared] == in_one_go.values[:shared]


def test_a_batch_counted_twice_in_foreach_batch_gives_the_same(words: Words, tmp_path: Path) -> None:
    seen: list[tuple[int, int, int]] = []
    to_the_end(words(), lambda df, _: seen.append((df.count(), df.count(), len(df.collect()))), tmp_path)
    assert seen
    for counts in seen:
        assert counts[0] > 0
        assert len(set(counts)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"len": 0},
            "Option 'len' of source 'random_alpha' is '0', it must be an integer from 1 to 65536",
        ),
        ({"lenght": 5}, "Source 'random_alpha' has no option 'lenght'. Its options are: len, "),
        ({"maxRowsPerTrigger": "many"}, "Option 'maxRowsPerTrigger' of source 'random_alpha' is 'many'"),
    ],
)
def test_a_wrong_option_fails_at_load_by_name(words: Words, options: dict[str, object], message: str) -> None:
    with pytest.raises(PySparkException) as caught:
        words(**options)
    assert message in str(caught.value)


def lose_last_commit(checkpoint: Path) -> None:
    """As if the process had died in its last batch."""
    last = max((f for f in (checkpoint / "commits").iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_rows_that_died_with_their_process_are_reported_as_lost(words: Words, tmp_path: Path) -> None:
    rows = len_after_run(words(), tmp_path)
    lose_last_commit(tmp_path)
    sink = Sink()
    with pytest.raises(StreamingQueryException) as caught:
        to_the_end(words(), sink, tmp_path)
    assert f"lost the rows 0 to {rows - 1}" in str(caught.value)
    assert sink.batches == {}


def test_a_query_told_to_accept_loss_goes_on_and_counts_it(words: Words, tmp_path: Path) -> None:
    rows = len_after_run(words(), tmp_path)
    lose_last_commit(tmp_path)
    sink = Sink()
    query = to_the_end(words(failOnDataLoss=False), sink, tmp_path)
    assert sink.batches[0] == []
    last = sources(query)[-1]
    assert last["metrics"]["rowsLost"] == str(rows)
    assert len(sink.values) == end_of(last) + 1 - rows > 0


def len_after_run(frame: DataFrame, checkpoint: Path) -> int:
    """Runs to the end in one batch, and says how many rows there were."""
    sink = Sink()
    to_the_end(frame, sink, checkpoint)
    assert list(sink.batches) == [0]
    return len(sink.values)


def test_stop_leaves_no_feed_behind(
    spark: SparkSession, words: Words, feed_threads: Callable[[], list[str]]
) -> None:
    query = words().writeStream.format("noop").start()
    try:
        await_batch(query, 0)
        assert len(feed_threads()) == 1
    finally:
        query.stop()
    assert feed_threads() == []


def test_progress_says_exactly_how_many_rows_each_batch_had(words: Words, tmp_path: Path) -> None:
    sink = Sink()
    query = to_the_end(words(maxRowsPerTrigger=250), sink, tmp_path)
    reported = [int(source["metrics"]["rowsInBatch"]) for source in sources(query)]
    assert reported == [len(sink.batches[n]) for n in sorted(sink.batches)]
    for source in sources(query):
        assert set(source["metrics"]) >= METRICS
        assert int(source["metrics"]["rowsRead"]) > end_of(source)
        assert seq_of(source["latestOffset"]) >= end_of(source)
    assert sources(query)[0]["description"] == "random_alpha[len=6, rowsPerSecond=2000]"
