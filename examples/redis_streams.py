"""Redis Streams, sharded over keys and read in parallel: a key is a partition, and ids are its offsets.

    pip install redis
    python examples/redis_streams.py [redis://:password@host:6379/0]

A producer in this file adds entries to three streams, and begins a fourth one later. A query reads what there
is by then; started again, it goes on with the rest. Without a URL it has a Redis of its own, which needs
`redis-server`, 7 or newer, on the PATH. In the end the rows are compared with the entries: the exit status
is 1 if they differ.
"""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

import redis
from pyspark.sql import SparkSession

import headwater as hw

SCHEMA = "key STRING, id STRING, fields MAP<STRING, STRING>"
EPOCH, MILLISECOND = datetime.fromtimestamp(0, timezone.utc), timedelta(milliseconds=1)
SEQ_BITS, MAX_SEQ, PAGE = 20, 2**20 - 1, 1000
ENTRIES, PER_BATCH = 2000, 5000


class RedisStreams(hw.PartitionedSource, name="redis_streams", schema=SCHEMA, identity=("match",)):
    """Entries of all streams whose keys match a pattern, with texts in them. Redis 7 or newer.

    Redis does not tell the id of the last entry that XTRIM has removed. So trim behind the last entry that
    was read, and keep that one: else it looks as if rows were lost. And a key that is deleted and made again
    between two looks is taken for the old one.
    """

    def __init__(self, url: hw.Secret, match: str = "*") -> None:
        self._match = match
        self._redis = redis.Redis.from_url(
            url.reveal(), decode_responses=True, socket_timeout=10, socket_connect_timeout=10
        )

    def partitions(self) -> set[str]:
        return set(self._redis.scan_iter(match=self._match, count=PAGE, _type="stream"))

    def earliest(self, p: str) -> int:
        """0 while nothing was ever removed."""
        stream = self._redis.xinfo_stream(p)
        if stream["entries-added"] == stream["length"]:
            return 0
        return offset_of(stream["first-entry"][0]) if stream["length"] else self.latest(p)

    def latest(self, p: str) -> int:
        return offset_of(self._redis.xinfo_stream(p)["last-generated-id"]) + 1

    def at(self, p: str, timestamp: datetime) -> int:
        return min(-((EPOCH - timestamp) // MILLISECOND) << SEQ_BITS, self.latest(p))

    def after(self, p: str, start: int, rows: int) -> int:
        end = self.latest(p)
        for offset, *_ in itertools.islice(self._entries(p, start, end), rows):
            end = offset + 1
        return end

    def read(self, p: str, start: int, end: int) -> Iterator[tuple[str, str, dict[str, str]]]:
        for _, id, fields in self._entries(p, start, end):
            yield p, id, fields

    def close(self) -> None:
        self._redis.close()

    def _entries(self, p: str, start: int, end: int) -> Iterator[tuple[int, str, dict[str, str]]]:
        first = id_of(start)
        while page := self._redis.xrange(p, first, f"({id_of(end)}", count=PAGE):  # ( leaves it out
            for id, fields in page:
                yield offset_of(id), id, fields
            first = f"({id}"


def offset_of(id: str) -> int:
    """Of `1717156800000-7`, a time in milliseconds and a number within it."""
    ms, seq = map(int, id.split("-"))
    if seq >> SEQ_BITS:
        raise ValueError(f"the second part of the id {id} is too large: an offset has room for {MAX_SEQ}")
    return ms << SEQ_BITS | seq


def id_of(offset: int) -> str:
    return f"{offset >> SEQ_BITS}-{offset & MAX_SEQ}"


def produce(url: str, keys: list[str], start: int, end: int) -> None:
    with redis.Redis.from_url(url) as connection:
        for n in range(start, end):
            for key in keys:
                connection.xadd(key, {"n": n, "word": f"{n:x}"})


def run(spark: SparkSession, url: str, match: str, folder: str) -> list[int]:
    """Read what there is by now, behind what the run before has read. Gives the entries of each batch."""
    source = RedisStreams(url=hw.Secret(url), match=match)
    stream = hw.stream(spark, source, max_rows_per_trigger=PER_BATCH, on_error="restart")
    writer = stream.writeStream.format("parquet").option("path", f"{folder}/rows")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()  # raises what the query fails with
    batches = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    print(f"{sum(batches)} entries in {len(batches)} batches, of {source}", flush=True)
    return batches


def check(url: str) -> int:
    """Streams of its own are made for it, and deleted."""
    builder = SparkSession.builder.master("local[2]").appName("Redis Streams")
    spark = hw.session(builder.config("spark.ui.showConsoleProgress", "false"))
    prefix = f"readings-{uuid.uuid4().hex}"
    keys = [f"{prefix}:{n}" for n in range(4)]
    with tempfile.TemporaryDirectory(prefix="headwater-redis-") as folder, redis.Redis.from_url(url) as own:
        try:
            produce(url, keys[:3], 0, 1500)
            meanwhile = threading.Thread(target=produce, args=(url, keys[:3], 1500, 1900))
            meanwhile.start()
            batches = run(spark, url, f"{prefix}:*", folder)
            meanwhile.join()
            produce(url, keys[:3], 1900, ENTRIES)
            produce(url, keys[3:], 0, ENTRIES)
            batches += run(spark, url, f"{prefix}:*", folder)
        finally:
            own.delete(*keys)
        table = spark.read.parquet(f"{folder}/rows").selectExpr("key", "INT(fields.n) AS n")
        rows = [tuple(row) for row in table.orderBy("key", "n").collect()]
        spark.stop()
    expected = [(key, n) for key in keys for n in range(ENTRIES)]
    print(f"{len(rows)} rows for {len(expected)} entries, and {max(batches)} at most in a batch")
    return int(rows != expected or max(batches) > PER_BATCH)


@contextmanager
def own_redis() -> Iterator[str]:
    """Of this machine only, and nothing of it is on a disk."""
    program = shutil.which("redis-server")
    if program is None:
        sys.exit("there is no redis-server on the PATH: install it, or give the URL of another Redis")
    with tempfile.TemporaryDirectory(prefix="headwater-redis-") as folder:
        path = f"{folder}/redis.sock"
        command = [program, "--port", "0", "--unixsocket", path, "--dir", folder, "--save", ""]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not os.path.exists(path) and server.poll() is None:
                time.sleep(0.05)
            yield f"unix://{path}"
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(check(sys.argv[1]))
    with own_redis() as url:
        sys.exit(check(url))
