"""Messages per second of a Redis stream: through a query, and in a loop that only counts them."""

from __future__ import annotations

import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import redis
import throughput
from bars import Sample
from cases import Case, RedisCase
from pyspark.sql import SparkSession
from settings import Settings

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP = "2g"
JAVA_OPTIONS = "-Xms2g"

_STREAM = "messages"
_MESSAGES = 1_500_000  # more than any case reads in its time
_AT_ONCE = 10_000
_PAGE = 1000
_FILL = "for n = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'text', ARGV[2], 'n', n) end"
_TEXT = "x" * 100


def measure(spark: SparkSession, case: RedisCase, settings: Settings) -> Sample:
    seconds = settings.web_seconds
    with _serving() as url:
        if (load := case.load) is None:
            return _counted(url, seconds)
        brief = replace(settings, throughput_warmup=settings.web_warmup, throughput_seconds=seconds)
        return throughput.measure(spark, Case(case.name, lambda spark, _: load(spark, url)), brief)


@contextmanager
def _serving() -> Iterator[str]:
    """The URL of a Redis of its own, with messages in a stream."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        socket = Path(folder, "redis.sock")
        command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--dir", folder, "--save", ""]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while not socket.exists() and server.poll() is None:
                time.sleep(0.05)
            url = f"unix://{socket}"
            with redis.Redis.from_url(url) as client:
                for _ in range(0, _MESSAGES, _AT_ONCE):
                    client.eval(_FILL, 1, _STREAM, _AT_ONCE, _TEXT)
            yield url
        finally:
            server.kill()
            server.wait()


def _counted(url: str, seconds: float) -> Sample:
    """As a consumer of a group reads, without acknowledging anything."""
    count, group = 0, uuid.uuid4().hex
    with redis.Redis.from_url(url, decode_responses=True, protocol=2) as client:
        client.xgroup_create(_STREAM, group, id="0")
        end = (began := time.monotonic()) + seconds
        while time.monotonic() < end:
            ((_, messages),) = client.xreadgroup(group, "loop", {_STREAM: ">"}, count=_PAGE)
            count += len(messages)
        return {"rate": count / (time.monotonic() - began)}
