"""A source written in Python, read on a cluster: it runs in this process, its rows are decoded on executors.

python_on_cluster.py OUT    writes what arrived to OUT, as JSON
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import headwater as hw

ROWS = 20_000


@hw.source("n LONG, word STRING, tags ARRAY<STRING>")
def nested_rows() -> Iterator[Any]:
    for n in range(ROWS):
        yield n, "w" * (n % 50), [str(n)] if n % 3 else None


@hw.source("n LONG, word STRING")
def flat_rows() -> Iterator[Any]:
    for n in range(ROWS):
        yield n, "w" * (n % 50)


def main(out: str) -> None:
    spark = hw.session(SparkSession.builder.config("spark.ui.enabled", "false"))
    found = {}
    for name in ("nested_rows", "flat_rows"):
        stream = spark.readStream.format(name).option("maxRowsPerTrigger", 7000).load()
        writer = stream.writeStream.format("memory").queryName(name).trigger(availableNow=True)
        query = writer.start()
        if not query.awaitTermination(120):
            sys.exit(f"it did not end: {query.status}, {query.lastProgress}")
        found[name] = [list(row) for row in spark.table(name).collect()]
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
