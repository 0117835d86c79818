"""Checkpoints of every released version: the current code continues them without gap or repeat.

They are in `golden`, and were written by `golden/write_checkpoints.py`.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import log_writer
import pytest
from golden import sources
from golden.sources import KINDS, Kind, Rows, read_rows
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import headwater as hw

FOLDER = Path(sources.__file__).parent
RELEASES = sorted(FOLDER.glob("checkpoints-*"))

END = 20
"""How many records the upstreams have by now. The golden checkpoints have seen 8 or 16 of them."""

TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Golden:
    """A checkpoint of a released version, and what the sink received from that version."""

    folder: Path

    @property
    def kind(self) -> Kind:
        return KINDS[self.folder.name.rpartition("-")[0]]

    @property
    def expected(self) -> dict[str, Any]:
        expected: dict[str, Any] = json.loads((self.folder / "expected.json").read_text(encoding="utf-8"))
        return expected

    @property
    def batches(self) -> dict[int, Rows]:
        return {int(batch): rows for batch, rows in self.expected["batches"].items()}

    @property
    def unfinished(self) -> dict[int, Rows]:
        """The batches that were planned and not committed: none, or the last one."""
        return {batch: rows for batch, rows in self.batches.items() if not self._is_committed(batch)}

    @property
    def finished_rows(self) -> Rows:
        return [row for batch, rows in self.batches.items() if self._is_committed(batch) for row in rows]

    def _is_committed(self, batch: int) -> bool:
        return (self.folder / "commits" / str(batch)).exists()

    def copy(self, folder: Path) -> Path:
        return shutil.copytree(
            self.folder, folder / "checkpoint", ignore=shutil.ignore_patterns("expected.json")
        )

    def __str__(self) -> str:
        return f"{self.folder.parent.name.removeprefix('checkpoints-')}-{self.folder.name}"


GOLDENS = [Golden(folder) for release in RELEASES for folder in sorted(release.iterdir())]
LOST = [golden for golden in GOLDENS if golden.folder.name == "random_alpha_memory-unfinished"]
SET_BACK = [golden for golden in GOLDENS if golden.folder.name.startswith("resumable") and golden.unfinished]
KEPT = [golden for golden in GOLDENS if golden not in LOST]


class Query:
    """A query on a checkpoint, and the rows that its sink received, by batch."""

    def __init__(self, spark: SparkSession, source: Any, checkpoint: Path, **options: Any) -> None:
        self.batches: dict[int, Rows] = {}
        writer = hw.stream(spark, source, **options).writeStream.foreachBatch(self._sink)
        self.query: Any = writer.option("checkpointLocation", str(checkpoint)).start()

    def _sink(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = read_rows(frame)

    @property
    def rows(self) -> Rows:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    def wait_for(self, count: int) -> None:
        """Waits until the sink has received `count` rows."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(self.rows) < count:
            assert not self.query.awaitTermination(0.02), "the query has ended"
            assert time.monotonic() < deadline, f"{len(self.rows)} rows of {count}; {self.query.status}"


Start = Callable[..., AbstractContextManager[Query]]


@pytest.fixture(params=["v2", "v1"])
def start(spark_session: SparkSession, request: pytest.FixtureRequest) -> Iterator[Start]:
    """`start(source, checkpoint, **options)` runs a query while its block lasts. 0.1 had V1 only."""

    @contextmanager
    def running(source: Any, checkpoint: Path, **options: Any) -> Iterator[Query]:
        query = Query(spark_session, source, checkpoint, **options)
        try:
            yield query
        finally:
            query.query.stop()

    cloudpickle.register_pickle_by_value(sources)  # Spark's workers cannot import it
    spark_session.conf.set("spark.headwater.api", request.param)
    yield running
    spark_session.conf.unset("spark.headwater.api")
    cloudpickle.unregister_pickle_by_value(sources)


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def by_stream(kind: Kind, rows: Rows) -> dict[Any, Rows]:
    """The rows of each shard or partition, in order, without the time at which they were read."""
    streams: dict[Any, Rows] = {}
    for row in rows:
        content = {name: value for name, value in row.items() if name != kind.arrival}
        streams.setdefault(row[kind.stream] if kind.stream else None, []).append(content)
    return streams


def test_every_release_has_a_golden_checkpoint_of_every_kind_in_both_states() -> None:
    names = {f"{kind}-{state}" for kind in KINDS for state in ("finished", "unfinished")}
    assert FOLDER / "checkpoints-0.1" in RELEASES
    for release in RELEASES:
        assert {folder.name for folder in release.iterdir()} == names
    for golden in GOLDENS:
        assert len(golden.unfinished) == golden.folder.name.endswith("-unfinished"), str(golden)


@pytest.mark.parametrize("golden", KEPT, ids=str)
def test_a_checkpoint_of_an_older_version_continues_without_gap_or_repeat(
    golden: Golden, start: Start, tmp_path: Path
) -> None:
    kind, began = golden.kind, now()
    first_new = max(golden.expected["log_rows"], len(golden.finished_rows))
    with (
        kind.upstream(first_new, END) as upstream,
        start(upstream.source, golden.copy(tmp_path), **kind.options) as query,
    ):
        query.wait_for(len(upstream.rows) - len(golden.finished_rows))
        if not kind.endless:
            query.query.processAllAvailable()  # rows that should not be there would come now
        positions = upstream.started_at()

    # The unfinished batch is the one that was planned. The batches after it have the next ids.
    first = min(golden.unfinished, default=max(golden.batches) + 1)
    assert sorted(query.batches) == list(range(first, first + len(query.batches)))
    assert {batch: query.batches[batch] for batch in golden.unfinished} == golden.unfinished

    rows = golden.finished_rows + query.rows
    known = rows[: len(upstream.rows)] if kind.endless else rows
    assert by_stream(kind, known) == by_stream(kind, upstream.rows)

    # The source resumes after the last row in the log. The rows up to there come from the log.
    assert positions == [kind.position(cursor) for cursor in golden.expected["cursors"]]
    if kind.arrival:
        read_now = [began <= row[kind.arrival] <= now() for row in rows]
        assert read_now == [n >= first_new for n in range(len(rows))]


@pytest.mark.parametrize("golden", LOST, ids=str)
def test_rows_that_were_in_memory_are_reported_as_lost(golden: Golden, start: Start, tmp_path: Path) -> None:
    checkpoint = golden.copy(tmp_path)
    first = len(golden.finished_rows)
    ((batch, lost),) = golden.unfinished.items()
    message = f"lost the rows {first} to {first + len(lost) - 1}"
    with golden.kind.upstream(first + len(lost), END) as upstream:
        with (
            start(upstream.source, checkpoint) as query,
            pytest.raises(StreamingQueryException, match=message),
        ):
            query.wait_for(1)
        assert not query.batches
        with start(upstream.source, checkpoint, fail_on_data_loss=False) as query:
            query.wait_for(1)
    assert query.batches[batch] == []
    next_row = upstream.rows[first + len(lost)]
    assert by_stream(golden.kind, query.rows[:1]) == {None: [next_row]}


@pytest.mark.parametrize("golden", SET_BACK, ids=str)
def test_a_checkpoint_of_an_older_version_can_be_set_back(
    golden: Golden, start: Start, tmp_path: Path
) -> None:
    """The batches are planned again from the second one on, of rows that are still in the log."""
    checkpoint = golden.copy(tmp_path)
    for batch in range(1, max(golden.batches) + 1):
        for folder in (checkpoint / "offsets", checkpoint / "commits"):
            (folder / str(batch)).unlink(missing_ok=True)
            (folder / f".{batch}.crc").unlink(missing_ok=True)
    first = golden.batches[0]
    with golden.kind.upstream(0, END) as upstream, start(upstream.source, checkpoint) as query:
        query.wait_for(len(upstream.rows) - len(first))
    assert first + query.rows == upstream.rows
    assert min(query.batches) == 1


def test_a_frame_in_the_text_of_a_row_is_never_read_behind_a_torn_tail_of_format_1(
    start: Start, tmp_path: Path
) -> None:
    """Format 1 cannot tell it from a frame that was durable. So it is reported, and nothing of it is used."""
    (golden,) = (one for one in GOLDENS if one.folder.name == "resumable-finished")
    first_new = golden.expected["log_rows"]
    forged = log_writer.frame(first_new, 0, group=True, cursor={"last": END - 2, "page": "Z"}).at(0, 1)

    def torn(name: str) -> Path:
        checkpoint = golden.copy(tmp_path / name)
        (segment,) = (checkpoint / "sources" / "0").glob("*.segment")
        segment.write_bytes(segment.read_bytes() + bytes(40) + forged + bytes(8))
        return checkpoint

    with (
        golden.kind.upstream(first_new, END) as upstream,
        start(upstream.source, torn("strict")) as query,
        pytest.raises(StreamingQueryException, match=r"\.segment is damaged at byte"),
    ):
        query.wait_for(1)
    with golden.kind.upstream(first_new, END) as upstream:
        with start(upstream.source, torn("lenient"), fail_on_data_loss=False) as query:
            query.wait_for(len(upstream.rows) - len(golden.finished_rows))
        positions = upstream.started_at()
    assert golden.finished_rows + query.rows == upstream.rows
    assert positions == golden.expected["cursors"]
