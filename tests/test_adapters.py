"""V1 and V2: a query may change from one to the other at any restart, and `_metadata` is there on V2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import headwater as hw

API = "spark.headwater.api"
TIMEOUT_SECONDS = 120


@hw.source("n LONG, word STRING")
def counted(count: int, *, since: int | None = None) -> Iterator[Any]:
    for n in range(0 if since is None else since + 1, count):
        yield hw.At(n, (n, f"w{n}"))
    yield hw.CAUGHT_UP


UseApi = Callable[[str], None]


@pytest.fixture
def use_api(spark_session: SparkSession) -> Iterator[UseApi]:
    yield lambda api: spark_session.conf.set(API, api)
    spark_session.conf.unset(API)


class BrokenSinkError(Exception):
    pass


class Sink:
    """The rows of each batch. From batch `broken_from` on it takes the rows, and fails."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.attempts: list[tuple[int, list[Any]]] = []
        self.broken_from = 1 << 60

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = [tuple(row) for row in frame.collect()]
        self.attempts.append((batch, rows))
        if batch >= self.broken_from:
            raise BrokenSinkError
        self.batches[batch] = rows

    @property
    def rows(self) -> list[Any]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]


def run(stream: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: Path) -> None:
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(TIMEOUT_SECONDS), query.status
    finally:
        query.stop()


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().analyzed().getClass().getSimpleName())


def test_a_feed_is_read_through_v2_unless_the_session_says_v1(
    spark_session: SparkSession, use_api: UseApi
) -> None:
    assert plan_of(hw.stream(spark_session, counted(1))) == "StreamingRelationV2"
    use_api("v1")
    assert plan_of(hw.stream(spark_session, counted(1))) == "StreamingRelation"
    use_api("v2")
    assert plan_of(hw.stream(spark_session, counted(1))) == "StreamingRelationV2"


def test_another_interface_is_refused_by_name(spark_session: SparkSession, use_api: UseApi) -> None:
    use_api("V3")
    with pytest.raises(Exception, match=r"'spark\.headwater\.api' is 'V3', it must be v2 or v1"):
        hw.stream(spark_session, counted(1))


@pytest.mark.parametrize("durability", ["log", "memory"])
@pytest.mark.parametrize("order", [["v1", "v2", "v1"], ["v2", "v1", "v2"]], ids="-".join)
def test_a_query_changes_its_interface_at_every_restart(
    spark_session: SparkSession, use_api: UseApi, tmp_path: Path, order: list[str], durability: str
) -> None:
    sink = Sink()
    for part, api in enumerate(order, start=1):
        use_api(api)
        if durability == "memory":  # the source does not resume there
            source = counted(40)
            expected = [(n, f"w{n}") for _ in range(part) for n in range(40)]
        else:
            source = counted(40 * part)
            expected = [(n, f"w{n}") for n in range(40 * part)]
        stream = hw.stream(spark_session, source, max_rows_per_trigger=15, durability=durability)
        run(stream, sink, tmp_path / "checkpoint")
        assert sink.rows == expected


@pytest.mark.parametrize("order", [["v1", "v2", "v1", "v2"], ["v2", "v1", "v2", "v1"]], ids="-".join)
def test_an_unfinished_batch_of_one_interface_is_run_again_exactly_by_the_other(
    spark_session: SparkSession, use_api: UseApi, tmp_path: Path, order: list[str]
) -> None:
    sink = Sink()
    for part, api in enumerate(order, start=1):
        use_api(api)
        stream = hw.stream(spark_session, counted(40 * part), max_rows_per_trigger=15)
        is_last = part == len(order)
        sink.broken_from = 1 << 60 if is_last else max(sink.batches, default=-1) + 2
        if is_last:
            run(stream, sink, tmp_path / "checkpoint")
        else:
            with pytest.raises(StreamingQueryException, match="BrokenSinkError"):
                run(stream, sink, tmp_path / "checkpoint")
    assert sink.rows == [(n, f"w{n}") for n in range(40 * len(order))]
    again = [batch for batch, _ in sink.attempts if [b for b, _ in sink.attempts].count(batch) > 1]
    assert len(set(again)) == len(order) - 1
    for batch in set(again):
        first, *others = [rows for number, rows in sink.attempts if number == batch]
        assert all(rows == first for rows in others)


def test_metadata_says_where_each_row_is_and_stays_the_same_when_a_batch_runs_again(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    began = datetime.now(timezone.utc)
    sink = Sink()
    for part in (1, 2, 3):
        stream = hw.stream(spark_session, counted(40 * part), max_rows_per_trigger=15)
        assert stream.columns == ["n", "word"], "hidden"
        placed = stream.selectExpr(
            "n", "_metadata.source", "_metadata.run", "_metadata.seq", "_metadata.arrived"
        )
        sink.broken_from = 1 << 60 if part == 3 else max(sink.batches, default=-1) + 2
        if part == 3:
            run(placed, sink, tmp_path / "checkpoint")
        else:
            with pytest.raises(StreamingQueryException, match="BrokenSinkError"):
                run(placed, sink, tmp_path / "checkpoint")
    assert [(n, seq) for n, _, _, seq, _ in sink.rows] == [(n, n) for n in range(120)]
    assert {source for _, source, _, _, _ in sink.rows} == {"counted"}
    (of_run,) = {of_run for _, _, of_run, _, _ in sink.rows}
    assert len(of_run) == 16
    for attempt_batch, rows in sink.attempts:
        assert rows == sink.batches[attempt_batch], "the same arrival times, too"
    arrivals = [arrived.astimezone(timezone.utc) for *_, arrived in sink.rows]
    assert began - timedelta(minutes=1) <= min(arrivals) <= max(arrivals) <= datetime.now(timezone.utc)


def test_a_new_checkpoint_begins_a_new_run(spark_session: SparkSession, tmp_path: Path) -> None:
    runs = []
    for name in ("a", "b"):
        sink = Sink()
        run(
            hw.stream(spark_session, counted(3)).select("_metadata.run", "_metadata.seq"),
            sink,
            tmp_path / name,
        )
        assert [seq for _, seq in sink.rows] == [0, 1, 2]
        runs.append(sink.rows[0][0])
    assert runs[0] != runs[1]


def test_metadata_has_the_shard_of_each_row(spark_session: SparkSession, tmp_path: Path) -> None:
    @hw.source("shard INT")
    def sharded() -> Iterator[Any]:
        yield from [hw.shard().index] * 5
        yield hw.CAUGHT_UP

    sink = Sink()
    stream = hw.stream(spark_session, sharded(), concurrency=3)
    run(stream.selectExpr("shard", "_metadata.shard", "_metadata.seq"), sink, tmp_path / "checkpoint")
    assert all(shard == of_feed for shard, of_feed, _ in sink.rows)
    assert sorted(seq for _, _, seq in sink.rows) == list(range(15))
    assert {shard for shard, _, _ in sink.rows} == {0, 1, 2}


def test_the_whole_struct_can_be_selected_and_filtered_by(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    sink = Sink()
    run(
        hw.stream(spark_session, counted(10)).where("_metadata.seq >= 7").select("word", "_metadata"),
        sink,
        tmp_path / "checkpoint",
    )
    assert [(word, place.seq, place.shard) for word, place in sink.rows] == [
        (f"w{n}", n, 0) for n in (7, 8, 9)
    ]


def test_v1_and_partitioned_sources_have_no_metadata_column(
    spark_session: SparkSession, use_api: UseApi, by_value: None
) -> None:
    class Parts(hw.PartitionedSource, name="adapter_parts", schema="n LONG"):
        def partitions(self) -> list[str]:
            return ["a"]

        def earliest(self, p: str) -> int:
            return 0

        def latest(self, p: str) -> int:
            return 3

        def read(self, p: str, start: int, end: int) -> Iterator[Any]:
            yield from range(start, end)

    frame = hw.stream(spark_session, Parts())
    assert plan_of(frame) == "StreamingRelation"
    with pytest.raises(AnalysisException, match="_metadata"):
        frame.select("_metadata.seq").schema  # noqa: B018
    use_api("v1")
    with pytest.raises(AnalysisException, match="_metadata"):
        hw.stream(spark_session, counted(1)).select("_metadata.seq").schema  # noqa: B018


def test_nested_columns_pass_in_columns_with_batches_cut_inside_of_an_arrow_batch(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    schema = (
        "n LONG, l ARRAY<STRING>, m MAP<STRING, INT>, s STRUCT<a: INT, b: ARRAY<STRUCT<c: STRING>>>, t STRING"
    )
    rows = [
        (
            n,
            ["x", None, str(n)][: n % 4],
            {"k": n, "z": None},
            (n, [(f"c{n}",), (None,)]),
            None if n % 3 else "t",
        )
        for n in range(50)
    ]

    @hw.source(schema)
    def nested() -> Iterator[Any]:
        yield rows
        yield hw.CAUGHT_UP

    sink = Sink()
    run(hw.stream(spark_session, nested(), max_rows_per_trigger=7), sink, tmp_path / "checkpoint")
    assert sink.rows == rows
    assert len(sink.batches) == 8
