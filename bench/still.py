"""What a query costs that has nothing to do: Spark asks it every 10 ms whether there is something new."""

from __future__ import annotations

import idle
from bars import Sample
from cases import Case
from pyspark.sql import SparkSession
from settings import Settings

__all__ = ["HEAP", "JAVA_OPTIONS", "measure"]

HEAP, JAVA_OPTIONS = idle.HEAP, idle.JAVA_OPTIONS


def measure(spark: SparkSession, case: Case, settings: Settings) -> Sample:
    return idle.measure(spark, case, settings, least_batches=0)
