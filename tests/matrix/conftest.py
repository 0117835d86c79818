"""One session for the suite, with the packaged jar in it, on whatever Spark is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw

Words = Callable[..., DataFrame]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = hw.session(builder)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def words(spark: SparkSession) -> Words:
    """A stream of words; the options are those of the source, or take the place of these."""

    def load(**options: object) -> DataFrame:
        chosen = {"len": 6, "seed": 7, "rowsPerSecond": 2000, "availableNowWait": "1s"} | options
        reader = spark.readStream.format("random_alpha")
        for name, value in chosen.items():
            reader = reader.option(name, value)  # type: ignore[arg-type]
        return reader.load()

    return load


@pytest.fixture(autouse=True)
def no_query_survives(spark: SparkSession) -> Iterator[None]:
    yield
    active = spark.streams.active
    for query in active:
        query.stop()
    assert not active


@pytest.fixture
def feed_threads(spark: SparkSession) -> Callable[[], list[str]]:
    """The names of the feeds' threads that live in the JVM."""

    def names() -> list[str]:
        threads = spark._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
        return [t.getName() for t in threads if t.getName().startswith("headwater-feed")]

    return names
