"""What it costs to have more partitions: rows per second, and the time to plan a batch."""

from __future__ import annotations

from dataclasses import replace

import throughput
from bars import Sample
from cases import Case
from pyspark.sql import SparkSession
from settings import Settings

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP, JAVA_OPTIONS = throughput.HEAP, throughput.JAVA_OPTIONS


def measure(spark: SparkSession, case: Case, settings: Settings) -> Sample:
    brief = replace(
        settings,
        throughput_warmup=settings.partitions_warmup,
        throughput_seconds=settings.partitions_seconds,
    )
    return throughput.measure(spark, case, brief)
