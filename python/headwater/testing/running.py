"""A running query on a source, and the pytest fixture that starts one."""

from __future__ import annotations

import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.errors import HeadwaterError
from headwater.runtime.status import FeedStatus
from headwater.spark import attach
from headwater.spark.feeds import feeds
from headwater.spark.session import session
from headwater.spark.stream import stream as streaming_frame
from headwater.testing.crash import BatchSink, batch_ids, copy_checkpoint, replace_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["RunningStream", "stream"]

_POLL_SECONDS = 0.02


class RunningStream:
    """A query that reads a source into memory. Its methods wait for a condition, and no longer than needed.

    A wait that times out raises an AssertionError that says what the query was doing. `available_now` sets
    the trigger, `apply` transforms the DataFrame before it is written, `timeout` is in seconds, and `options`
    are those of `hw.stream`. `query` is the StreamingQuery. `checkpoint` is a folder for the query's
    checkpoint: with one the query can be killed and restarted.

    >>> from headwater.testing import ListSource
    >>> running = RunningStream(spark, ListSource([3, 4, 5]), apply=lambda frame: frame.where("value > 3"))
    >>> rows = running.rows(2)
    >>> running.stop()
    >>> print(rows)
    [Row(value=4), Row(value=5)]
    """

    def __init__(
        self,
        spark: SparkSession,
        source: Any,
        *,
        available_now: bool = False,
        apply: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        timeout: float = 60,
        checkpoint: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        self._spark = spark
        self._frame: Callable[[], DataFrame] = lambda: apply(streaming_frame(spark, source, **options))
        self._available_now = available_now
        self._timeout = timeout
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._batches: dict[int, list[Row]] = {}
        self._rows: list[Row] = []
        self._start()

    def _start(self) -> None:
        self._name = f"headwater_{uuid.uuid4().hex}"
        self._last_progress = ""
        writer = self._frame().writeStream.queryName(self._name)
        if self._available_now:
            writer = writer.trigger(availableNow=True)
        if self._checkpoint is None:
            writer = writer.format("memory")
        else:
            self._sink = BatchSink(self._batches)
            writer = writer.foreachBatch(self._sink).option("checkpointLocation", str(self._checkpoint))
        self.query: StreamingQuery = writer.start()

    def rows(self, count: int) -> list[Row]:
        """All rows so far, in order, as soon as there are at least `count`."""
        return self.until(lambda rows: len(rows) >= count, f"{count} rows")

    def until(self, condition: Callable[[list[Row]], bool], what: str = "the condition") -> list[Row]:
        """All rows so far, as soon as `condition(rows)` is true. Raises the error if the query fails."""
        self._wait(lambda: condition(self._collect()), what)
        return self._rows

    def to_end(self) -> list[Row]:
        """All rows, once the source has ended and the query has read every row."""
        self._wait(self._is_drained, "the end of the source")
        return self._collect()

    def done(self) -> list[Row]:
        """All rows of a query that terminates by itself, as with `available_now`."""
        self._wait(self._has_ended, "the end of the query")
        return self._collect()

    def failure(self) -> str:
        """The error message of the query, once it has failed."""
        from pyspark.errors import StreamingQueryException

        try:
            self._wait(lambda: not self.query.isActive, "a failure of the query")
        except StreamingQueryException as error:
            return str(error)
        exception = self.query.exception()
        assert exception is not None, f"the query terminated without an error\n{self._state()}"
        return str(exception)

    @property
    def feeds(self) -> list[FeedStatus]:
        """The feeds of this query."""
        return [feed for feed in feeds() if feed.query == self._name]

    def wait_for(self, condition: Callable[[list[FeedStatus]], bool]) -> list[FeedStatus]:
        """The feeds of this query, as soon as `condition(feeds)` is true."""
        self._wait(lambda: condition(self.feeds), "a state of its feeds")
        return self.feeds

    def stop(self) -> None:
        """Stops the query and its feeds."""
        self.query.stop()

    def kill(self) -> RunningStream:
        """Ends the query as `kill -9` of the driver would, and returns this object. Needs a `checkpoint`.

        The next start finds the files of the checkpoint as they are now. Rows that were not in the log yet
        are gone, the batch that runs now does not end, and from now on nothing is acknowledged to the source.
        The rows in the sink stay.

        What differs from a crash: the source's thread has to end, so its `close`, `on_stop` and `finally`
        blocks run.
        """
        checkpoint = self._required_checkpoint()
        connection = attach.current()
        if connection is not None:
            connection[1].drop_acks(self._name)  # before the copy, which has all that was acknowledged
        last_done = self._sink.hold()

        def is_committed() -> bool:
            """Or never will be."""
            return (
                last_done is None or not self.query.isActive or last_done in batch_ids(checkpoint, "commits")
            )

        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "checkpoint"
            try:
                self._wait(
                    lambda: is_committed() and copy_checkpoint(checkpoint, copy), "a copy of the checkpoint"
                )
                self._sink.freeze()
                self._stop_held_query()
            finally:
                self._sink.release()  # also after a time-out: the end of the test stops the query
            replace_checkpoint(checkpoint, copy)
        return self

    def restart(self) -> RunningStream:
        """Starts the query again on its checkpoint, and returns this object. A running one is stopped first.

        The source is created again from the same options. Rows of earlier runs stay; a batch that Spark runs
        again replaces the rows that it had, as in an idempotent sink.
        """
        self._required_checkpoint()
        self.stop()
        self._start()
        return self

    def _required_checkpoint(self) -> Path:
        if self._checkpoint is None:
            raise HeadwaterError(
                "this query has no checkpoint, which `kill` and `restart` need", "add checkpoint=tmp_path"
            )
        return self._checkpoint

    def _stop_held_query(self) -> None:
        """A held sink would block `stop`, and one that is released before would let the next batch begin."""
        stopping = threading.Thread(target=self.query.stop, name="headwater-kill", daemon=True)
        stopping.start()
        self._wait(lambda: not self.query.isActive, "the end of the query")
        self._sink.release()
        stopping.join()

    def _collect(self) -> list[Row]:
        if self._checkpoint is not None:
            self._rows = self._sink.rows
            return self._rows
        progress = self.query.lastProgress
        if (
            progress is not None and progress["timestamp"] != self._last_progress
        ):  # idle reports repeat batchId
            self._rows = self._spark.table(self._name).collect()
            self._last_progress = progress["timestamp"]
        return self._rows

    def _is_drained(self) -> bool:
        """Whether the feeds have ended, the JVM has all of their rows, and no batch is left to do."""
        feeds = self.feeds
        if not feeds or any(feed.state != "ended" or feed.waiting for feed in feeds):
            return False
        sent, progress = sum(feed.rows for feed in feeds), self.query.lastProgress
        if sent and (progress is None or int(progress["sources"][0]["metrics"]["rowsRead"]) < sent):
            return False
        return not self.query.status["isDataAvailable"]

    def _wait(self, condition: Callable[[], bool | None], what: str) -> None:
        deadline = time.monotonic() + self._timeout
        while not condition():
            if self._has_ended(unless=condition) and not condition():
                raise AssertionError(f"the query terminated before {what}\n{self._state()}")
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"timed out after {self._timeout:g} s waiting for {what}\n{self._state()}"
                )

    def _has_ended(self, unless: Callable[[], bool | None] = lambda: False) -> bool:
        """Waits briefly for the end. Raises the error of the query, unless the condition holds by then."""
        from pyspark.errors import StreamingQueryException

        query: Any = self.query
        try:
            return bool(query.awaitTermination(_POLL_SECONDS))
        except StreamingQueryException:
            if unless():
                return True
            raise

    def _state(self) -> str:
        query = self.query
        return (
            f"rows: {len(self._rows)}\nstatus: {query.status}\nfeeds: {self.feeds}\n"
            f"progress: {query.lastProgress}"
        )


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> Iterator[Callable[..., RunningStream]]:
    """`stream(source, **options)` starts a query on a source and returns a RunningStream.

    Options are those of `hw.stream`, and `available_now`, `apply`, `timeout` and `checkpoint` of
    RunningStream. All queries are stopped at the end of the test. The session comes from the fixture
    `spark_session` of pytest-spark or from a fixture `spark` of yours; without either, a new one is created.

    >>> from headwater.testing import END, ListSource
    >>> def test_all_rows_arrive(stream):
    ...     assert stream(ListSource([1, 2, END]), available_now=True).done() == [(1,), (2,)]
    >>> test_all_rows_arrive(lambda source, **options: RunningStream(spark, source, **options))  # or pytest
    """
    spark = _session(request)
    started: list[RunningStream] = []

    def start(source: Any, **options: Any) -> RunningStream:
        running = RunningStream(spark, source, **options)
        started.append(running)
        return running

    yield start
    for running in started:
        running.stop()


def _session(request: pytest.FixtureRequest) -> SparkSession:
    for name in ("spark_session", "spark"):
        try:
            spark: SparkSession = request.getfixturevalue(name)
        except pytest.FixtureLookupError:
            continue
        return spark
    from pyspark.sql import SparkSession

    return session(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false"))
