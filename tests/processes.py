"""Real processes for tests, each in a group of its own that never outlives the test."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pyspark

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python"
APPS = Path(__file__).resolve().parent / "apps"
SPARK_HOME = Path(pyspark.__file__).resolve().parent
SUBMIT = str(SPARK_HOME / "bin" / "spark-submit")

QUIET = ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]

IN_SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""For JVMs that live for seconds: no time is spent on making them fast."""

_ARCHIVE = ROOT / ".tools" / "spark.jsa"  # see class_archive.py
QUICK_START = (
    f'{IN_SHORT} -XX:SharedArchiveFile="{_ARCHIVE}" -Xlog:disable' if _ARCHIVE.exists() else IN_SHORT
)
"""The same, with classes that need not be read and checked again."""

T = TypeVar("T")
Run = Callable[..., Any]


def fork() -> int:
    """Forks the process of a test. Objects of py4j that the child collected would be gone for its parent."""
    child = os.fork()
    if child == 0:
        gc.disable()
    return child


def package_version() -> str:
    text = (PACKAGE / "headwater/_version.py").read_text()
    return text.partition('__version__ = "')[2].partition('"')[0]


JAR = PACKAGE / f"headwater/jars/headwater-{package_version()}.jar"
EXAMPLES_JAR = ROOT / f"examples/scala/target/headwater-examples-{package_version()}.jar"


def spark_environment(**more: str) -> dict[str, str]:
    """The environment for a Spark of its own: the installed package, on this machine's loopback only."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_")) and k != "MASTER"}
    return env | {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": QUICK_START,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        **more,
    }


class Process:
    """A process that runs, and what it has printed so far."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.popen = popen
        self.log = log

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def ending(self) -> str:
        return self.output[-8000:]

    def wait(self, timeout: float) -> str:
        """The whole output, once the process has ended with exit code 0."""
        code = self.exit_code(timeout)
        assert code == 0, f"exit code {code} of {self.popen.args!r}\n{self.ending}"
        return self.output

    def exit_code(self, timeout: float) -> int:
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.popen.args!r} did not end in {timeout} s\n{self.ending}") from None

    def until(self, what: str, condition: Callable[[], T | None], timeout: float = 60) -> T:
        """The first true value of `condition`, while the process lives."""
        deadline = time.monotonic() + timeout
        while True:
            ended = self.popen.poll() is not None
            value = condition()
            if value:
                return value
            if ended:
                raise AssertionError(f"ended before {what}\n{self.ending}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout} s: {what}\n{self.ending}")
            time.sleep(0.05)


@contextmanager
def running(
    command: Sequence[str], log: Path, env: Mapping[str, str], *, stdin: int = subprocess.DEVNULL
) -> Iterator[Process]:
    """Runs a command while the block lasts; afterwards it and all that it started are gone."""
    with log.open("wb") as out, default_sigint():
        popen = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        yield Process(popen, log)
    finally:
        kill_group(popen)


@contextmanager
def default_sigint() -> Iterator[None]:
    """A process started in this block reacts to SIGINT, even if this process ignores it.

    A shell starts its background jobs with SIGINT ignored, and child processes inherit that.
    """
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def kill_group(popen: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGKILL)
    popen.wait(10)


def submit(arguments: Sequence[str], folder: Path, timeout: float = 120) -> str:
    """What `spark-submit` printed, once it has ended well."""
    with running([SUBMIT, *QUIET, *arguments], folder / "submit.log", spark_environment()) as process:
        return process.wait(timeout)


def run_command(command: Sequence[str], env: Mapping[str, str], folder: Path, timeout: float = 180) -> str:
    """What a command printed, once it has ended well."""
    with running(command, folder / "command.log", env) as process:
        return process.wait(timeout)


def program(file: Path, script: str) -> Path:
    """A program of a few lines of shell, to stand where another is looked for."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def wait_until(true: Callable[[], bool], what: Callable[[], object], timeout: float = 60) -> None:
    """Wait for a condition; where it does not come, fail with what was going on."""
    end = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < end, f"waited {timeout} s in vain; at the end: {what()}"
        time.sleep(0.05)
