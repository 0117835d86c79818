"""Spark's `.schema(…)`: sources with a parameter `schema` get it as that option; for others it is an error.

`headwater.registry` is imported to look at requests of the JVM without one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import run_command
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, IntegerType, StructField, StructType

import headwater as hw
from headwater import registry
from headwater.decode import decoder
from headwater.options import OptionError
from headwater.registry import built_in, is_class, request_options


class GivenRecords(hw.Source, name="given_records"):
    """A source as `ndjson` is one: the schema is for its decoder."""

    def __init__(self, records: list[str], decode: str = "json", schema: str | None = None) -> None:
        self._records = records
        self._decoder = decoder(decode, schema, beside="n LONG")

    @property
    def schema(self) -> StructType:
        return self._decoder.schema

    def read(self, since: int | None) -> Iterator[hw.At]:
        records = [record.encode() for record in self._records]
        yield hw.At(len(records), self._decoder.rows(records, n=[*range(len(records))]))


@hw.source("n LONG")
def given_none() -> Iterator[int]:
    yield 1


def asked(source: str, schema: StructType, **options: str) -> dict[str, Any]:
    return {"source": source, "options": options, "schema": schema.json()}


def test_the_schema_arrives_as_ddl() -> None:
    schema = StructType([StructField("a b", ArrayType(IntegerType(), False), False, {"comment": "it's"})])
    assert request_options(asked("given_records", schema, records="x")) == {
        "records": "x",
        "schema": "`a b` ARRAY<INT> NOT NULL COMMENT 'it\\'s'",
    }


def test_a_schema_and_the_option_schema_together_are_an_error() -> None:
    with pytest.raises(
        OptionError, match=r"Source 'given_records' got \.schema\(…\) and the option 'SCHEMA'"
    ):
        request_options(asked("given_records", StructType(), SCHEMA="a INT"))


@pytest.fixture
def reader(spark_session: SparkSession) -> Any:
    hw.attach(spark_session)
    records = json.dumps(['{"a": 1, "b": {"c": "x"}}', '{"a": "no"}', '{"b": {"c": null}}'])
    return spark_session.readStream.format("given_records").option("records", records)


def rows_in(spark: SparkSession, frame: Any, name: str, folder: Path) -> list[Any]:
    writer = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder)).start()
    try:
        assert query.awaitTermination(60)
        return spark.table(name).collect()
    finally:
        query.stop()


def test_a_query_uses_the_schema_of_the_user(
    spark_session: SparkSession, reader: Any, tmp_path: Path
) -> None:
    frame = reader.schema("a INT, b STRUCT<c: STRING>").option("onBadRow", "null").load()
    assert frame.schema.simpleString() == "struct<a:int,b:struct<c:string>,n:bigint>"
    rows = rows_in(spark_session, frame, "given", tmp_path)
    assert rows == [(1, ("x",), 0), (None, None, 1), (None, (None,), 2)]


def test_the_schema_may_be_a_struct_type_and_bad_rows_can_be_dropped(
    spark_session: SparkSession, reader: Any, tmp_path: Path
) -> None:
    schema = StructType([StructField("a", IntegerType())])
    frame = reader.schema(schema).option("onBadRow", "drop").load()
    assert rows_in(spark_session, frame, "given_dropped", tmp_path) == [(1, 0), (None, 2)]


def test_a_record_that_does_not_decode_fails_the_query_by_default(reader: Any, tmp_path: Path) -> None:
    frame = reader.option("schema", "a INT").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(
        Exception, match=r"row 1: field 'a': INT accepts an integer.*found: b'\{\"a\": \"no\"\}'"
    ):
        query.awaitTermination(60)


def test_mistakes_fail_at_load(spark_session: SparkSession, reader: Any) -> None:
    with pytest.raises(Exception, match="decode='json' needs a schema"):
        reader.load()
    with pytest.raises(Exception, match="column 'a' has type INTERVAL"):
        reader.schema("a INTERVAL DAY TO SECOND").load()
    with pytest.raises(Exception, match=r"got .schema\(…\) and the option 'schema': keep one"):
        reader.schema("a INT").option("schema", "a INT").load()
    with pytest.raises(Exception, match=r"Source 'given_none' has a fixed schema, n BIGINT\. Remove"):
        spark_session.readStream.format("given_none").schema("a INT").load()


def test_a_built_in_source_accepts_a_schema_before_it_is_imported(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    script = """
from headwater.registry import request_options
schema = '{"type":"struct","fields":[{"name":"a","type":"integer","nullable":true,"metadata":{}}]}'
print(request_options({"source": "sse", "options": {"decode": "json"}, "schema": schema}))
"""
    message = run_command([sys.executable, "-c", script], clean_env, tmp_path).strip()
    assert message == "{'decode': 'json', 'schema': 'a INT'}"


def test_each_built_in_source_in_python_has_its_format_in_the_jar(spark_session: SparkSession) -> None:
    hw.attach(spark_session)
    written = [made._name for made in built_in() if is_class(made)]
    assert set(written) == registry._BUILT_IN
    options: dict[str, dict[str, str]] = {
        "mqtt": {"url": "mqtts://127.0.0.1:1", "topics": "a", "clientId": "c"},
        "webhook": {},
        "websocket": {"url": "wss://127.0.0.1:1"},
        "redis": {"url": "redis://127.0.0.1:1"},
        "redis_group": {"url": "redis://127.0.0.1:1", "streams": "a", "group": "g"},
        "tail": {"path": "a.log"},
    }
    for name in written:
        required = options.get(name, {"url": "http://127.0.0.1:1/"})
        assert spark_session.readStream.format(name).options(**required).load().isStreaming
