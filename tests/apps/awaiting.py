"""Reads a source and prints READY after its first batch: `awaiting.py rate|log|memory|partitioned`."""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession
from stops import frame_of, has_rows

import headwater as hw


def main(source: str) -> None:
    spark = hw.session(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false"))
    query = frame_of(spark, source, "batch").writeStream.format("noop").start()
    while not has_rows(query):
        assert query.isActive, query.exception()
        time.sleep(0.05)
    print("READY", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
