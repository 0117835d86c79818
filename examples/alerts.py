"""Alerts about feeds: a StreamingQueryListener to copy. Run this file to see it at work.

It raises an alert when a query fails, when a feed restarts or has lost its connection, when there are more
bad rows than before, and when no row has arrived for a while.
"""

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

import headwater as hw


class FeedAlerts(StreamingQueryListener):
    """Calls `alert` with one line for each event. A feed without a row for `stale_after` is stale."""

    def __init__(
        self,
        spark: SparkSession,
        alert: Callable[[str], None],
        stale_after: timedelta = timedelta(minutes=5),
    ) -> None:
        self._spark = spark
        self._alert = alert
        self._stale_after = stale_after
        self._started: dict[str, datetime] = {}
        self._known: dict[tuple[str, str], dict[str, Any]] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        self._started[str(event.id)] = datetime.now(timezone.utc)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._check(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """The event has no metrics, but the query has a progress report that is as new."""
        query = self._spark.streams.get(str(event.id))
        if query is not None and query.lastProgress is not None:
            self._check(query.lastProgress)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        if event.exception is not None:
            self._alert(f"query {event.id} has failed: {event.exception.partition(chr(10))[0]}")

    def _check(self, progress: Any) -> None:
        query = str(progress.id)
        for source in progress.sources:
            metrics = source.metrics
            if "state" not in metrics:  # not a source of headwater
                continue
            known = self._known.setdefault((query, source.description), {})
            name = f"{source.description} of query {progress.name or query}"
            for metric in ("restarts", "badRows"):
                if int(metrics[metric]) > known.get(metric, 0):
                    self._alert(f"{name}: {metric} is {metrics[metric]}; {metrics.get('lastError', '')}")
                known[metric] = int(metrics[metric])
            if metrics["state"] != known.get("state") and metrics["state"] == "reconnecting":
                self._alert(f"{name} has lost its connection: {metrics['lastError']}")
            known["state"] = metrics["state"]
            last_row_at = metrics.get("lastRowAt", "no time")
            is_stale = datetime.now(timezone.utc) - self._last_row_at(query, metrics) > self._stale_after
            if is_stale and known.get("stale since") != last_row_at:
                known["stale since"] = last_row_at
                self._alert(f"{name} is stale: its last row arrived at {last_row_at}")

    def _last_row_at(self, query: str, metrics: dict[str, str]) -> datetime:
        """If no row has arrived since the start: the time of the start."""
        if "lastRowAt" in metrics:
            return datetime.fromisoformat(metrics["lastRowAt"].replace("Z", "+00:00"))
        return self._started.setdefault(query, datetime.now(timezone.utc))


@hw.source("n LONG")
def unreliable() -> Iterator[int]:
    """Some rows, then an error, and later silence."""
    yield from range(5)
    if time.time() % 2 < 1:
        raise ConnectionError("the server is gone")
    time.sleep(3600)


if __name__ == "__main__":
    spark = hw.session()
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1000")  # 10 seconds by default
    spark.streams.addListener(FeedAlerts(spark, print, stale_after=timedelta(seconds=5)))
    query = hw.stream(spark, unreliable(), on_error="restart").writeStream.format("noop").start()
    query.awaitTermination(20)
    query.stop()
