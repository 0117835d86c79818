"""Partitioned sources, read by Spark: what arrives, where it starts, and what happens after failures."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from processes import Run, program, wait_until
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import headwater as hw
from headwater.testing import RunningStream

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test

Stream = Callable[..., RunningStream]
Row = tuple[str, int]


class Shelf(hw.PartitionedSource, name="shelf", schema="p STRING, n LONG", identity=("folder",)):
    """A file for each partition says how far it goes, or what to do instead: `first last`, `fail`, `hang`."""

    def __init__(self, folder: str, numbered: bool = False, give: str = "rows") -> None:
        self._folder, self._numbered, self._give = Path(folder), numbered, give

    def partitions(self) -> list[Any]:
        names = [file.stem for file in self._folder.glob("*.p")]
        return [int(name) for name in names] if self._numbered else names

    def earliest(self, p: Any) -> int:
        return self._ends(p)[0]

    def latest(self, p: Any) -> int:
        return self._ends(p)[1]

    def at(self, p: Any, timestamp: datetime) -> int:
        return timestamp.second

    def read(self, p: Any, start: int, end: int) -> Iterator[Any]:
        if self._give == "arrow":
            numbers = pa.array(range(start, end), pa.int64())
            yield pa.RecordBatch.from_arrays([pa.array([str(p)] * (end - start)), numbers], names=["p", "n"])
            return
        for n in range(start, end):
            if self._give == "bad" and n % 10 == 3:
                yield p, "three"
            elif self._give == "too many" and n == end - 1:
                yield from [(str(p), n)] * 2
            elif self._give == "error" and n == 7:
                raise LookupError(f"no row {n}")
            else:
                yield str(p), n

    def _ends(self, p: Any) -> tuple[int, int]:
        file = self._folder / f"{p}.p"
        while (written := file.read_text()) == "hang":
            time.sleep(0.02)
        if written == "fail":
            raise ConnectionError(f"{p} is not there")
        first, last = written.split()
        return int(first), int(last)


class Upstream:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, p: Any, what: int | str, first: int = 0) -> None:
        fresh = self.folder / f"{p}.new"
        fresh.write_text(what if isinstance(what, str) else f"{first} {what}")
        fresh.rename(self.folder / f"{p}.p")

    def source(self, **options: Any) -> Shelf:
        return Shelf(str(self.folder), **options)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    folder = tmp_path / "shelf"
    folder.mkdir()
    return Upstream(folder)


class Runs:
    """Queries on one checkpoint, one after the other, and the rows of their batches."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.batches: dict[int, list[Row]] = {}
        self.again: list[int] = []

    def start(self, source: Any, *, now: bool = True, **options: Any) -> StreamingQuery:
        frame = hw.stream(self.spark, source, **options)
        writer = frame.writeStream.foreachBatch(self._save).option("checkpointLocation", str(self.folder))
        return (writer.trigger(availableNow=True) if now else writer).start()

    def run(self, source: Any, **options: Any) -> list[list[Row]]:
        """The rows of each batch of an AvailableNow run."""
        before = set(self.batches)
        query = self.start(source, **options)
        assert query.awaitTermination(90), query.status
        return [rows for number, rows in sorted(self.batches.items()) if number not in before]

    def rows(self) -> list[Row]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    def _save(self, batch: DataFrame, number: int) -> None:
        rows = [(row.p, row.n) for row in batch.collect()]
        if number in self.batches:
            assert self.batches[number] == rows
            self.again.append(number)
        self.batches[number] = rows


@pytest.fixture
def runs(spark_session: SparkSession, tmp_path: Path) -> Runs:
    hw.attach(spark_session)
    return Runs(spark_session, tmp_path / "checkpoint")


def of(rows: list[Row]) -> dict[str, list[int]]:
    """By partition, in order."""
    parts: dict[str, list[int]] = {}
    for p, n in rows:
        parts.setdefault(p, []).append(n)
    return parts


def numbers(**ends: int) -> dict[str, list[int]]:
    return {p: list(range(end)) for p, end in ends.items()}


def metrics(query: StreamingQuery) -> list[dict[str, Any]]:
    return [progress["sources"][0]["metrics"] for progress in query.recentProgress]


@pytest.mark.parametrize("give", ["rows", "arrow"])
def test_rows_arrive_once_and_in_order_within_each_partition(
    give: str, upstream: Upstream, runs: Runs
) -> None:
    upstream.put("a", 30_000)
    upstream.put("b", 5)
    upstream.put("c", 0)
    runs.run(upstream.source(give=give))
    assert of(runs.rows()) == numbers(a=30_000, b=5)


def test_max_rows_per_trigger_is_exact_and_progress_counts_the_rows(upstream: Upstream, runs: Runs) -> None:
    upstream.put("a", 1000)
    upstream.put("b", 100)
    query = runs.start(upstream.source(), max_rows_per_trigger=250)
    assert query.awaitTermination(90), query.status
    assert of(runs.rows()) == numbers(a=1000, b=100)
    counts = [len(rows) for rows in runs.batches.values()]
    assert counts == [250, 250, 250, 250, 100]
    assert [int(m["rowsInBatch"]) for m in metrics(query) if m["rowsInBatch"] != "0"] == counts
    assert [report["numInputRows"] for report in query.recentProgress if report["numInputRows"]] == counts
    assert all({p for p, _ in rows} == {"a", "b"} for rows in list(runs.batches.values())[:3])
    last = metrics(query)[-1]
    assert last["rowsRead"] == "1100"
    assert last["waitingRows"] == last["maxLag"] == "0"
    assert json.loads(last["partitions"])["a"] == {"offset": 1000, "latest": 1000, "lag": 0, "errors": 0}


def test_partitions_grow_between_batches_and_between_restarts(upstream: Upstream, runs: Runs) -> None:
    upstream.put(0, 3)
    query = runs.start(upstream.source(numbered=True), now=False)
    wait_until(lambda: len(runs.rows()) == 3, lambda: query.status)
    upstream.put(10, 4)
    wait_until(lambda: len(runs.rows()) == 7, lambda: query.status)
    (feed,) = [feed for feed in hw.feeds() if feed.source == "shelf"]
    assert [(part.name, part.offset, part.latest, part.lag) for part in feed.partitions] == [
        (0, 3, 3, 0),
        (10, 4, 4, 0),
    ]
    query.stop()
    upstream.put(2, 5)
    upstream.put(0, 4)
    runs.run(upstream.source(numbered=True))
    assert of(runs.rows()) == {"0": [0, 1, 2, 3], "10": [0, 1, 2, 3], "2": [0, 1, 2, 3, 4]}
    offsets = (runs.folder / "offsets" / str(max(runs.batches))).read_text().splitlines()[-1]
    assert offsets == '{"v":1,"source":"shelf","partitions":"int","next":{"0":4,"2":5,"10":4}}'


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", {"a": [2, 3, 4, 5], "b": [1]}),
        ("latest", {}),
        (datetime(2026, 1, 1, 0, 0, 4, tzinfo=timezone.utc), {"a": [4, 5]}),
        ({"a": 5}, {"a": [5], "b": [1]}),
    ],
    ids=str,
)
def test_a_query_starts_at_start_from_and_resumes_from_its_checkpoint(
    start: Any, expected: dict[str, list[int]], upstream: Upstream, runs: Runs
) -> None:
    upstream.put("a", 6, first=2)
    upstream.put("b", 2, first=1)
    runs.run(upstream.source(), start_from=start)
    assert of(runs.rows()) == expected
    upstream.put("a", 8, first=2)
    runs.run(upstream.source(), start_from="earliest")  # it is at work already
    for p, more in {"a": [6, 7]}.items():
        expected = {**expected, p: [*expected.get(p, []), *more]}
    assert of(runs.rows()) == expected


def test_start_offsets_may_name_partitions_with_integer_names(upstream: Upstream, runs: Runs) -> None:
    upstream.put(0, 20)
    upstream.put(10, 3)
    runs.run(upstream.source(numbered=True), start_from={"0": 17})
    assert of(runs.rows()) == {"0": [17, 18, 19], "10": [0, 1, 2]}


def test_the_first_batch_is_replayed_identically_after_latest_has_moved(
    upstream: Upstream, runs: Runs
) -> None:
    upstream.put("a", 5)

    def fails(batch: DataFrame, number: int) -> None:
        raise RuntimeError("the sink is not there")

    query = runs.start(upstream.source(), now=False, start_from="latest")
    wait_until(lambda: (runs.folder / "sources" / "0" / "start-00000001.json").exists(), lambda: query.status)
    query.stop()
    upstream.put("a", 9)
    frame = hw.stream(runs.spark, upstream.source(), start_from="latest")
    failing = frame.writeStream.foreachBatch(fails).option("checkpointLocation", str(runs.folder)).start()
    wait_until(lambda: not failing.isActive, lambda: failing.status)
    upstream.put("a", 12)
    assert runs.run(upstream.source(), start_from="latest") == [
        [("a", 5), ("a", 6), ("a", 7), ("a", 8)],
        [("a", 9), ("a", 10), ("a", 11)],
    ]


def test_with_restart_a_failing_partition_is_retried_and_the_others_continue(
    upstream: Upstream, runs: Runs
) -> None:
    upstream.put("a", 3)
    upstream.put("b", "fail")
    query = runs.start(upstream.source(), now=False, on_error="restart")
    wait_until(lambda: len(runs.rows()) == 3, lambda: query.status)
    upstream.put("a", 6)
    wait_until(lambda: len(runs.rows()) == 6, lambda: query.status)
    (feed,) = [feed for feed in hw.feeds() if feed.source == "shelf"]
    (failing,) = [part for part in feed.partitions if part.name == "b"]
    assert failing.errors > 0
    assert failing.last_error == "ConnectionError: b is not there"
    assert failing.offset is failing.latest is None
    wait_until(lambda: metrics(query)[-1]["failingPartitions"] == "1", lambda: metrics(query)[-1])
    assert "b is not there" in json.loads(metrics(query)[-1]["partitions"])["b"]["lastError"]
    upstream.put("b", 2)
    wait_until(lambda: len(runs.rows()) == 8, lambda: query.status)
    assert of(runs.rows()) == numbers(a=6, b=2)
    wait_until(lambda: metrics(query)[-1]["failingPartitions"] == "0", lambda: metrics(query)[-1])
    assert json.loads(metrics(query)[-1]["partitions"])["b"] == {
        "offset": 2,
        "latest": 2,
        "lag": 0,
        "errors": 0,  # in a row
    }
    (healed,) = [part for feed in hw.feeds() for part in feed.partitions if part.name == "b"]
    assert healed.errors >= failing.errors  # in all
    query.stop()


def test_with_end_a_failed_partition_is_not_called_again(upstream: Upstream, runs: Runs) -> None:
    upstream.put("a", 3)
    upstream.put("b", "fail")
    query = runs.start(upstream.source(), now=False, on_error="end")
    wait_until(lambda: len(runs.rows()) == 3, lambda: query.status)
    wait_until(lambda: metrics(query)[-1]["failingPartitions"] == "1", lambda: metrics(query)[-1])
    upstream.put("b", 2)
    for end in range(4, 8):
        upstream.put("a", end)
        wait_until(lambda end=end: len(runs.rows()) == end, lambda: query.status)  # type: ignore[misc]
    query.stop()
    assert of(runs.rows()) == numbers(a=7)
    runs.run(upstream.source())  # the next query asks again
    assert of(runs.rows()) == numbers(a=7, b=2)


def test_a_failing_partition_fails_the_query_with_the_authors_traceback(
    upstream: Upstream, stream: Stream
) -> None:
    upstream.put("a", 3)
    upstream.put("b", "fail")
    message = stream(upstream.source()).failure()
    assert (
        "Source 'shelf' failed: earliest('b'): ConnectionError: b is not there (test_partitioned.py:"
        in message
    )
    assert "Set the option onError to restart" in message
    assert 'raise ConnectionError(f"{p} is not there")' in message


def test_a_partition_that_hangs_does_not_delay_the_others(upstream: Upstream, runs: Runs) -> None:
    upstream.put("a", 3)
    upstream.put("b", "hang")
    query = runs.start(upstream.source(), now=False)
    try:
        for end in range(4, 8):
            upstream.put("a", end)
            wait_until(lambda end=end: len(runs.rows()) == end, lambda: query.status)  # type: ignore[misc]
        assert of(runs.rows()) == numbers(a=7)
        upstream.put("b", 2)
        wait_until(lambda: len(runs.rows()) == 9, lambda: query.status)
    finally:
        upstream.put("b", 2)
        query.stop()


def test_an_error_in_read_fails_the_query_with_partition_and_place(
    upstream: Upstream, stream: Stream
) -> None:
    upstream.put("a", 9)
    message = stream(upstream.source(give="error")).failure()
    assert "LookupError: no row 7" in message
    assert "test_partitioned.py" in message
    assert "'a'" in message


def test_more_rows_than_offsets_fail_the_query(upstream: Upstream, stream: Stream) -> None:
    upstream.put("a", 4)
    assert "at most 4" in stream(upstream.source(give="too many")).failure()


def test_with_drop_bad_rows_are_dropped_and_counted(upstream: Upstream, runs: Runs) -> None:
    upstream.put("a", 20)
    query = runs.start(upstream.source(give="bad"), on_bad_row="drop")
    assert query.awaitTermination(90), query.status
    assert of(runs.rows()) == {"a": [n for n in range(20) if n % 10 != 3]}
    assert metrics(query)[-1]["badRows"] == "2"
    assert metrics(query)[-1]["rowsRead"] == "18"


def test_lost_offsets_fail_the_query_or_are_counted(upstream: Upstream, runs: Runs) -> None:
    upstream.put("a", 5)
    runs.run(upstream.source())
    upstream.put("a", 12, first=8)
    query = runs.start(upstream.source())
    wait_until(lambda: not query.isActive, lambda: query.status)
    message = str(query.exception())
    assert "'shelf'" in message
    assert "'a'" in message
    assert "5" in message
    assert "failOnDataLoss" in message
    going_on = runs.start(upstream.source(), fail_on_data_loss=False)
    assert going_on.awaitTermination(90), going_on.status
    assert of(runs.rows()) == {"a": [0, 1, 2, 3, 4, 8, 9, 10, 11]}
    assert metrics(going_on)[-1]["rowsLost"] == "3"


def test_a_partition_that_went_backwards_or_is_gone_fails_the_query_or_is_kept(
    upstream: Upstream, runs: Runs
) -> None:
    upstream.put("a", 5)
    upstream.put("b", 5)
    runs.run(upstream.source())
    upstream.put("a", 3)
    query = runs.start(upstream.source())
    wait_until(lambda: not query.isActive, lambda: query.status)
    assert "partition 'a' went backwards: it ends at offset 3" in str(query.exception())
    (upstream.folder / "a.p").unlink()
    gone = runs.start(upstream.source())
    wait_until(lambda: not gone.isActive, lambda: gone.status)
    assert "partition 'a' is gone, at offset 5" in str(gone.exception())
    upstream.put("b", 6)
    assert runs.run(upstream.source(), fail_on_data_loss=False) == [[("b", 5)]]
    upstream.put("a", 7)
    assert runs.run(upstream.source(), fail_on_data_loss=False) == [[("a", 5), ("a", 6)]]


def test_a_frame_gives_the_same_rows_to_every_action(
    upstream: Upstream, spark_session: SparkSession, tmp_path: Path
) -> None:
    upstream.put("a", 100)
    results: list[Any] = []

    def save(batch: DataFrame, number: int) -> None:
        results.extend([batch.count(), batch.count(), [row.n for row in batch.collect()]])

    frame = hw.stream(spark_session, upstream.source())
    query = frame.writeStream.foreachBatch(save).trigger(availableNow=True).start()
    assert query.awaitTermination(90), query.status
    assert results == [100, 100, list(range(100))]
    assert metrics(query)[-1]["rowsRead"] == "100"  # though they were read three times


def test_min_partitions_cuts_large_ranges(upstream: Upstream, spark_session: SparkSession) -> None:
    upstream.put("a", 1000)
    upstream.put("b", 10)
    tasks: list[int] = []

    def save(batch: DataFrame, number: int) -> None:
        tasks.append(batch.rdd.getNumPartitions())
        assert of([(row.p, row.n) for row in batch.collect()]) == numbers(a=1000, b=10)

    frame = hw.stream(spark_session, upstream.source(), min_partitions=7)
    query = frame.writeStream.foreachBatch(save).trigger(availableNow=True).start()
    assert query.awaitTermination(90), query.status
    assert tasks == [8]


def test_a_batch_that_is_replayed_with_other_tasks_has_the_same_rows(upstream: Upstream, runs: Runs) -> None:
    for p in "abcd":
        upstream.put(p, 20)
    runs.run(upstream.source())
    for file in ("0", ".0.crc"):
        (runs.folder / "commits" / file).unlink()
    before = runs.batches.pop(0)
    runs.run(upstream.source(), min_partitions=3)
    assert of(before) == of(runs.batches[0]) == numbers(a=20, b=20, c=20, d=20)


def test_two_queries_of_one_source_are_independent(upstream: Upstream, stream: Stream) -> None:
    upstream.put("a", 50)
    one, two = stream(upstream.source()), stream(upstream.source(), max_rows_per_trigger=7)
    assert one.rows(50) == two.rows(50) == [("a", n) for n in range(50)]
    assert len({feed.query for feed in hw.feeds() if feed.source == "shelf"}) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buffer_rows": 3}, "Option 'bufferRows' means nothing for a source with partitions"),
        ({"start_from": "newest"}, "it must be earliest, latest, a time with its zone"),
        ({"min_partitions": 0}, "Option 'minPartitions' of source 'shelf' is '0', it must be"),
    ],
)
def test_invalid_options_fail_at_load(
    options: dict[str, Any], message: str, upstream: Upstream, spark_session: SparkSession
) -> None:
    with pytest.raises(Exception, match=message.replace("'", ".")):
        hw.stream(spark_session, upstream.source(), **options)


def test_a_changed_identity_option_is_refused(upstream: Upstream, runs: Runs, tmp_path: Path) -> None:
    upstream.put("a", 1)
    runs.run(upstream.source())
    query = runs.start(Shelf(str(tmp_path)))
    wait_until(lambda: not query.isActive, lambda: query.status)
    assert "its option 'folder' was" in str(query.exception())


def test_a_stop_ends_the_watch_and_leaves_no_thread(upstream: Upstream, stream: Stream) -> None:
    upstream.put("a", 1)
    before = {thread for thread in threading.enumerate() if thread.name.startswith("headwater-")}
    running = stream(upstream.source())
    running.rows(1)
    running.stop()
    assert [feed for feed in hw.feeds() if feed.source == "shelf"] == []
    wait_until(
        lambda: {t for t in threading.enumerate() if t.name.startswith("headwater-")} <= before,
        lambda: threading.enumerate(),
    )


def test_workers_without_headwater_report_how_to_fix_it(run: Run, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys; sys.modules['headwater'] = None")
    python = program(tmp_path / "python", f'PYTHONPATH="{hidden}:$PYTHONPATH" exec {sys.executable} "$@"')
    message = run(
        """
        class Ones(hw.PartitionedSource, name="ones", schema="n LONG"):
            def partitions(self): return [0]
            def earliest(self, p): return 0
            def latest(self, p): return 3
            def read(self, p, start, end): yield from range(start, end)

        spark = hw.session(builder())
        query = hw.stream(spark, Ones()).writeStream.format("noop").trigger(availableNow=True).start()
        try:
            query.awaitTermination(90)
        except Exception as error:
            report(str(error))
        """,
        env={"PYSPARK_PYTHON": str(python)},
    )
    assert "has no headwater" in message
    assert "PYSPARK_PYTHON" in message
