"""V1, V2, SQL and real-time mode on every line of Spark that has them, with the same jar."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw

HAS_STREAM = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1)


@hw.source("n LONG, word STRING, parts ARRAY<STRUCT<x: INT>>")
def matrix_placed(
    count: int = 3, token: hw.Secret | None = None, *, since: int | None = None
) -> Iterator[Any]:
    for n in range(0 if since is None else since + 1, count):
        yield hw.At(n, (n, f"w{n}", [(n,)]))
    yield hw.CAUGHT_UP


def run(frame: DataFrame, checkpoint: Path) -> list[Any]:
    rows: list[Any] = []
    writer = frame.writeStream.foreachBatch(
        lambda batch, _: rows.extend(tuple(row) for row in batch.collect())
    )
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(60), query.status
    return rows


def test_a_checkpoint_goes_from_v1_to_v2_and_back(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Any] = []
    try:
        for part, api in enumerate(("v1", "v2", "v1", "v2"), start=1):
            spark.conf.set("spark.headwater.api", api)
            stream = hw.stream(spark, matrix_placed(count=20 * part), max_rows_per_trigger=7)
            relation = stream._jdf.queryExecution().analyzed().getClass().getSimpleName()
            assert relation == {"v1": "StreamingRelation", "v2": "StreamingRelationV2"}[api]
            rows += run(stream.select("n", "parts.x"), tmp_path)
    finally:
        spark.conf.unset("spark.headwater.api")
    assert rows == [(n, [n]) for n in range(80)]


def test_metadata_has_the_place_of_each_row(spark: SparkSession, tmp_path: Path) -> None:
    stream = hw.stream(spark, matrix_placed(count=20), max_rows_per_trigger=7)
    assert "_metadata" not in stream.columns
    rows = run(stream.select("word", "_metadata"), tmp_path)
    assert [(word, place.source, place.seq, place.shard) for word, place in rows] == [
        (f"w{n}", "matrix_placed", n, 0) for n in range(20)
    ]
    assert len({place.run for _, place in rows}) == 1
    assert all(place.arrived is not None for _, place in rows)


def test_aggregations_and_python_functions_run_over_columns(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.functions import udf

    doubled = udf(lambda n: n * 2, "long")
    totals: list[Any] = []
    stream = hw.stream(spark, matrix_placed(count=100)).select(doubled("n").alias("n"))
    writer = stream.groupBy().sum("n").writeStream.outputMode("complete")
    writer = writer.foreachBatch(lambda batch, _: totals.append(batch.first()[0]))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(60), query.status
    assert totals[-1] == 9900


def test_a_source_that_is_defined_again_has_its_new_columns(spark: SparkSession) -> None:
    hw.attach(spark)

    @hw.source("a LONG")
    def matrix_again() -> Iterator[int]:
        yield 1

    assert spark.readStream.format("matrix_again").load().columns == ["a"]

    @hw.source("b LONG, c LONG")
    def matrix_again() -> Iterator[Any]:  # noqa: F811
        yield 1, 2

    assert spark.readStream.format("matrix_again").load().columns == ["b", "c"]


def test_a_feed_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    hw.attach(spark)
    spark.sql("CREATE TABLE placed USING matrix_placed OPTIONS (count '5', token 'env:TOKEN')")
    try:
        stream = spark.readStream.table("placed")
        assert run(stream.select("word", "_metadata.seq"), tmp_path / "a") == [(f"w{n}", n) for n in range(5)]
        described = {row.col_name: row.data_type for row in spark.sql("DESCRIBE placed").collect()}
        assert described["n"] == "bigint"
        assert "USING matrix_placed" in spark.sql("SHOW CREATE TABLE placed").first()[0]
        with pytest.raises(Exception, match=r"is a stream of the source 'matrix_placed'"):
            spark.sql("SELECT * FROM placed").collect()
    finally:
        spark.sql("DROP TABLE placed")
    with pytest.raises(Exception, match="Option 'token' of source 'matrix_placed' is a secret"):
        spark.sql("CREATE TABLE placed USING matrix_placed OPTIONS (token 'hunter2')")


@pytest.mark.skipif(not HAS_STREAM, reason="Spark 4.0 has no STREAM in SQL")
def test_select_from_stream(spark: SparkSession, tmp_path: Path) -> None:
    hw.attach(spark)
    spark.sql("CREATE TABLE placed USING matrix_placed")
    try:
        stream = spark.sql("SELECT word FROM STREAM placed WITH (count='2')")
        assert run(stream, tmp_path / "a") == [("w0",), ("w1",)]
        spark.sql("CREATE TEMP VIEW early AS SELECT n FROM STREAM placed WHERE n < 2")
        assert run(spark.table("early"), tmp_path / "b") == [(0,), (1,)]
        spark.catalog.dropTempView("early")
    finally:
        spark.sql("DROP TABLE placed")


def test_foreach_gets_rows_and_in_real_time_mode_where_spark_has_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows: list[Any] = []
    writer: Any = hw.foreach(hw.stream(spark, matrix_placed(count=5), linger="0ms").select("n"), rows.append)
    if HAS_STREAM:  # PySpark has the trigger from 4.2 on, the JVM from 4.1
        trigger = spark._jvm.org.apache.spark.sql.streaming.Trigger.RealTime("1 hour")  # type: ignore
        writer._jwrite = writer._jwrite.trigger(trigger)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        end = time.monotonic() + 60
        while len(rows) < 5:
            assert query.isActive, query.exception()
            assert time.monotonic() < end, (rows, query.status)
            time.sleep(0.05)
    finally:
        query.stop()
    assert rows == [{"n": n} for n in range(5)]
