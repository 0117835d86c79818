"""Ten mistakes of beginners: the first line of each message gives value, place and remedy."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from processes import program
from pyspark.sql import SparkSession

import headwater as hw
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

    message = first_line(stream(mistaken_row()).failure())
    assert all(part in message for part in ("'mistaken_row'", "row 1", "'id'", "'two'", "onBadRow"))


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
