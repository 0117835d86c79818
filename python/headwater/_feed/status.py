"""`feeds`: what runs in this process for Spark, and how it fares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater._spark import crossing

if TYPE_CHECKING:
    from headwater._feed.feed import Feed

__all__ = ["FeedStatus", "feeds"]


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
    """Given to Spark's JVM so far."""
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
    _feed: Feed = field(repr=False, compare=False)

    def pause(self) -> None:
        """Hold the feed back at its next row, until `resume`."""
        if self._feed.outlet is not None:
            self._feed.outlet.pause()

    def resume(self) -> None:
        if self._feed.outlet is not None:
            self._feed.outlet.resume()


def feeds() -> list[FeedStatus]:
    """The feeds of all queries on Python sources, and threads of stopped queries that could not be ended.

    >>> for feed in feeds():
    ...     print(feed.source, feed.state, feed.rows)
    """
    here = crossing.current()
    if here is None:
        return []
    driver, host = here
    running = host.feeds
    waiting = driver.status() if running else {}
    return [_status(feed, waiting.get(feed.order.feed.rpartition(".")[0], {})) for feed in running]


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
        _feed=feed,
    )
