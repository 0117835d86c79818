"""A running query on a source, and the pytest fixture that starts it."""

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

_STEP_SECONDS = 0.02


class RunningStream:
    """A query on a source, into memory. A wait ends as soon as it can; in vain, it says what was going on.

    `available_now` sets the trigger, `apply` changes the frame before it is written, `timeout` is in seconds,
    and `options` are those of `hw.stream`. `query` is Spark's.

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
        self._seen = ""
        self._rows: list[Row] = []
        writer = (
            apply(streaming_frame(spark, source, **options))
            .writeStream.format("memory")
            .queryName(self._table)
        )
        self.query: StreamingQuery = (writer.trigger(availableNow=True) if available_now else writer).start()

    def rows(self, count: int) -> list[Row]:
        """All rows that came, as soon as they are `count` or more, in their order."""
        return self.until(lambda rows: len(rows) >= count, f"{count} rows")

    def until(self, condition: Callable[[list[Row]], bool], what: str = "the condition") -> list[Row]:
        """All rows that came, as soon as a condition holds of them. Raises what the query fails with."""
        self._wait(lambda: condition(self._so_far()), what)
        return self._rows

    def to_end(self) -> list[Row]:
        """All rows, once the source has ended and every one of them was read."""
        self._wait(self._is_drained, "the end of the source")
        return self._so_far()

    def done(self) -> list[Row]:
        """All rows of a query that ends by itself, as with `available_now`."""
        self._wait(self._has_ended, "the end of the query")
        return self._so_far()

    def failure(self) -> str:
        """What the query fails with."""
        from pyspark.errors import StreamingQueryException

        try:
            self._wait(lambda: not self.query.isActive, "a failure of the query")
        except StreamingQueryException as error:
            return str(error)
        error_of_query = self.query.exception()
        assert error_of_query is not None, f"the query ended without an error\n{self._doing()}"
        return str(error_of_query)

    @property
    def feeds(self) -> list[FeedStatus]:
        """The feeds of this query."""
        return [feed for feed in feeds() if feed.query == self._table]

    def wait_for(self, condition: Callable[[list[FeedStatus]], bool]) -> list[FeedStatus]:
        """The feeds of this query, as soon as a condition holds of them."""
        self._wait(lambda: condition(self.feeds), "a state of the feeds")
        return self.feeds

    def stop(self) -> None:
        """Stops the query, and with it its feeds."""
        self.query.stop()

    def _so_far(self) -> list[Row]:
        progress = self.query.lastProgress
        if progress is not None and progress["timestamp"] != self._seen:  # idle reports repeat the batch's id
            self._rows = self._spark.table(self._table).collect()
            self._seen = progress["timestamp"]
        return self._rows

    def _is_drained(self) -> bool:
        mine = self.feeds
        ended = bool(mine) and all(feed.state == "ended" for feed in mine)
        return ended and len(self._so_far()) >= sum(feed.rows for feed in mine)

    def _wait(self, condition: Callable[[], bool | None], what: str) -> None:
        deadline = time.monotonic() + self._timeout
        while not condition():
            if self._has_ended(unless=condition) and not condition():
                raise AssertionError(f"the query ended before {what}\n{self._doing()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {self._timeout:g} s in vain for {what}\n{self._doing()}")

    def _has_ended(self, unless: Callable[[], bool | None] = lambda: False) -> bool:
        """Waits a little for it. Raises what the query has failed with, unless a condition holds by then."""
        from pyspark.errors import StreamingQueryException

        query: Any = self.query
        try:
            return bool(query.awaitTermination(_STEP_SECONDS))
        except StreamingQueryException:
            if unless():
                return True
            raise

    def _doing(self) -> str:
        rows, query = len(self._rows), self.query
        return f"rows: {rows}\nstatus: {query.status}\nfeeds: {self.feeds}\nprogress: {query.lastProgress}"


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> Iterator[Callable[..., RunningStream]]:
    """`stream(source, **options)` starts a query on a source and gives a RunningStream.

    Options are those of `hw.stream`, and `available_now`, `apply` and `timeout` of RunningStream. All queries
    are stopped at the end of the test. The session is that of pytest-spark's fixture `spark_session` or of
    your own `spark`, where there is one, and else a new one.

    >>> from headwater.testing import END, ListSource
    >>> def test_all_rows_come(stream):
    ...     assert stream(ListSource([1, 2, END]), available_now=True).done() == [(1,), (2,)]
    >>> test_all_rows_come(lambda source, **options: RunningStream(spark, source, **options))  # or pytest
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
            found: SparkSession = request.getfixturevalue(name)
        except pytest.FixtureLookupError:
            continue
        return found
    from pyspark.sql import SparkSession

    return session(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false"))
