"""Mistakes of beginners: the first line of each message gives value, place and remedy."""

import asyncio
import inspect
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from processes import Run, program
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import explain
from headwater.http import HttpError
from headwater.spark import doctor
from headwater.spark.jar import verified_jar
from headwater.testing import RunningStream

Stream = Callable[..., RunningStream]


@hw.source("id LONG, word STRING")
def mistakes(size: int = 3) -> Iterator[Any]:
    yield from ((n, "w") for n in range(size))


def first_line(error: object) -> str:
    return str(error).partition("\n")[0]


def test_a_wrong_option(spark_session: SparkSession) -> None:
    hw.attach(spark_session)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        spark_session.readStream.format("mistakes").option("size", "three").load()
    message = first_line(caught.value)
    assert all(part in message for part in ("'size'", "'three'", "source 'mistakes'", "an integer"))
    with pytest.raises(Exception) as caught:  # noqa: PT011
        spark_session.readStream.format("mistakes").option("siez", 3).load()
    message = first_line(caught.value)
    assert all(part in message for part in ("'siez'", "'mistakes'", "Did you mean 'size'?"))


def test_a_misspelt_format(spark_session: SparkSession) -> None:
    hw.attach(spark_session)
    with pytest.raises(hw.HeadwaterError) as caught:
        spark_session.readStream.format("mistake").load()
    message = str(caught.value)
    assert (
        message == "there is no format 'mistake' (did you mean 'mistakes'?). Fix: write format(\"mistakes\")."
    )
    assert caught.value.__context__ is None, "no Java stack"
    with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND") as other:
        spark_session.readStream.format("far_from_any_source").load()
    assert not isinstance(other.value, hw.HeadwaterError)


def test_a_session_that_is_not_attached(run: Run) -> None:
    said = run(
        """
        @hw.source("n LONG")
        def letters():
            yield 1

        def load(name):
            try:
                spark.readStream.format(name).load()
            except hw.HeadwaterError as error:
                return str(error)

        spark = builder().getOrCreate()
        before = [load(name) for name in ("letters", "random_alpha", "leters", "prices")]
        hw.attach(spark)
        report([before, spark.readStream.format("letters").load().columns])
        """
    )
    (letters, alpha, misspelt, unknown), columns = said
    for message in (letters, alpha, misspelt, unknown):
        assert "headwater is not attached to this session" in message
        assert "Fix: create the session with hw.session(), or call hw.attach(spark)" in message
    assert letters.startswith("'letters' is a source of headwater, and")
    assert alpha.startswith("'random_alpha' is a source of headwater, and")
    assert "(did you mean 'letters'?)" in misspelt
    assert "Spark has no format 'prices'" in unknown
    assert "import the module that defines the source" in unknown
    assert columns == ["n"]


def test_a_misspelt_keyword() -> None:
    nothing: Any = None
    with pytest.raises(
        TypeError, match=r"keyword 'max_row_per_trigger'\. Did you mean 'max_rows_per_trigger'\?"
    ):
        hw.stream(nothing, nothing, max_row_per_trigger=5)
    with pytest.raises(TypeError, match=r"keyword 'onBadRow'\. Did you mean 'on_bad_row'\?"):
        hw.stream(nothing, nothing, onBadRow="drop")
    with pytest.raises(TypeError, match=r"keyword 'zzz'\. Its keywords are: durability, buffer_bytes"):
        hw.stream(nothing, nothing, zzz=5)


class ClientError(Exception):
    """As a library of a protocol defines one."""


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (OSError("gone"), True),
        (TimeoutError(), True),
        (asyncio.TimeoutError(), True),
        (requests.ConnectionError("gone"), True),
        (HttpError("status 500"), True),
        (ClientError(), True),
        (TypeError("no"), False),
        (NameError("no"), False),
        (AttributeError("no"), False),
        (SyntaxError("no"), False),
        (ModuleNotFoundError("no"), False),
        (KeyError("no"), False),
        (ValueError("no"), False),
        (ZeroDivisionError("no"), False),
        (AssertionError("no"), False),
        (json.JSONDecodeError("no", "", 0), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_restart_is_advised_only_where_it_may_help(error: Exception, helps: bool) -> None:
    assert ("option onError" in explain(error, [])) is helps


def test_a_reserved_name() -> None:
    with pytest.raises(ValueError, match="rename it") as caught:

        @hw.source("id LONG")
        def mistaken_name(batch_rows: int = 5) -> Iterator[int]:
            yield batch_rows

    message = first_line(caught.value)
    assert all(
        part in message for part in ("'batch_rows'", "'mistaken_name'", "test_mistakes.py:", "batchRows")
    )


def test_a_forgotten_at(stream: Stream) -> None:
    @hw.source("id LONG")
    def forgotten_at(since: Any = None) -> Iterator[int]:
        yield 17

    message = first_line(stream(forgotten_at()).failure())
    assert all(part in message for part in ("'forgotten_at'", "it yielded 17", "Wrap its rows in hw.At"))

    @hw.source("id LONG")
    def forgotten_since() -> Iterator[hw.At]:
        yield hw.At(1, 17)

    message = first_line(stream(forgotten_since()).failure())
    assert all(part in message for part in ("'forgotten_since'", "a parameter `since`"))


def test_a_missing_jar(tmp_path: Path) -> None:
    with pytest.raises(hw.HeadwaterError) as caught:
        verified_jar(tmp_path)
    message = first_line(caught.value)
    assert all(part in message for part in (str(tmp_path), "is missing", "Fix: install headwater again"))


def test_read_in_place_of_read_stream(spark_session: SparkSession) -> None:
    hw.attach(spark_session)
    for name in ("mistakes", "random_alpha"):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            spark_session.read.format(name).option("len", 5).load()
        assert f'use spark.readStream.format("{name}")' in str(caught.value).partition("\tat ")[0]


def test_a_bad_row(stream: Stream) -> None:
    @hw.source("id LONG, word STRING")
    def mistaken_row() -> Iterator[Any]:
        yield 1, "one"
        yield "two", "two"

    failure = stream(mistaken_row()).failure()
    message = first_line(failure)
    assert all(part in message for part in ("'mistaken_row'", "row 1", "'id'", "'two'", "onBadRow"))
    lines, first = inspect.getsourcelines(mistaken_row._source_function)
    ones = [first + number for number, line in enumerate(lines) if "yield" in line]
    assert f"(test_mistakes.py:{ones[0]} or {ones[1]}, in mistaken_row)" in message
    assert 'Yielded at one of:\n  File "' in failure
    assert '    yield 1, "one"\n' in failure
    assert '    yield "two", "two"' in failure
    assert "headwater/" not in failure


def test_a_row_that_does_not_fit_names_the_line_that_yields_it(stream: Stream) -> None:
    class OneYield(hw.Source, name="mistaken_async", schema="id LONG"):
        async def read(self) -> AsyncIterator[Any]:
            await asyncio.sleep(0)
            for row in (1, "two"):
                await asyncio.sleep(0)
                yield row

    failure = stream(OneYield()).failure()
    lines, first = inspect.getsourcelines(OneYield.read)
    number = next(first + number for number, line in enumerate(lines) if "yield" in line)
    assert f"(test_mistakes.py:{number}, in read)" in first_line(failure)
    assert "Yielded at:\n" in failure
    assert "    yield row" in failure


def test_a_clashing_name() -> None:
    with pytest.raises(ValueError, match="another name") as caught:

        @hw.source("id LONG", name="mistakes")
        def other() -> Iterator[int]:
            yield 1

    message = first_line(caught.value)
    assert all(part in message for part in ("'mistakes'", "test_mistakes:mistakes", "test_a_clashing_name"))
    with pytest.raises(ValueError, match=r"'kafka' is a format of Spark.*choose another name"):
        hw.source("id LONG", name="kafka")(lambda: iter(()))


def test_a_failed_connection(stream: Stream) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

    @hw.source("line STRING")
    def unreachable(port: int) -> Iterator[str]:
        yield from requests.get(f"http://127.0.0.1:{port}/", stream=True, timeout=5).iter_lines()

    message = first_line(stream(unreachable(port)).failure())
    for part in ("'unreachable'", "ConnectionError", str(port), "Connection refused", "onError to restart"):
        assert part in message


def test_another_python_on_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Feeds run in the driver, and a query's own functions in the workers: there the doctor looks."""
    other = program(tmp_path / "python", "echo 3.7")
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    message = str(doctor.check_worker_python())
    assert all(part in message for part in ("3.7 in the workers", str(other), "set PYSPARK_PYTHON to"))


def test_a_read_that_forgot_to_yield(stream: Stream) -> None:
    @hw.source("id LONG")
    def forgotten_yield() -> Any:
        return None

    message = first_line(stream(forgotten_yield()).failure())
    assert all(part in message for part in ("'forgotten_yield'", "returned None", "make it a generator"))


def test_a_source_that_was_not_called(spark_session: SparkSession) -> None:
    with pytest.raises(TypeError, match=r"mistakes.*call it"):
        hw.stream(spark_session, mistakes)  # type: ignore[arg-type]
