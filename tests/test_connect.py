"""A real Spark Connect server, with the jar or without, and clients in processes of their own."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from processes import APPS, JAR, QUIET, SUBMIT, running, spark_environment
from words import words

pytestmark = pytest.mark.process


@contextmanager
def connect_server(folder: Path, *arguments: str) -> Iterator[str]:
    command = [SUBMIT, *QUIET, "--master", "local[2]", *arguments]
    command += ["--conf", "spark.connect.grpc.binding.address=127.0.0.1"]
    command += ["--conf", "spark.connect.grpc.binding.port=0"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with running(command, folder / "server.log", spark_environment()) as server:
        started = r"Spark Connect server started at: [^:]*:(\d+)"
        port = server.until("the server's port", lambda: re.search(started, server.output))[1]
        yield f"sc://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def bare_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


def read(url: str, how: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, str(APPS / "connect_reader.py"), url, str(JAR), how]
    with running(command, folder / "client.log", spark_environment()) as client:
        output = client.wait(120)
    result = re.search(r"^RESULT (.*)$", output, re.MULTILINE)
    assert result, output
    return dict(json.loads(result[1]))


def check(result: dict[str, Any]) -> None:
    """The first rows of the seeded stream, all of them and no other, in batches as big as the limit."""
    values, batches = result["values"], result["batches"]
    assert len(values) > 300
    assert values == words(seed=7, count=len(values), length=9)
    assert sum(batches) == len(values)
    assert set(batches[:-1]) == {300}


def test_a_client_reads_from_a_server_that_was_started_with_the_jar(tmp_path: Path) -> None:
    with connect_server(tmp_path, "--jars", str(JAR)) as url:
        check(read(url, "known", tmp_path))


@pytest.mark.parametrize("how", ["artifact", "attach"])
def test_a_client_brings_the_jar_to_a_server_without_it(how: str, bare_server: str, tmp_path: Path) -> None:
    check(read(bare_server, how, tmp_path))


def test_a_python_source_is_refused_early_with_what_does_work(bare_server: str, tmp_path: Path) -> None:
    said = read(bare_server, "python", tmp_path)
    for part in ("'connect_numbers'", "Spark Connect", "classic session", "random_alpha"):
        assert part in said["stream"]
    assert "No Python process is attached" in said["format"]
    assert "Connect" in said["format"]


def test_load_explains_a_format_that_the_server_does_not_know(bare_server: str, tmp_path: Path) -> None:
    said = read(bare_server, "formats", tmp_path)
    assert "'random_alpha' is a source of headwater, and headwater is not attached" in said["unattached"]
    assert said["random_alpha"] == "loaded", "an option is missing, which comes up later"
    assert "(did you mean 'random_alpha'?)" in said["random_alfa"]
    assert "is written in Python" in said["connect_letters"]
    assert "(did you mean 'connect_letters'?)" in said["connect_leters"]
    assert said["nothing_like_it"] == "loaded", "the server is not asked"
    assert "DATA_SOURCE_NOT_FOUND" not in (tmp_path / "client.log").read_text()
