"""A driver of a query in real-time mode, which runs until it is killed or its standard input ends.

python real_time.py MASTER DURABILITY CHECKPOINT FILE. Each row becomes a line of FILE: a JSON object with
`n`, `run` and `seq`. Under `local` they are written in the driver, as they come; on a cluster by the workers
of Spark.
"""

import itertools
import json
import sys
import time
from collections.abc import Iterator

from pyspark.sql import Row, SparkSession

import headwater as hw

master, durability, checkpoint, file = sys.argv[1:]


@hw.source("n LONG")
def real_time_numbers(*, since: int | None = None) -> Iterator[hw.At]:
    for n in itertools.count(0 if since is None else since + 1):
        yield hw.At(n, n)
        time.sleep(0.005)


def write(row: Row) -> None:
    with open(file, "a") as out:
        out.write(json.dumps(row.asDict()) + "\n")


spark = hw.session(SparkSession.builder.master(master).config("spark.ui.enabled", "false"))
stream = hw.stream(spark, real_time_numbers(), durability=durability, linger="0ms")
rows = stream.selectExpr("n", "_metadata.run", "_metadata.seq")
if master.startswith("local"):
    out = open(file, "a")  # noqa: SIM115
    writer = hw.foreach(rows, lambda row: print(json.dumps(row), file=out, flush=True))
else:
    writer = rows.writeStream.outputMode("update").foreach(write)
query = writer.option("checkpointLocation", checkpoint).trigger(realTime="5 seconds").start()
print("RUNNING", flush=True)
sys.stdin.read()
query.stop()
print(f"EXCEPTION {query.exception()}", flush=True)
