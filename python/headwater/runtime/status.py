"""The status of a feed, as `hw.feeds()` returns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from headwater.errors import HeadwaterError
from headwater.reading import PartitionKey
from headwater.runtime.feed import Feed
from headwater.runtime.partitions import Partition, PartitionWatch

__all__ = ["FeedStatus", "PartitionStatus", "status_of"]


@dataclass(frozen=True)
class PartitionStatus:
    """A partition as it was when `feeds()` was called."""

    name: PartitionKey
    offset: int | None
    """The next offset that the query reads."""
    latest: int | None
    """One past the last offset of the partition."""
    lag: int | None
    errors: int
    """Calls about it that have failed so far."""
    last_error: str | None


@dataclass(frozen=True)
class FeedStatus:
    """A feed as it was when `feeds()` was called."""

    source: str
    query: str
    """The query's name, or its id if it has no name."""
    shard: int
    shards: int
    state: str
    """starting, running, paused, reconnecting, restarting, ended, failed or abandoned.

    `reconnecting`: the source has lost its connection and tries again by itself, as HTTP sources do.
    """
    rows: int
    """Rows sent to Spark's JVM so far; for a partitioned source, offsets that batches have read."""
    waiting: int
    """Rows in the JVM's buffer that no batch has taken yet. The shards of a source share one buffer."""
    lag: float | None
    """Seconds for which the oldest of these rows has waited; None for a partitioned source, whose partitions
    have a lag in offsets."""
    blocked: float
    """Seconds for which the buffer was full and the feed was held back."""
    rows_per_second: float
    """Average of the last ten seconds, of all shards; of a partitioned source, how fast its offsets grow."""
    bytes_per_second: float | None
    """The same in bytes; None for a partitioned source."""
    last_row_at: datetime | None
    """When the last row arrived since this start, from any shard."""
    restarts: int
    """For a partitioned source, calls that have failed."""
    last_error: str | None
    last_error_at: datetime | None
    bad_rows: int
    bad_row_samples: tuple[str, ...]
    cursor: Any
    """Where a resumable source would resume."""
    partitions: tuple[PartitionStatus, ...]
    """Of a partitioned source; empty for others."""
    _feed: Feed | None = field(repr=False, compare=False)

    def pause(self) -> None:
        """Hold the feed back at its next row, until `resume`."""
        if self._feed is None:
            raise HeadwaterError(
                f"source '{self.source}' is partitioned: it has no feed that can be paused, because batches "
                "read it",
                "limit batches with maxRowsPerTrigger, or stop the query",
            )
        self._feed.pause()

    def resume(self) -> None:
        """Let a paused feed continue."""
        if self._feed is not None:
            self._feed.resume()


def status_of(feed: Feed | PartitionWatch, jvm_status: dict[str, dict[str, Any]]) -> FeedStatus:
    """`jvm_status` is what the JVM knows, by the id of a feed; shards have one entry in common."""
    feed_id = feed.request.feed
    known = jvm_status.get(feed_id) or jvm_status.get(feed_id.rpartition(".")[0]) or {}
    return _status_of_feed(feed, known) if isinstance(feed, Feed) else _status_of_watch(feed, known)


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)


def _last_row_at(known: dict[str, Any]) -> datetime | None:
    return _time(known["lastRowAt"] / 1000 if "lastRowAt" in known else None)


def _status_of_feed(feed: Feed, known: dict[str, Any]) -> FeedStatus:
    request, sender = feed.request, feed.sender
    return FeedStatus(
        source=request.name,
        query=request.query,
        shard=request.shard.index,
        shards=request.shard.count,
        state=feed.state,
        rows=sender.rows if sender else 0,
        waiting=known.get("waitingRows", 0),
        lag=known.get("lagMs", 0) / 1000,
        blocked=known.get("blockedMs", 0) / 1000,
        rows_per_second=known.get("rowsPerSecond", 0.0),
        bytes_per_second=known.get("bytesPerSecond", 0.0),
        last_row_at=_last_row_at(known),
        restarts=feed.restarts,
        last_error=feed.last_error,
        last_error_at=_time(feed.last_error_at),
        bad_rows=sender.encoder.bad_rows if sender else 0,
        bad_row_samples=tuple(sender.encoder.samples) if sender else (),
        cursor=sender.cursor if sender else None,
        partitions=(),
        _feed=feed,
    )


def _status_of_watch(watch: PartitionWatch, known: dict[str, Any]) -> FeedStatus:
    request, partitions = watch.request, watch.partitions
    offsets: dict[str, int] = known.get("offsets", {})
    starts = {partition.text: partition.start for partition in partitions if partition.start is not None}
    return FeedStatus(
        source=request.name,
        query=request.query,
        shard=request.shard.index,
        shards=request.shard.count,
        state=watch.state,
        rows=sum(offsets[text] - start for text, start in starts.items() if text in offsets),
        waiting=known.get("waitingRows", 0),
        lag=None,
        blocked=0.0,
        rows_per_second=known.get("rowsPerSecond", 0.0),
        bytes_per_second=None,
        last_row_at=_last_row_at(known),
        restarts=watch.errors,
        last_error=watch.last_error,
        last_error_at=_time(watch.last_error_at),
        bad_rows=known.get("badRows", 0),
        bad_row_samples=tuple(known.get("samples", ())),
        cursor=None,
        partitions=tuple(
            _status_of_partition(partition, offsets.get(partition.text, partition.start))
            for partition in partitions
        ),
        _feed=None,
    )


def _status_of_partition(partition: Partition, offset: int | None) -> PartitionStatus:
    latest, failure = partition.latest, partition.failure
    lag = None if offset is None or latest is None else max(0, latest - offset)
    return PartitionStatus(partition.name, offset, latest, lag, failure.errors, failure.last_error)
