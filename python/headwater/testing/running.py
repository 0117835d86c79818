"""A running query on a source, and the pytest fixture that starts one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headwater.runtime.status import FeedStatus
from headwater.spark.feeds import feeds
from headwater.spark.session import session
from headwater.spark.stream import stream as streaming_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["RunningStream", "stream"]

_POLL_SECONDS = 0.02


class RunningStream:
    """A query that reads a source into memory. Its methods wait for a condition, and no longer than needed.

    A wait that times out raises an AssertionError that says what the query was doing. `available_now` sets
    the trigger, `apply` transforms the DataFrame before it is written, `timeout` is in seconds, and `options`
    are those of `hw.stream`. `query` is the StreamingQuery.

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
        **options: Any,
    ) -> None:
        self._spark = spark
        self._timeout = timeout
        self._table = f"headwater_{uuid.uuid4().hex}"
        self._last_progress = ""
        self._rows: list[Row] = []
        writer = (
            apply(streaming_frame(spark, source, **options))
            .writeStream.format("memory")
            .queryName(self._table)
        )
        self.query: StreamingQuery = (writer.trigger(availableNow=True) if available_now else writer).start()

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
        return [feed for feed in feeds() if feed.query == self._table]

    def wait_for(self, condition: Callable[[list[FeedStatus]], bool]) -> list[FeedStatus]:
        """The feeds of this query, as soon as `condition(feeds)` is true."""
        self._wait(lambda: condition(self.feeds), "a state of its feeds")
        return self.feeds

    def stop(self) -> None:
        """Stops the query and its feeds."""
        self.query.stop()

    def _collect(self) -> list[Row]:
        progress = self.query.lastProgress
        if (
            progress is not None and progress["timestamp"] != self._last_progress
        ):  # idle reports repeat batchId
            self._rows = self._spark.table(self._table).collect()
            self._last_progress = progress["timestamp"]
        return self._rows

    def _is_drained(self) -> bool:
        feeds = self.feeds
        ended = bool(feeds) and all(feed.state == "ended" for feed in feeds)
        return ended and len(self._collect()) >= sum(feed.rows for feed in feeds)

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

    Options are those of `hw.stream`, and `available_now`, `apply` and `timeout` of RunningStream. All queries
    are stopped at the end of the test. The session comes from the fixture `spark_session` of pytest-spark or
    from a fixture `spark` of yours; without either, a new one is created.

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
