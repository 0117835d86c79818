"""`feeds`: what runs in this process for Spark, and how it fares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.runtime.partitions import PartitionStatus
from headwater.spark import attach as crossing

if TYPE_CHECKING:
    from headwater.runtime.feed import Feed
    from headwater.runtime.partitions import PartitionWatch

__all__ = ["FeedStatus", "PartitionStatus", "feeds"]


@dataclass(frozen=True)
class FeedStatus:
    """A feed as it was when `feeds()` was called."""

    source: str
    query: str
    """The query's name, or its id where it has none."""
    shard: int
    shards: int
    state: str
    """starting, running, paused, restarting, ended, failed or abandoned."""
    rows: int
    """Given to Spark's JVM so far; of a partitioned source, offsets that batches have taken."""
    waiting: int
    """Rows in the JVM's buffer that no batch has taken; shards of a feed share the buffer."""
    blocked: float
    """Seconds for which the buffer was full, and the feed held back."""
    restarts: int
    last_error: str | None
    bad_rows: int
    bad_row_samples: tuple[str, ...]
    cursor: Any
    """Where a resumable source would go on."""
    partitions: tuple[PartitionStatus, ...]
    """Of a partitioned source; none of others."""
    _feed: Feed | None = field(repr=False, compare=False)

    def pause(self) -> None:
        """Hold the feed back at its next row, until `resume`."""
        if self._feed is None:
            raise HeadwaterError(
                f"source '{self.source}' is partitioned: batches read it, and no feed is to be held back",
                "limit batches with maxRowsPerTrigger, or stop the query",
            )
        if self._feed.outlet is not None:
            self._feed.outlet.pause()

    def resume(self) -> None:
        """Let it go on."""
        if self._feed is not None and self._feed.outlet is not None:
            self._feed.outlet.resume()


def feeds() -> list[FeedStatus]:
    """The feeds of all queries on Python sources, and threads of stopped queries that could not be ended.

    What there is to tell of a partitioned source is in one of them, with its partitions.

    >>> import headwater as hw
    >>> from headwater.testing import ListSource, RunningStream
    >>> running = RunningStream(spark, ListSource([1, 2]))
    >>> rows = running.rows(2)
    >>> found = [(feed.source, feed.rows) for feed in hw.feeds() if feed.state == "running"]
    >>> running.stop()
    >>> print(found)
    [('list_source', 2)]
    """
    here = crossing.current()
    if here is None:
        return []
    driver, host = here
    running = host.feeds
    waiting = driver.status() if running else {}
    return [_any_status(feed, waiting) for feed in running]


def _any_status(feed: Feed | PartitionWatch, waiting: dict[str, dict[str, Any]]) -> FeedStatus:
    from headwater.runtime.feed import Feed

    name = feed.order.feed
    told = waiting.get(name) or waiting.get(name.rpartition(".")[0]) or {}
    return _status(feed, told) if isinstance(feed, Feed) else _status_of_watch(feed, told)


def _status(feed: Feed, buffer: dict[str, int]) -> FeedStatus:
    order, outlet = feed.order, feed.outlet
    return FeedStatus(
        source=order.name,
        query=order.query,
        shard=order.shard.index,
        shards=order.shard.count,
        state=feed.state,
        rows=outlet.rows if outlet else 0,
        waiting=buffer.get("waitingRows", 0),
        blocked=buffer.get("blockedMs", 0) / 1000,
        restarts=feed.restarts,
        last_error=feed.last_error,
        bad_rows=outlet.packing.bad_rows if outlet else 0,
        bad_row_samples=tuple(outlet.packing.samples) if outlet else (),
        cursor=outlet.cursor if outlet else None,
        partitions=(),
        _feed=feed,
    )


def _status_of_watch(watch: PartitionWatch, told: dict[str, Any]) -> FeedStatus:
    order, partitions = watch.order, watch.partitions
    offsets: dict[str, int] = told.get("offsets", {})
    starts = {found.text: found.start for found in partitions if found.start is not None}
    listed = tuple(found.status(offsets.get(found.text, found.start)) for found in partitions)
    return FeedStatus(
        source=order.name,
        query=order.query,
        shard=order.shard.index,
        shards=order.shard.count,
        state=watch.state,
        rows=sum(offsets[text] - start for text, start in starts.items() if text in offsets),
        waiting=told.get("waitingRows", 0),
        blocked=0.0,
        restarts=watch.errors,
        last_error=watch.last_error,
        bad_rows=told.get("badRows", 0),
        bad_row_samples=tuple(told.get("samples", ())),
        cursor=None,
        partitions=listed,
        _feed=None,
    )
