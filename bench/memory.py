"""Memory of a query whose sink is ten times slower than its source."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from statistics import median

from bars import Sample
from cases import BUFFER_BYTES, Case
from processes import resident_bytes
from pyspark.sql import DataFrame, SparkSession
from settings import Settings
from sink import Sink
from spark import Jvm, batches_since, let_run, rate, running

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP = "1g"
# The heap is resident from the start, so what grows in the process lies outside of it.
JAVA_OPTIONS = "-Xms1g -XX:+AlwaysPreTouch"

_TOO_SLOW = 10
_SAMPLE_EVERY = 2.0


class SlowSink(Sink):
    """Writes a batch to nowhere, and takes at least `seconds` for it."""

    seconds: float = 0

    def take(self, rows: DataFrame) -> None:
        end = time.monotonic() + self.seconds
        rows.write.format("noop").mode("overwrite").save()
        time.sleep(max(0.0, end - time.monotonic()))


@dataclass
class Readings:
    jvm: Jvm
    heap: list[int] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    python: list[int] = field(default_factory=list)

    def take(self) -> None:
        self.heap.append(self.jvm.heap_bytes())
        self.resident.append(resident_bytes(self.jvm.pid))
        self.python.append(resident_bytes(os.getpid()))


def measure(spark: SparkSession, case: Case, settings: Settings) -> Sample:
    readings = Readings(Jvm(spark))
    before = readings.jvm.heap_bytes()
    sink = SlowSink()
    with running(case.load(spark, case.asks).writeStream.foreachBatch(sink).start()) as query:
        let_run(query, settings.memory_warmup)
        free = batches_since(query, start=0, least=4)
        free = free[len(free) // 2 :]
        # Once the sink is slow, every batch is a full buffer, as the largest one was before.
        sink.seconds = _TOO_SLOW * max(batch.rows for batch in free) / rate(free)
        slow_since = time.time()
        let_run(query, settings.memory_settle)
        end = time.monotonic() + settings.memory_seconds
        while time.monotonic() < end:
            readings.take()
            let_run(query, _SAMPLE_EVERY)
        slow = batches_since(query, slow_since, least=1)
        sink.rest()
    heap_first, heap_last = _thirds(readings.heap)
    rss_first, rss_last = _thirds(readings.resident)
    python_first, python_last = _thirds(readings.python)
    return {
        "heap_before": before,
        "heap_first": heap_first,
        "heap_last": heap_last,
        "rss_first": rss_first,
        "rss_last": rss_last,
        "python_first": python_first,
        "python_last": python_last,
        "waiting_most": max(batch.waiting_bytes for batch in free + slow),
        "buffer": BUFFER_BYTES,
        "slower": rate(free) / rate(slow),
        "batches": len(slow),
    }


def _thirds(readings: list[int]) -> tuple[float, float]:
    """The medians of the first third and of the last."""
    third = max(1, len(readings) // 3)
    return median(readings[:third]), median(readings[-third:])
