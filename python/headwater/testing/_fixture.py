"""The pytest fixture `stream`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headwater._spark.session import session
from headwater.testing._stream import RunningStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["stream"]


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
