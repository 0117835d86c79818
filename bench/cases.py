"""What is measured, and the bars. A new case is one entry in one of the three tuples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bars import AtLeast, Bar, Flat, IdleAtMost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BARS", "BUFFER_BYTES", "CASES", "Case"]

BUFFER_BYTES = 64 << 20
"""For the cases of memory: the default of the option."""


@dataclass(frozen=True)
class Case:
    """A stream to measure.

    `load` makes it. A source that makes only as much as it is asked for has `asks`, rows per second to begin
    with; `load` then gets what to ask for. Otherwise that is 0 and means nothing.
    """

    name: str
    load: Callable[[SparkSession, int], DataFrame]
    asks: int = 0


def stream(format: str, **options: str | int) -> Callable[[SparkSession, int], DataFrame]:
    return lambda spark, _: spark.readStream.format(format).options(**options).load()


def rate(spark: SparkSession, rows_per_second: int) -> DataFrame:
    return spark.readStream.format("rate").option("rowsPerSecond", rows_per_second).load()


CASES: dict[str, tuple[Case, ...]] = {
    # As fast as it can, into a sink that costs nothing.
    "throughput": (
        Case("random_alpha", stream("random_alpha", len=9, rowsPerSecond=0)),
        Case("rate", rate, asks=8_000_000),
        Case("original_alpha", stream("original_alpha", len=9, sleepMs=0)),
    ),
    # One row per second.
    "idle": (
        Case("random_alpha", stream("random_alpha", len=9, rowsPerSecond=1)),
        Case("rate", stream("rate", rowsPerSecond=1)),
    ),
    # As fast as it can, into a sink that is ten times too slow.
    "memory": (
        Case("random_alpha", stream("random_alpha", len=9, rowsPerSecond=0, bufferBytes=BUFFER_BYTES)),
    ),
}

BARS: tuple[Bar, ...] = (
    AtLeast("random_alpha", 0.25, "rate"),
    AtLeast("random_alpha", 3, "original_alpha"),
    IdleAtMost("random_alpha", 3, "rate"),
    Flat("random_alpha", 10),
)
