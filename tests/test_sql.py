"""SQL: feeds as tables of Spark's own session catalog."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw

TIMEOUT_SECONDS = 120

_names = (f"sql_{n}" for n in itertools.count())


@hw.source("n LONG, word STRING")
def sql_words(count: int = 3, prefix: str = "w", token: hw.Secret | None = None) -> Iterator[Any]:
    for n in range(count):
        yield n, f"{prefix}{n}"
    yield hw.CAUGHT_UP


class SqlColumns(hw.Source, name="sql_columns"):
    """Its columns are an option, as those of `sse` and `ndjson` are."""

    def __init__(self, schema: str = "line STRING", token: hw.Secret | None = None) -> None:
        self._ddl = schema

    @property
    def schema(self) -> str:
        return self._ddl

    def read(self) -> Iterator[Any]:
        yield (1, "one")[: 1 + self._ddl.count(",")]


Rows = Callable[[DataFrame], list[Any]]


@pytest.fixture
def rows(spark_session: SparkSession) -> Rows:
    """All rows of a stream, which ends."""

    def read(frame: DataFrame) -> list[Any]:
        name = next(_names)
        query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(TIMEOUT_SECONDS), query.status
        finally:
            query.stop()
        return [tuple(row) for row in spark_session.table(name).collect()]

    return read


Create = Callable[[str], str]


@pytest.fixture
def create(spark_session: SparkSession) -> Iterator[Create]:
    """`create("USING …")` creates a table and returns its name."""
    created = []
    hw.attach(spark_session)

    def create_table(rest: str) -> str:
        name = next(_names)
        spark_session.sql(f"CREATE TABLE {name} {rest}")
        created.append(name)
        return name

    yield create_table
    for name in created:
        spark_session.sql(f"DROP TABLE {name}")
        assert not spark_session.catalog.tableExists(name)


def test_a_table_is_read_as_a_stream(spark_session: SparkSession, create: Create, rows: Rows) -> None:
    table = create("USING sql_words OPTIONS (count '4', prefix 'x')")
    assert rows(spark_session.readStream.table(table)) == [(n, f"x{n}") for n in range(4)]
    again = spark_session.readStream.table(table).selectExpr("word", "_metadata.seq")
    assert rows(again) == [(f"x{n}", n) for n in range(4)]


def test_a_table_without_options(spark_session: SparkSession, create: Create, rows: Rows) -> None:
    assert len(rows(spark_session.readStream.table(create("USING sql_words")))) == 3


def test_options_of_one_query_win(spark_session: SparkSession, create: Create, rows: Rows) -> None:
    table = create("USING sql_words OPTIONS (count '4', prefix 'x')")
    reader = spark_session.readStream.option("count", 1).option("maxRowsPerTrigger", 1)
    assert rows(reader.table(table)) == [(0, "x0")]
    assert rows(spark_session.sql(f"SELECT word FROM STREAM {table} WITH (COUNT='2')")) == [("x0",), ("x1",)]


def test_select_from_stream_and_views_of_it(spark_session: SparkSession, create: Create, rows: Rows) -> None:
    table = create("USING sql_words OPTIONS (count 4)")
    selected = spark_session.sql(f"SELECT word, n * 2 AS twice FROM STREAM {table} WHERE n > 1")
    assert selected.isStreaming
    assert rows(selected) == [("w2", 4), ("w3", 6)]
    view = next(_names)
    spark_session.sql(f"CREATE TEMP VIEW {view} AS SELECT word FROM STREAM {table} WHERE n < 2")
    try:
        assert rows(spark_session.table(view)) == [("w0",), ("w1",)]
    finally:
        spark_session.catalog.dropTempView(view)


def test_the_columns_of_a_table_are_the_schema_of_its_source(
    spark_session: SparkSession, create: Create, rows: Rows
) -> None:
    table = create("(id INT, name STRING) USING sql_columns")
    stream = spark_session.readStream.table(table)
    assert stream.dtypes == [("id", "int"), ("name", "string")]
    without = create("USING sql_columns")
    assert spark_session.readStream.table(without).dtypes == [("line", "string")]
    assert rows(stream) == [(1, "one")]


def test_columns_of_a_source_with_a_fixed_schema_are_refused(create: Create) -> None:
    with pytest.raises(Exception, match=r"'sql_words' has a fixed schema, n BIGINT, word STRING"):
        create("(other DATE) USING sql_words")


def test_describe_and_show_create_table(spark_session: SparkSession, create: Create) -> None:
    table = create("USING sql_words OPTIONS (count '4', token 'env:SQL_TOKEN')")
    described = [(row.col_name, row.data_type) for row in spark_session.sql(f"DESCRIBE {table}").collect()]
    assert described[:2] == [("n", "bigint"), ("word", "string")]
    (statement,) = spark_session.sql(f"SHOW CREATE TABLE {table}").first()
    assert f"CREATE TABLE spark_catalog.default.{table}" in statement
    assert "USING sql_words" in statement
    assert "'count' = '4'" in statement
    assert "path" not in statement.lower()


def test_invalid_options_fail_when_the_table_is_created(spark_session: SparkSession, create: Create) -> None:
    with pytest.raises(Exception, match=r"'count'.*'many'.*an integer"):
        create("USING sql_words OPTIONS (count 'many')")
    with pytest.raises(Exception, match="has no option 'cuont'"):
        create("USING sql_words OPTIONS (cuont '1')")


@pytest.mark.parametrize("columns", ["", "(id INT, name STRING)"])
def test_a_literal_secret_is_refused_and_a_reference_is_not(create: Create, columns: str) -> None:
    with pytest.raises(Exception, match="Option 'token' of source 'sql_columns' is a secret") as refused:
        create(f"{columns} USING sql_columns OPTIONS (token 'hunter2')")
    assert "'env:NAME'" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    create(f"{columns} USING sql_columns OPTIONS (token 'env:SQL_TOKEN')")
    create(f"{columns} USING sql_columns OPTIONS (token 'file:/run/secrets/token')")


def test_a_batch_query_says_what_to_do(spark_session: SparkSession, create: Create) -> None:
    table = create("USING sql_words")
    for read in (
        lambda: spark_session.sql(f"SELECT * FROM {table}").collect(),
        lambda: spark_session.table(table).count(),
    ):
        with pytest.raises(
            Exception, match=r"is a stream of the source 'sql_words'.*spark\.readStream\.table"
        ):
            read()


def test_partitioned_sources_cannot_be_tables(create: Create, by_value: None) -> None:
    class Parts(hw.PartitionedSource, name="sql_parts", schema="n LONG"):
        def partitions(self) -> list[str]:
            return ["a"]

        def earliest(self, p: str) -> int:
            return 0

        def latest(self, p: str) -> int:
            return 3

        def read(self, p: str, start: int, end: int) -> Iterator[Any]:
            yield from range(start, end)

    with pytest.raises(Exception, match=r"'sql_parts' is partitioned, and only feeds can be tables"):
        create("USING sql_parts")


def test_a_table_is_not_read_through_v1(spark_session: SparkSession, create: Create, rows: Rows) -> None:
    table = create("USING sql_words")
    spark_session.conf.set("spark.headwater.api", "v1")
    try:
        with pytest.raises(
            Exception, match=r"through V2 only, and the configuration 'spark\.headwater\.api' is 'v1'"
        ):
            rows(spark_session.readStream.table(table))
        assert spark_session.sql(f"DESCRIBE {table}").count() >= 2
    finally:
        spark_session.conf.unset("spark.headwater.api")


def test_a_table_whose_source_is_gone_can_be_dropped(spark_session: SparkSession) -> None:
    @hw.source("n LONG")
    def sql_gone() -> Iterator[int]:
        yield 1

    hw.attach(spark_session)
    spark_session.sql("CREATE TABLE gone USING sql_gone")
    from headwater import registry  # as if this were another process, which has not imported it

    del registry._sources["sql_gone"]
    with pytest.raises(Exception, match="No source 'sql_gone' is defined"):
        spark_session.readStream.table("gone").columns  # noqa: B018
    spark_session.sql("DROP TABLE gone")
    assert not spark_session.catalog.tableExists("gone")
