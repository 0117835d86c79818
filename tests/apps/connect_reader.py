"""A Spark Connect client that reads `random_alpha` until AvailableNow ends, and prints what came as JSON.

connect_reader.py URL JAR known|artifact|attach    how the format comes to be known to the server
connect_reader.py URL JAR python                   what is said to one who tries a source written in Python
connect_reader.py URL JAR formats                  what load() raises for names that the server does not know
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader


def words(spark: SparkSession) -> DataStreamReader:
    options = {"len": 9, "seed": 7, "rowsPerSecond": 5000, "availableNowWait": "1s", "maxRowsPerTrigger": 300}
    return spark.readStream.format("random_alpha").options(**options)


def try_python(spark: SparkSession) -> dict[str, str]:
    import headwater as hw

    @hw.source("n LONG")
    def connect_numbers() -> Iterator[int]:
        yield 1

    said = {}
    try:
        hw.stream(spark, connect_numbers())
    except hw.HeadwaterError as error:
        said["stream"] = str(error)
    try:
        spark.readStream.format("headwater").option("source", "connect_numbers").load().schema  # noqa: B018
    except PySparkException as error:
        said["format"] = str(error).partition("\n")[0]
    return said


def try_formats(spark: SparkSession) -> dict[str, str]:
    import headwater as hw

    @hw.source("n LONG")
    def connect_letters() -> Iterator[int]:
        yield 1

    def load(name: str) -> str:
        try:
            spark.readStream.format(name).load()
        except hw.HeadwaterError as error:
            return str(error)
        return "loaded"

    said = {"unattached": load("random_alpha")}
    hw.attach(spark)
    for name in ("random_alpha", "random_alfa", "connect_letters", "connect_leters", "nothing_like_it"):
        said[name] = load(name)
    return said


def main(url: str, jar: str, how: str) -> None:
    spark = SparkSession.builder.remote(url).create()
    if how == "formats":
        print("RESULT " + json.dumps(try_formats(spark)))
        return
    if how == "python":
        print("RESULT " + json.dumps(try_python(spark)))
        return
    if how != "known":
        try:
            words(spark).load().columns  # noqa: B018 the server looks at a frame only when asked
        except PySparkException as error:
            if "DATA_SOURCE_NOT_FOUND" not in str(error):
                raise
        else:
            sys.exit("random_alpha was known before the jar was there")
    if how == "artifact":
        spark.addArtifact(jar)
    elif how == "attach":
        import headwater

        headwater.attach(spark)

    query = words(spark).load().writeStream.format("memory").queryName(f"words_{how}")
    running = query.trigger(availableNow=True).start()
    if not running.awaitTermination(60):
        sys.exit(f"AvailableNow did not end: {running.status}, {running.lastProgress}")
    values = [row.value for row in spark.table(f"words_{how}").collect()]
    batches = [
        int(progress["sources"][0]["metrics"]["rowsInBatch"])
        for progress in running.recentProgress
        if progress["sources"][0]["numInputRows"]
    ]
    print("RESULT " + json.dumps({"values": values, "batches": batches}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
