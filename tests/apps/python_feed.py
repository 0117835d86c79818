"""A driver with a query on a Python source. Prints who takes part, and runs until it is killed."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator

from pyspark.sql import SparkSession

import headwater as hw


@hw.source("n LONG")
def app_numbers() -> Iterator[int]:
    for n in itertools.count():
        time.sleep(0.01)
        yield n


def main() -> None:
    spark = hw.session(SparkSession.builder.config("spark.ui.enabled", "false"))
    query = spark.readStream.format("app_numbers").load().writeStream.format("noop").start()
    while not (query.lastProgress and query.lastProgress["numInputRows"]):
        query.awaitTermination(1)
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    print(f"RUNNING python={os.getpid()} jvm={jvm}", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main()
