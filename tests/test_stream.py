"""`random_alpha` from Python: through `hw.stream` and through `.format`; and the examples in docstrings.

The tests import `headwater.options`, which is not public: it reads the table of options.
"""

import doctest
import importlib
import inspect
import re
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from processes import PACKAGE, wait_until
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

import headwater as hw
from headwater.jvm_source import JvmSource
from headwater.options import COMMON, camel, encode
from headwater.sources import random_alpha

Collect = Callable[..., tuple[list[Row], StreamingQuery]]


@pytest.fixture
def first_rows(spark_session: SparkSession, tmp_path: Path) -> Collect:
    """Run a stream until at least so many rows came; gives them in order, and the stopped query."""

    def collect(
        stream: DataFrame, at_least: int, checkpoint: Path | None = None
    ) -> tuple[list[Row], StreamingQuery]:
        rows: list[Row] = []
        writer = stream.coalesce(1).writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        query = writer.option("checkpointLocation", str(checkpoint or tmp_path / "checkpoint")).start()
        try:
            wait_until(
                lambda: len(rows) >= at_least or not query.isActive,
                lambda: f"{len(rows)} rows, {query.status}, {query.lastProgress}",
            )
        finally:
            query.stop()
        assert query.exception() is None
        return rows, query

    return collect


def test_rows_have_the_configured_length_and_the_current_time(
    spark_session: SparkSession, first_rows: Collect
) -> None:
    before = datetime.now()
    rows, _ = first_rows(hw.stream(spark_session, random_alpha(len=7, rows_per_second=100)), 20)
    after = datetime.now()
    assert all(len(row.value) == 7 and row.value.isalnum() and row.value.isascii() for row in rows)
    assert len({row.value for row in rows}) == len(rows)
    times = [row.timestamp for row in rows]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= after
    assert any(time.microsecond % 1000 for time in times)


def test_stream_and_format_are_the_same_stream(
    spark_session: SparkSession, first_rows: Collect, tmp_path: Path
) -> None:
    by_value = hw.stream(spark_session, random_alpha(5, 0, seed=42), max_rows_per_trigger=50)
    reader = spark_session.readStream.format("random_alpha").option("len", 5).option("rowsPerSecond", 0)
    by_name = reader.option("seed", 42).option("maxRowsPerTrigger", 50).load()
    assert by_value.schema == by_name.schema
    assert by_value.schema.simpleString() == "struct<timestamp:timestamp,value:string>"
    one, _ = first_rows(by_value, 100, tmp_path / "one")
    two, _ = first_rows(by_name, 100, tmp_path / "two")
    assert [row.value for row in one[:100]] == [row.value for row in two[:100]]
    other, _ = first_rows(hw.stream(spark_session, random_alpha(5, 0, seed=43)), 100, tmp_path / "three")
    assert not {row.value for row in one[:100]} & {row.value for row in other[:100]}


def test_no_batch_is_larger_than_max_rows_per_trigger(
    spark_session: SparkSession, first_rows: Collect
) -> None:
    _, query = first_rows(hw.stream(spark_session, random_alpha(5, 0), max_rows_per_trigger=30), 91)
    sizes = {
        progress.batchId: int(progress.sources[0].metrics["rowsInBatch"]) for progress in query.recentProgress
    }
    assert len(sizes) >= 3
    assert set(sizes.values()) == {30}


def test_a_seeded_stream_resumes_after_a_restart_where_it_stopped(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    """AvailableNow ends between batches, so nothing is in flight that memory would lose."""
    wanted, bounds = (
        random_alpha(5, 0, seed=9),
        {"buffer_rows": 1000, "available_now_wait": timedelta(seconds=1)},
    )

    def run_once(folder: str) -> list[str]:
        rows: list[Row] = []
        stream: Any = hw.stream(spark_session, wanted, **bounds)
        writer = stream.coalesce(1).writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        query = writer.option("checkpointLocation", str(tmp_path / folder)).trigger(availableNow=True).start()
        assert query.awaitTermination(60), query.status
        return [row.value for row in rows]

    first, second = run_once("same"), run_once("same")
    assert first
    assert second
    assert not set(first) & set(second)
    other: list[str] = []
    while len(other) < len(first) + len(second):
        other += run_once("other")
    assert other[: len(first) + len(second)] == first + second


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, ["'len'", "1 to 65536"]),
        ({"len": "0"}, ["'len'", "'0'", "1 to 65536"]),
        ({"len": "five"}, ["'len'", "'five'", "1 to 65536"]),
        ({"len": "5", "rowsPerSecond": "-1"}, ["'rowsPerSecond'", "'-1'", "0"]),
        ({"len": "5", "seed": "x"}, ["'seed'", "'x'", "an integer"]),
        ({"len": "5", "durability": "disk"}, ["'durability'", "'disk'", "log or memory"]),
        ({"len": "5", "logBytes": "1g"}, ["'logBytes'", "nothing with durability 'memory'"]),
        ({"len": "5", "bufferBytes": "big"}, ["'bufferBytes'", "'big'", "64m"]),
        ({"len": "5", "maxTriggerDelay": "soon"}, ["'maxTriggerDelay'", "'soon'", "250ms"]),
        ({"len": "5", "maxTriggerDelay": "10"}, ["'maxTriggerDelay'", "'10'", "with its unit", "250ms"]),
        ({"len": "5", "failOnDataLoss": "maybe"}, ["'failOnDataLoss'", "'maybe'", "true or false"]),
        ({"length": "5"}, ["'length'", "len, rowsPerSecond, seed", "maxRowsPerTrigger"]),
    ],
)
def test_a_wrong_option_fails_at_load_with_option_value_and_what_is_allowed(
    spark_session: SparkSession, options: dict[str, str], message: list[str]
) -> None:
    with pytest.raises(IllegalArgumentException) as caught:
        spark_session.readStream.format("random_alpha").options(**options).load()
    first_line = str(caught.value).partition("\n")[0]
    assert all(part in first_line for part in message), first_line


def test_a_wrong_value_in_python_fails_in_the_call(spark_session: SparkSession) -> None:
    with pytest.raises(
        IllegalArgumentException, match=r"'len' of source 'random_alpha' is '65537'.* 1 to 65536"
    ):
        hw.stream(spark_session, random_alpha(len=65537))
    with pytest.raises(IllegalArgumentException, match=r"'maxRowsPerTrigger' .* '0'.* 1 or more"):
        hw.stream(spark_session, random_alpha(len=5), max_rows_per_trigger=0)
    with pytest.raises(ValueError, match=r"max_trigger_delay=.*a multiple of one millisecond"):
        hw.stream(spark_session, random_alpha(len=5), max_trigger_delay=timedelta(microseconds=1500))
    with pytest.raises(TypeError, match=r"buffer_rows=\[1\] is of type list"):
        hw.stream(spark_session, random_alpha(len=5), buffer_rows=[1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"such as random_alpha\(len=5\), or a reference, not 5 of type int"):
        hw.stream(spark_session, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="source 'random_alpha' needs the option len"):
        hw.stream(spark_session, "random_alpha")
    with pytest.raises(
        IllegalArgumentException, match=r"'availableNowWait' .* '10', it must be a duration with its unit"
    ):
        hw.stream(spark_session, random_alpha(len=5), available_now_wait=10)  # type: ignore[arg-type]
    twice = JvmSource("random_alpha", {"len": 5, "buffer_rows": 3})
    with pytest.raises(
        ValueError, match=r"buffer_rows=4 is also set in the source random_alpha\(len=5, buffer_rows=3\)"
    ):
        hw.stream(spark_session, twice, buffer_rows=4)


def test_every_option_reaches_the_provider_in_a_valid_form(spark_session: SparkSession) -> None:
    stream = hw.stream(
        spark_session,
        random_alpha(len=5, rows_per_second=0, seed=-1),
        durability="memory",
        buffer_bytes="64m",
        buffer_rows=10,
        max_rows_per_trigger=5,
        max_bytes_per_trigger=1000,
        min_rows_per_trigger=1,
        max_trigger_delay=timedelta(seconds=1.5),
        available_now_wait="250ms",
        fail_on_data_loss=False,
    )
    assert stream.isStreaming


def test_the_keywords_of_stream_are_the_options_of_the_table_in_its_order() -> None:
    parameters = inspect.signature(hw.stream).parameters.values()
    keywords = [parameter for parameter in parameters if parameter.kind == parameter.KEYWORD_ONLY]
    assert [keyword.name for keyword in keywords] == [option.keyword for option in COMMON]
    assert all(keyword.default is None for keyword in keywords)


@pytest.mark.parametrize("keyword", [option.keyword for option in COMMON])
def test_each_keyword_of_stream_sets_the_option_of_its_name(
    spark_session: SparkSession, keyword: str
) -> None:
    source = JvmSource("random_alpha", {"len": 5, keyword: "in the source"})
    stream: Any = hw.stream
    with pytest.raises(ValueError, match=f"^{keyword}='in the call' is also set in the source"):
        stream(spark_session, source, **{keyword: "in the call"})


def test_the_jar_has_the_table_of_options_that_the_package_has(jar: Path) -> None:
    table = (PACKAGE / "headwater" / "options.json").read_bytes()
    with zipfile.ZipFile(jar) as archive:
        assert archive.read("headwater/options.json") == table, "the jar is stale: build it again"


def test_the_keywords_of_stream_are_the_options_that_every_source_has(spark_session: SparkSession) -> None:
    hw.attach(spark_session)

    @hw.source("n LONG")
    def stream_nothing() -> Iterator[int]:
        yield 1

    def listed(name: str, before: str) -> set[str]:
        with pytest.raises(IllegalArgumentException) as caught:
            spark_session.readStream.format(name).option("nonesuch", 1).load()
        known = re.search(before + r": ([\w, ]+)", str(caught.value))
        assert known, caught.value
        return set(known[1].split(", "))

    keywords = {
        camel(p.name) for p in inspect.signature(hw.stream).parameters.values() if p.kind == p.KEYWORD_ONLY
    }
    assert listed("stream_nothing", "Those of every source") == keywords
    own = set(map(camel, inspect.signature(random_alpha).parameters))
    assert listed("random_alpha", "Its options are") - own < keywords
    assert not keywords & own
    partitioned = {"startFrom", "minPartitions", "callTimeout"}
    for name in partitioned:
        with pytest.raises(Exception, match=f"Option '{name}' is for sources with partitions only"):
            spark_session.readStream.format("stream_nothing").option(name, "?").load()
    for name in keywords - partitioned:  # options of the provider's, which says what they must be
        durability = {"durability": "memory"} if name.startswith("buffer") else {}
        reader = spark_session.readStream.format("stream_nothing").options(**durability)
        with pytest.raises(Exception, match=f"Option '{name}' of source 'stream_nothing' is '\\?'"):
            reader.option(name, "?").load()


@pytest.mark.parametrize("wait", ["10s", "250ms", "15m", "2h", "1d", timedelta(0), timedelta(days=1)])
def test_a_duration_has_a_unit(spark_session: SparkSession, wait: timedelta | str) -> None:
    assert hw.stream(spark_session, random_alpha(len=5), available_now_wait=wait).isStreaming
    assert re.fullmatch(r"\d+(ms|s|m|h|d)", encode("available_now_wait", wait))


def test_values_become_option_strings() -> None:
    assert camel("max_rows_per_trigger") == "maxRowsPerTrigger"
    assert camel("len") == "len"
    assert [encode("x", value) for value in (True, False, 3, 1.5, "64m")] == [
        "true",
        "false",
        "3",
        "1.5",
        "64m",
    ]
    assert encode("x", timedelta(minutes=15)) == "900000ms"


def test_a_source_is_a_value() -> None:
    assert random_alpha(5) == random_alpha(len=5, rows_per_second=500)
    assert random_alpha(5) != random_alpha(6)
    assert len({random_alpha(5), random_alpha(5), random_alpha(5, seed=0)}) == 2
    assert repr(random_alpha(5, seed=0)) == "random_alpha(len=5, rows_per_second=500, seed=0)"
    assert random_alpha(5, 0).options == {"len": "5", "rowsPerSecond": "0"}
    with pytest.raises(AttributeError):
        random_alpha(5).name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        random_alpha(5).settings["len"] = 6  # type: ignore[index]


DOCTESTED = [
    "cli.tables",
    "ddl",
    "errors",
    "jvm_source",
    "options",
    "reading",
    "registry",
    "source",
    "sources.random_alpha",
    "spark.feeds",
    "spark.session",
    "spark.stream",
    "testing.script",
]


@pytest.mark.parametrize("module", DOCTESTED)
def test_the_examples_in_docstrings_run(spark_session: SparkSession, module: str) -> None:
    imported = importlib.import_module(f"headwater.{module}")
    results = doctest.testmod(imported, extraglobs={"spark": spark_session})
    assert results.attempted > 0
    assert results.failed == 0
