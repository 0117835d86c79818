"""What the tests share: pytest-spark's session with the jar in it, and scripts in processes of their own."""

import json
import os
import shutil
import signal
import sys
import textwrap
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from processes import PACKAGE, QUICK_START, Run, run_command, spark_environment
from pyspark import cloudpickle
from pytest_spark.config import SparkConfigBuilder

from headwater import HeadwaterError, registry
from headwater.spark.jar import verified_jar
from headwater.testing import stream

__all__ = ["stream"]

settings.register_profile("tests", deadline=None)  # how long an example takes depends on the machine
settings.load_profile("tests")


@pytest.hookimpl(trylast=True)  # after pytest-spark has made its configuration of `spark_options`
def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job; programs under test inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_START)
    try:
        SparkConfigBuilder.get().set("spark.jars", str(verified_jar()))
    except HeadwaterError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that need Spark, and puts the files with most of them first.

    A file is run by one worker. A long one that begins last would keep the others waiting.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "own_spark" in fixtures:
            item.add_marker("process")
        elif "spark_session" in fixtures or "stream" in fixtures:
            item.add_marker("spark")
    marked = Counter(
        item.path for item in items for name in ("spark", "process") if item.get_closest_marker(name)
    )
    items.sort(key=lambda item: -marked[item.path])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI everything that a test may need is there: a skipped test is one that nobody ran."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") == "true" and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """What a test has logged travels between processes, which a lone surrogate cannot."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.fixture
def jar() -> Path:
    return verified_jar()


@pytest.fixture
def clean_env() -> dict[str, str]:
    """For scripts, which find the Spark of the Python that runs them."""
    return {name: value for name, value in spark_environment().items() if name != "SPARK_HOME"}


@pytest.fixture
def own_spark(clean_env: dict[str, str]) -> dict[str, str]:
    """For scripts that start Spark. A test that uses this fixture, or `run`, is marked `process`."""
    return clean_env


@pytest.fixture
def run(own_spark: dict[str, str], tmp_path: Path) -> Run:
    """Runs a Python script that calls `report(value)` once; returns that value. A failure shows the log."""

    def run_script(
        script: str, *, env: dict[str, str] | None = None, command: list[str] | None = None
    ) -> Any:
        answer, file = tmp_path / "answer.json", tmp_path / "script.py"
        answer.unlink(missing_ok=True)
        file.write_text(_HEAD.format(answer=str(answer)) + textwrap.dedent(script), encoding="utf-8")
        run_command([*(command or [sys.executable]), str(file)], {**own_spark, **(env or {})}, tmp_path)
        return json.loads(answer.read_text(encoding="utf-8"))

    return run_script


_HEAD = """
import json, threading, time
import headwater as hw
from pyspark.sql import SparkSession

def report(value):
    with open({answer!r}, "w") as file:
        json.dump(value, file)

def builder(master="local[2]"):
    return SparkSession.builder.master(master).config("spark.ui.enabled", "false")

def in_other_thread(action):
    results = []
    thread = threading.Thread(target=lambda: results.append(action()))
    thread.start()
    thread.join()
    return results[0]

def loads(spark):
    try:
        return spark.readStream.format("random_alpha").option("len", 5).load().columns
    except Exception as error:
        unknown = "DATA_SOURCE_NOT_FOUND", "headwater is not attached to this session"
        return "not found" if any(words in str(error) for words in unknown) else str(error)

def jars_of_executors(spark):
    listed = spark.sparkContext._jsc.sc().listJars()
    return sorted(listed.apply(i).rpartition("/")[2] for i in range(listed.size()))

def rows_of_a_query(spark):
    from headwater.sources import random_alpha
    words = hw.stream(spark, random_alpha(5, rows_per_second=100))
    query = words.writeStream.format("memory").queryName("words").start()
    end = time.monotonic() + 120
    while spark.table("words").count() == 0:
        assert not query.awaitTermination(0.2) and time.monotonic() < end, query.status
    query.stop()
    return spark.table("words").count()

def tasks_see_the_class(spark):
    version = "java_method('headwater.Version', 'current') AS v"
    return [row.v for row in spark.range(0, 8, 1, 4).selectExpr(version).distinct().collect()]

"""


@pytest.fixture
def by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Workers have no module of tests: what a test defines there has to travel as it is."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture
def copy_of_package(tmp_path: Path) -> Path:
    """A folder with a copy of the package, to be put on PYTHONPATH and damaged."""
    folder = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE / "headwater", folder / "headwater", ignore=ignored)
    return folder


@pytest.fixture(autouse=True)
def no_query_survives(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark_session" in request.fixturenames:
        active = request.getfixturevalue("spark_session").streams.active
        for query in active:
            query.stop()
        assert not active, f"the test left queries behind: {[query.id for query in active]}"


@pytest.fixture(autouse=True)
def sources_end_with_their_test() -> Iterator[None]:
    """Names of sources are one to a process, and which tests share a process differs from run to run."""
    before, schemes = dict(registry._sources), dict(registry._schemes)
    yield
    for name, cls in list(registry._sources.items()):
        if before.get(name) is not cls and not cls.__module__.startswith("headwater.sources."):
            del registry._sources[name]
    registry._sources.update(before)
    for scheme, cls in list(registry._schemes.items()):
        if schemes.get(scheme) is not cls and not cls.__module__.startswith("headwater.sources."):
            del registry._schemes[scheme]
    registry._schemes.update(schemes)
