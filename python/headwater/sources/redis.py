"""Redis Streams: partitions that tasks read, or a consumer group that one feed reads and acknowledges."""

from __future__ import annotations

import base64
import itertools
import logging
import threading
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import headwater as hw
from headwater.backoff import Backoff

__all__ = ["redis", "redis_group"]

_LOG = logging.getLogger("headwater.sources.redis")
_SCHEMA = "stream STRING, id STRING, fields MAP<STRING, STRING>"
_EPOCH, _MILLISECOND = datetime.fromtimestamp(0, timezone.utc), timedelta(milliseconds=1)
_SEQ_BITS, _MAX_SEQ = 20, 2**20 - 1
_PAGE = 1000
_BLOCK_MILLIS = 500  # how long one command waits for entries
_TIMEOUT_SECONDS = 10
_MAX_UNACKED = 10_000  # ids in a cursor
_RECONNECTS = Backoff(first=0.2, cap=30.0)

_Entry = tuple[str, str, Any]
"""A stream, an id, and the fields; None if the entry was deleted."""


class Redis(
    hw.PartitionedSource,
    name="redis",
    identity=("match",),
    schemes=("rediss", "redis"),
):
    """Entries of all streams whose keys match a pattern. A stream is a partition, read by a task. Redis 7.

    `url` is `redis://`, `rediss://` or `unix://`, with user and password. Ids are offsets: the time has all
    but 20 bits, the number within a millisecond the other 20, so it may be up to 1,048,575. Trim a stream
    only up to the last entry that was read, and keep that entry: Redis does not tell which id it has trimmed
    last. A field that is not UTF-8 makes a bad row.

    >>> print(redis("redis://:abc@localhost:6379/0", match="orders:*"))
    redis(url=***, match='orders:*')
    """

    @property
    def schema(self) -> str:
        """Not of the class, whose schema PySpark would parse at the import."""
        return _SCHEMA

    def __init__(self, url: hw.Secret, match: str = "*") -> None:
        self._match = match
        self._redis = _client("redis", url)

    def partitions(self) -> set[str]:
        return set(self._redis.scan_iter(match=self._match, count=_PAGE, _type="stream"))

    def earliest(self, p: str) -> int:
        """0 while nothing was ever removed."""
        stream = self._redis.xinfo_stream(p)
        if stream["entries-added"] == stream["length"]:
            return 0
        return _offset_of(stream["first-entry"][0]) if stream["length"] else self.latest(p)

    def latest(self, p: str) -> int:
        return _offset_of(self._redis.xinfo_stream(p)["last-generated-id"]) + 1

    def at(self, p: str, timestamp: datetime) -> int:
        return min(-((_EPOCH - timestamp) // _MILLISECOND) << _SEQ_BITS, self.latest(p))

    def after(self, p: str, start: int, rows: int) -> int:
        end = self.latest(p)
        for offset, *_ in itertools.islice(self._entries(p, start, end), rows):
            end = offset + 1
        return end

    def read(self, p: str, start: int, end: int) -> Iterator[tuple[str, str, dict[str, str]]]:
        """The entries of a stream, as `stream, id, fields`."""
        for _, id, fields in self._entries(p, start, end):
            yield p, id, fields

    def close(self) -> None:
        self._redis.close()

    def _entries(self, p: str, start: int, end: int) -> Iterator[tuple[int, str, dict[str, str]]]:
        first = _id_of(start)
        while page := self._redis.xrange(p, first, f"({_id_of(end)}", count=_PAGE):  # ( leaves it out
            for id, fields in page:
                yield _offset_of(id), id, fields
            first = f"({id}"


class RedisGroup(hw.Source, name="redis_group", identity=("group",)):
    """Entries that a consumer group hands to one of its consumers. XACK is sent when they are durable.

    `streams` are the keys. A group that does not exist is created, and begins with the first entry.
    `consumer` is the name of this one; with `concurrency` each feed adds its number to it. At a start, and
    whenever Redis was gone, entries come first that this consumer was given and that are not acknowledged,
    without those that are in the log already. Entries of a consumer that never comes back can be claimed for
    this one with XCLAIM; they come with its next start.

    >>> print(redis_group("redis://localhost", streams=["orders"], group="spark"))
    redis_group(url=***, streams=['orders'], group='spark')
    """

    @property
    def schema(self) -> str:
        """The columns of `redis`."""
        return _SCHEMA

    def __init__(self, url: hw.Secret, streams: list[str], group: str, consumer: str = "headwater") -> None:
        if not streams or not all(streams):
            raise ValueError(f"option 'streams' is {streams!r}, it must have the key of at least one stream")
        for name, value in (("group", group), ("consumer", consumer)):
            if not value:
                raise ValueError(f"option {name!r} is empty, it must be a name")
        self._streams, self._group, self._consumer = list(dict.fromkeys(streams)), group, consumer
        self._redis, self._ack_redis = _client("redis_group", url), _client("redis_group", url)
        self._closed = threading.Event()
        self._unacked = _Unacked(None)

    def read(self, since: Any) -> Iterator[Any]:
        """Yields entries, with those that are not acknowledged yet as cursor. Never ends."""
        from redis.exceptions import AuthenticationError, ConnectionError, TimeoutError

        shard = hw.shard()
        if shard.count > 1:
            self._consumer = f"{self._consumer}-{shard.index}"
        self._unacked = unacked = _Unacked(since)
        failures, is_created = 0, False
        while not self._closed.is_set():
            try:
                if not is_created:
                    self._create_groups(unacked.streams)
                    is_created = True
                hw.report_connection(True)
                for entries in self._entries():
                    failures = 0
                    if entries:
                        cursor = unacked.add(entries)
                        yield hw.At(cursor, entries)
                    else:
                        yield hw.CAUGHT_UP
                    if self._closed.is_set():
                        return
            except AuthenticationError:
                raise
            except (ConnectionError, TimeoutError) as error:
                if self._closed.is_set():
                    return
                failures += 1
                hw.report_connection(False, error)
                seconds = _RECONNECTS.delay(failures)
                _LOG.warning("Redis is gone: %s; retrying in %.1f s", error, seconds)
                self._closed.wait(seconds)

    def ack(self, cursor: Any) -> None:
        """Sends XACK for all entries up to this cursor."""
        self._unacked.mark_durable(cursor)
        self._send_acks(self._ack_redis)

    def close(self) -> None:
        self._closed.set()  # no command waits for long, as none can be ended from another thread

    def on_stop(self) -> None:
        self._redis.close()

    def _create_groups(self, known: list[str]) -> None:
        from redis.exceptions import ResponseError

        for stream in self._streams:
            try:
                self._redis.xgroup_create(stream, self._group, id="0", mkstream=True)
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise
            else:
                if stream in known:
                    self._redis.xgroup_destroy(stream, self._group)
                    raise hw.HeadwaterError(
                        f"the consumer group {self._group!r} of stream {stream!r} is gone",
                        f"create it where it shall go on: XGROUP CREATE {stream} {self._group} ID MKSTREAM",
                    )

    def _entries(self) -> Iterator[list[_Entry]]:
        """Pending entries that were not yielded yet, and then new ones. An empty list if there are none."""
        for stream in self._streams:
            start = "0"
            while pending := self._read({stream: start}):
                start = pending[-1][1]
                yield from self._unseen(pending)
        while not self._closed.is_set():
            self._send_acks(self._redis)  # of which an attempt has failed
            yield self._read(dict.fromkeys(self._streams, ">"))

    def _read(self, starts: dict[str, str]) -> list[_Entry]:
        replies = self._redis.xreadgroup(
            self._group, self._consumer, starts, count=_PAGE, block=_BLOCK_MILLIS
        )
        return [(stream, id, fields) for stream, entries in replies for id, fields in entries]

    def _unseen(self, pending: list[_Entry]) -> Iterator[list[_Entry]]:
        """Without those that are on their way or in the log, and those that were deleted from the stream."""
        deleted = [entry for entry in pending if not entry[2]]
        for stream, id, _ in deleted:
            _LOG.warning("entry %s of stream %s was deleted before it was read", id, stream)
            self._redis.xack(stream, self._group, id)
        if entries := [entry for entry in pending if entry[2] and entry[:2] not in self._unacked]:
            yield entries

    def _send_acks(self, client: Any) -> None:
        from redis.exceptions import ConnectionError, TimeoutError

        for stream, ids in self._unacked.durable().items():
            for first in range(0, len(ids), _PAGE):
                page = ids[first : first + _PAGE]
                try:
                    client.xack(stream, self._group, *page)
                except (ConnectionError, TimeoutError) as error:
                    _LOG.warning("XACK fails: %s; it is sent again later", error)
                    return
                self._unacked.remove(stream, page)


class _Unacked:
    """Entries that were yielded and are not acknowledged: those that a cursor has.

    Entries that are both pending in Redis and in the log are then known after a crash. A number says up to
    which entries a cursor goes. So that cursors stay small, one has the newest 10,000 ids.
    """

    def __init__(self, cursor: Any) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._numbers: dict[tuple[str, str], int] = {}
        self._durable_number = 0
        self.streams: list[str] = []
        if cursor is None:
            return
        try:
            if cursor["version"] != 1:
                raise ValueError
            self._number = self._durable_number = int(cursor["number"])
            for stream, packed in cursor["unacked"].items():
                ids = zlib.decompress(base64.b64decode(packed, validate=True)).decode().split()
                self._numbers.update(dict.fromkeys(((stream, id) for id in ids), self._number))
            self.streams = list(cursor["unacked"])
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error):
            raise ValueError(
                f"the cursor {str(cursor)[:200]} is not one of source 'redis_group': use one that it wrote"
            ) from None

    def add(self, entries: list[_Entry]) -> dict[str, Any]:
        """The cursor after these entries."""
        with self._lock:
            self._number += 1
            self._numbers.update(((stream, id), self._number) for stream, id, _ in entries)
            ids: dict[str, list[str]] = {stream: [] for stream in self.streams}
            for stream, id in itertools.islice(reversed(self._numbers), _MAX_UNACKED):
                ids.setdefault(stream, []).append(id)
            self.streams = list(ids)
            packed = {
                stream: zlib.compress(" ".join(of_stream).encode(), 1) for stream, of_stream in ids.items()
            }
            unacked = {stream: base64.b64encode(data).decode() for stream, data in packed.items()}
            return {"version": 1, "number": self._number, "unacked": unacked}

    def mark_durable(self, cursor: Any) -> None:
        with self._lock:
            self._durable_number = max(self._durable_number, cursor["number"])

    def durable(self) -> dict[str, list[str]]:
        """The ids to acknowledge, by stream."""
        with self._lock:
            ids: dict[str, list[str]] = {}
            for (stream, id), number in self._numbers.items():
                if number > self._durable_number:
                    break  # they are in the order of their numbers
                ids.setdefault(stream, []).append(id)
            return ids

    def remove(self, stream: str, ids: list[str]) -> None:
        with self._lock:
            for id in ids:
                self._numbers.pop((stream, id), None)

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return key in self._numbers


def _client(source: str, url: hw.Secret) -> Any:
    try:
        import redis as library
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        raise hw.HeadwaterError(
            f"source '{source}' needs redis: pip install headwater[redis]", "install it where the driver runs"
        ) from None
    try:
        return library.Redis.from_url(
            url.reveal(),
            protocol=2,
            decode_responses=True,
            encoding_errors="surrogateescape",  # such a string makes a bad row
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),  # a second XREADGROUP would skip the entries of a lost response
        )
    except ValueError as error:
        raise ValueError(f"option 'url' of source '{source}' is not a URL of Redis: {error}") from None


def _offset_of(id: str) -> int:
    """Of `1717156800000-7`, a time in milliseconds and a number within it."""
    ms, seq = map(int, id.split("-"))
    if seq >> _SEQ_BITS:
        raise ValueError(f"the second part of the id {id} is too large: an offset has room for {_MAX_SEQ}")
    return ms << _SEQ_BITS | seq


def _id_of(offset: int) -> str:
    return f"{offset >> _SEQ_BITS}-{offset & _MAX_SEQ}"


redis = Redis
redis_group = RedisGroup
