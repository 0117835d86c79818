"""What is measured, and the bars. A new case is one entry in one of the tuples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bars import ArrivesWithin, AtLeast, Bar, Flat, IdleAtMost, NoLaterThan, PlansWithin, StartsWithin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Load = Callable[[SparkSession, int], DataFrame]
    LoadFrom = Callable[[SparkSession, str], DataFrame]

__all__ = [
    "BARS",
    "BUFFER_BYTES",
    "CASES",
    "IDLE_TOGETHER",
    "OURS",
    "Case",
    "MessageCase",
    "RedisCase",
    "WebCase",
    "WebhookCase",
]

BUFFER_BYTES = 64 << 20
"""For the cases of memory: the default of the option."""

LOG: dict[str, str | int] = {"durability": "log", "max_bytes_per_trigger": BUFFER_BYTES}
"""Batches as large as those from memory."""

AT_ONCE: dict[str, str | int] = {"linger": "0ms"}
"""A row waits for no other."""

API_ROWS = 3_200_000
"""As many rows in a batch as python_arrow has with its buffer of 64 MiB."""

EVEN_ROWS = 512 * 8192
"""For many partitions: an Arrow batch for each of 512, and more for each of fewer."""

STARTUP_ROWS = 46_000_000
"""As Arrow batches they weigh a gigabyte."""

EVEN: dict[str, str | int] = {"max_rows_per_trigger": EVEN_ROWS}

IDLE_TOGETHER = 3
"""Cases that two cores have room for, with a row per second each."""

OURS = ("random_alpha", "python_arrow", "python_tuples", "python_log", "partitioned")
"""The cases that are headwater's; the others are their peers."""


@dataclass(frozen=True)
class Case:
    """A stream to measure.

    `load` makes it. A source that makes only as much as it is asked for has `asks`, rows per second to begin
    with; `load` then gets what to ask for. Otherwise that is 0 and means nothing.
    """

    name: str
    load: Load
    asks: int = 0


@dataclass(frozen=True)
class WebCase:
    """Records of a server, at `path` there.

    `load` reads them in Spark. Without it their lines are counted, in a loop over requests' `iter_lines`,
    which reads 512 bytes at a time unless it is told otherwise.
    """

    name: str
    path: str
    load: LoadFrom | None = None
    chunk_bytes: int = 512


@dataclass(frozen=True)
class WebhookCase:
    """Requests to a server: the source `webhook` in a query, or a server that only answers."""

    name: str
    is_durable: bool


@dataclass(frozen=True)
class MessageCase:
    """Messages of a server, `mqtt` or `websocket`. `load` reads them in Spark; without it a loop counts."""

    name: str
    path: str
    load: LoadFrom | None = None


@dataclass(frozen=True)
class RedisCase:
    """Messages of 100 bytes in a stream of Redis. `load` reads them in Spark; without it they are counted."""

    name: str
    load: LoadFrom | None = None


def stream(format: str, **options: str | int) -> Load:
    return lambda spark, _: spark.readStream.format(format).options(**options).load()


def feed(name: str, settings: dict[str, str | int] | None = None, **options: int) -> Load:
    """A source of feeds.py, in memory; or in the log, and then in batches of what the buffer would hold."""

    def load(spark: SparkSession, _: int) -> DataFrame:
        import feeds

        import headwater as hw

        source = getattr(feeds, name)(**options)
        return hw.stream(spark, source, **(settings or {"durability": "memory"}))

    return load


def api(format: str, **options: int) -> Load:
    """A format of Spark's Python Data Source API, of peers.py."""

    def load(spark: SparkSession, asked: int) -> DataFrame:
        from peers import FORMATS

        for known in FORMATS:
            spark.dataSource.register(known)
        return stream(format, **options)(spark, asked)

    return load


def partitioned(count: int, settings: dict[str, str | int] | None = None) -> Load:
    """The partitioned source of feeds.py; batches are as large as those of the API beside it."""

    def load(spark: SparkSession, _: int) -> DataFrame:
        import feeds

        import headwater as hw

        source = feeds.Partitioned(count=count)
        return hw.stream(spark, source, **(settings or {"max_rows_per_trigger": API_ROWS}))

    return load


def paced_partition(count: int = 1 << 60) -> Load:
    """A partition of feeds.py with a row per second, until it has so many."""

    def load(spark: SparkSession, _: int) -> DataFrame:
        import feeds

        import headwater as hw

        return hw.stream(spark, feeds.PacedPartition(count=count), on_error="fail")

    return load


def from_web(name: str, settings: dict[str, str] | None = None, **options: str) -> LoadFrom:
    """A built-in source, as it is by default: in the log."""

    def load(spark: SparkSession, url: str) -> DataFrame:
        import headwater as hw
        from headwater import sources

        return hw.stream(spark, getattr(sources, name)(url=url, **options), **(settings or {}))

    return load


def redis_streams() -> LoadFrom:
    """The source `redis`: the stream is one partition."""

    def load(spark: SparkSession, url: str) -> DataFrame:
        import headwater as hw
        from headwater import sources

        return hw.stream(spark, sources.redis(url), max_rows_per_trigger=50_000)

    return load


def redis_group() -> LoadFrom:
    """The source `redis_group`, in the log. Each query has a group of its own, so it reads all messages."""

    def load(spark: SparkSession, url: str) -> DataFrame:
        import uuid

        import headwater as hw
        from headwater import sources

        return hw.stream(spark, sources.redis_group(url, ["messages"], uuid.uuid4().hex))

    return load


def api_redis(rows: int) -> LoadFrom:
    """A format of Spark's Python Data Source API, of redis_peers.py."""

    def load(spark: SparkSession, url: str) -> DataFrame:
        from redis_peers import FORMATS

        for known in FORMATS:
            spark.dataSource.register(known)
        return stream("api_redis", url=url, rows=rows)(spark, 0)

    return load


def api_from_web(format: str, rows: int) -> LoadFrom:
    """A format of Spark's Python Data Source API, of web_peers.py."""

    def load(spark: SparkSession, url: str) -> DataFrame:
        from web_peers import FORMATS

        for known in FORMATS:
            spark.dataSource.register(known)
        return stream(format, url=url, rows=rows)(spark, 0)

    return load


def topics(spark: SparkSession, url: str) -> DataFrame:
    import headwater as hw
    from headwater.sources import mqtt

    return hw.stream(spark, mqtt(url, topics=["bench/messages"], client_id="bench"))


def rate(spark: SparkSession, rows_per_second: int) -> DataFrame:
    return spark.readStream.format("rate").option("rowsPerSecond", rows_per_second).load()


def socket(spark: SparkSession, rows_per_second: int) -> DataFrame:
    from peers import serve_lines

    port = serve_lines(rows_per_second)
    return stream("socket", host="127.0.0.1", port=port, includeTimestamp="true")(spark, rows_per_second)


CASES: dict[str, tuple[Case | WebCase | WebhookCase | MessageCase | RedisCase, ...]] = {
    # As fast as it can, into a sink that costs nothing.
    "throughput": (
        Case("random_alpha", stream("random_alpha", len=9, rowsPerSecond=0)),
        Case("rate", rate, asks=8_000_000),
        Case("original_alpha", stream("original_alpha", len=9, sleepMs=0)),
        Case("python_arrow", feed("python_arrow")),
        Case("python_log", feed("python_arrow", LOG)),
        Case("python_tuples", feed("python_tuples")),
        Case("partitioned", partitioned(2)),
        Case("api_arrow", api("api_arrow", rows=API_ROWS)),
        # Larger ones take seconds each.
        Case("api_tuples", api("api_tuples", rows=2_500_000)),
        # From 250,000 on the fixed cost of a batch is small; at 100,000 it shows.
        Case("api_simple", api("api_simple", rows=250_000)),
        # Asked for little: it has no limit, and its tasks walk a list from the head for each row. Sent 40,000
        # lines per second in a cold JVM it fell behind, and made 7,000; sent 1,000,000 it filled the heap.
        Case("socket", socket, asks=20_000),
    ),
    # Records of 900 bytes over HTTP, as fast as they can be read.
    "web": (
        WebCase("ndjson", "ndjson", from_web("ndjson", cursor="id", resume="query:since")),
        WebCase(
            "ndjson_memory",
            "ndjson",
            from_web("ndjson", {"durability": "memory"}, cursor="id", resume="query:since"),
        ),
        WebCase(
            "ndjson_json",
            "ndjson",
            from_web(
                "ndjson", cursor="id", resume="query:since", decode="json", schema="text STRING, id LONG"
            ),
        ),
        WebCase("ndjson_lines", "ndjson"),
        WebCase("ndjson_64k", "ndjson", chunk_bytes=65_536),
        WebCase("api_ndjson", "ndjson", api_from_web("api_ndjson", rows=20_000)),
        WebCase("sse", "sse", from_web("sse")),
        WebCase("sse_memory", "sse", from_web("sse", {"durability": "memory"})),
        WebCase("sse_lines", "sse"),
        WebCase("sse_64k", "sse", chunk_bytes=65_536),
        WebCase("api_sse", "sse", api_from_web("api_sse", rows=20_000)),
    ),
    # Requests of 64 clients at a time.
    "webhook": (WebhookCase("webhook", is_durable=True), WebhookCase("answers_only", is_durable=False)),
    # Messages of 900 bytes that wait at a server, and a loop over its client that only counts them.
    "messages": (
        MessageCase("mqtt", "mqtt", topics),
        MessageCase("mqtt_loop", "mqtt"),
        MessageCase("websocket", "websocket", from_web("websocket", cursor="id", resume="query:since")),
        MessageCase("websocket_loop", "websocket"),
    ),
    # Messages of 100 bytes from a stream of Redis, as fast as they can be read.
    "redis": (
        RedisCase("redis_group", redis_group()),
        RedisCase("redis", redis_streams()),
        RedisCase("redis_loop"),
        RedisCase("api_redis", api_redis(rows=20_000)),
    ),
    # The same rows from more and more partitions, in batches of the same size.
    "partitions": (
        *(Case(f"partitioned_{count}", partitioned(count, EVEN)) for count in (1, 2, 8, 64, 512)),
        Case("api_2", api("api_arrow", rows=EVEN_ROWS, partitions=2)),
        Case("api_64", api("api_arrow", rows=EVEN_ROWS, partitions=64)),
        Case("api_512", api("api_arrow", rows=EVEN_ROWS, partitions=512)),
    ),
    # 50 rows per second, from when they are due to `foreachBatch`.
    "delay": (
        Case("python_tuples", feed("python_paced", rows_per_second=50)),
        Case("python_log", feed("python_paced", LOG, rows_per_second=50)),
        Case("api_simple", api("api_paced", rowsPerSecond=50)),
    ),
    # 200 rows per second, from when they are due to a function in the driver.
    "real_time": (
        Case(
            "real_time_memory", feed("python_paced", AT_ONCE | {"durability": "memory"}, rows_per_second=200)
        ),
        Case("real_time_log", feed("python_paced", AT_ONCE | {"durability": "log"}, rows_per_second=200)),
    ),
    # One row per second. So many run at a time, in this order: those that a bar compares.
    "idle": (
        Case("random_alpha", stream("random_alpha", len=9, rowsPerSecond=1)),
        Case("python_tuples", feed("python_paced", rows_per_second=1)),
        Case("rate", stream("rate", rowsPerSecond=1)),
        Case("partitioned", paced_partition()),
        Case("api_partition", api("api_partition")),
    ),
    # Two rows, and then none.
    "still": (
        Case("partitioned", paced_partition(count=2)),
        Case("api_partition", api("api_partition", count=2)),
    ),
    # On a checkpoint in whose log so many rows wait that they weigh a gigabyte.
    "startup": (
        Case("python_log", feed("python_some", LOG | {"max_rows_per_trigger": 1000}, count=STARTUP_ROWS)),
    ),
    # As fast as it can, into a sink that is ten times too slow.
    "memory": (
        Case("random_alpha", stream("random_alpha", len=9, rowsPerSecond=0, bufferBytes=BUFFER_BYTES)),
        Case("python_arrow", feed("python_arrow", {"durability": "memory", "buffer_bytes": BUFFER_BYTES})),
    ),
}

BARS: tuple[Bar, ...] = (
    AtLeast("random_alpha", 0.25, "rate"),
    AtLeast("random_alpha", 3, "original_alpha"),
    AtLeast("python_arrow", 2, "api_arrow"),
    AtLeast("python_arrow", 20, "api_simple"),
    AtLeast("python_tuples", 5, "api_simple"),
    AtLeast("python_log", 0.5, "python_arrow"),
    AtLeast("python_log", 1.2, "api_arrow"),
    AtLeast("partitioned", 1.5, "api_arrow"),
    PlansWithin("partitioned_512", 100),
    AtLeast("ndjson", 0.5, "ndjson_lines", kind="web"),
    AtLeast("sse", 0.5, "sse_lines", kind="web"),
    AtLeast("ndjson", 1, "api_ndjson", kind="web"),
    AtLeast("sse", 1, "api_sse", kind="web"),
    AtLeast("webhook", 0.5, "answers_only", kind="webhook"),
    AtLeast("mqtt", 0.5, "mqtt_loop", kind="messages"),
    AtLeast("websocket", 0.5, "websocket_loop", kind="messages"),
    AtLeast("redis_group", 0.5, "redis_loop", kind="redis"),
    AtLeast("redis_group", 1, "api_redis", kind="redis"),
    NoLaterThan("python_tuples", "api_simple"),
    ArrivesWithin("real_time_memory", 2, 25),
    ArrivesWithin("real_time_log", 5, 25),
    IdleAtMost("random_alpha", 3, "rate"),
    IdleAtMost("python_tuples", 3, "rate"),
    IdleAtMost("partitioned", 3, "api_partition"),
    IdleAtMost("partitioned", 0, "api_partition", kind="still"),
    StartsWithin("python_log", 10, 64),
    Flat("random_alpha", 10),
    Flat("python_arrow", 10),
)
