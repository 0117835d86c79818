"""What the command shows on a terminal only: how long it has been waiting."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import default_sigint, program

SLOW = """
import threading
import headwater as hw

@hw.source("n INT")
def slow():
    yield 1
    yield 2
    threading.Event().wait()
"""

HEADWATER = (sys.executable, "-m", "headwater")


class Screen:
    """A terminal that a process writes to."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self.text = ""

    def until(self, pattern: str, timeout: float = 120) -> None:
        deadline = time.monotonic() + timeout
        while not re.search(pattern, self.text):
            assert time.monotonic() < deadline, f"{pattern!r} is not in {self.text!r}"
            if not self._read():
                raise AssertionError(f"ended without {pattern!r}: {self.text!r}")

    def to_end(self) -> str:
        while self._read():
            pass
        return self.text

    def _read(self) -> bool:
        try:
            chunk = os.read(self._terminal, 4096)
        except OSError:  # EIO: the process has ended
            return False
        self.text += chunk.decode()
        return bool(chunk)


@contextmanager
def on_terminal(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None, out: int | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], Screen]]:
    """Runs the command with a terminal as its standard error, and as its output unless there is another."""
    ours, theirs = pty.openpty()
    with default_sigint():
        process = subprocess.Popen(
            [*HEADWATER, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=theirs if out is None else out,
            stderr=theirs,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm", **(env or {})},
        )
    os.close(theirs)
    try:
        yield process, Screen(ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_peek_shows_how_many_rows_it_has_and_erases_that(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    with on_terminal("peek", "slow.py", cwd=tmp_path) as (process, screen):
        screen.until(r"\r\x1b\[K2 of 10 rows … \d+ s")
        process.send_signal(signal.SIGINT)
        text = screen.to_end()
        assert process.wait(60) == 130
    assert text.replace("\r\n", "\n").endswith("s\r\x1b[Kn\n-\n1\n2\nheadwater: interrupted\n")


def test_peek_shows_nothing_between_rows_that_go_to_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        SLOW.replace("    threading.Event().wait()\n", "    threading.Event().wait(3)\n")
    )
    with on_terminal("peek", "slow.py", "--json", cwd=tmp_path) as (_, screen):
        assert "\x1b" not in screen.to_end()


@pytest.mark.parametrize("stream", ["pipe", "dumb terminal"])
def test_without_a_terminal_no_progress_is_shown(tmp_path: Path, stream: str) -> None:
    (tmp_path / "slow.py").write_text(SLOW.replace("wait()", "wait(3)"))
    if stream == "pipe":
        command = [*HEADWATER, "peek", "slow.py"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=True)
        text = done.stdout + done.stderr
    else:
        with on_terminal("peek", "slow.py", cwd=tmp_path, env={"TERM": "dumb"}) as (_, screen):
            text = screen.to_end()
    assert "slow() ended after 2 rows" in text
    assert "\x1b" not in text
    assert "…" not in text


def test_doctor_prints_each_line_when_it_knows_it(clean_env: dict[str, str], tmp_path: Path) -> None:
    """The workers' Python never answers. All that was checked before it is on the screen."""
    stuck = program(tmp_path / "bin" / "python3", "exec sleep 1000")
    env = {**clean_env, "PYSPARK_PYTHON": str(stuck)}
    with on_terminal("doctor", cwd=tmp_path, env=env) as (process, screen):
        screen.until(r"ok   classic Spark.*\n")
        process.send_signal(signal.SIGINT)
        text = screen.to_end()
        assert process.wait(60) == 130
    assert text.splitlines()[-1].endswith("headwater: interrupted")
    assert "Traceback" not in text


def test_doctor_shows_that_spark_starts(own_spark: dict[str, str], tmp_path: Path) -> None:
    with on_terminal("doctor", cwd=tmp_path, env=own_spark) as (process, screen):
        screen.until(r"\r\x1b\[Kstarting Spark … \d+ s")
        text = screen.to_end()
        assert process.wait(60) == 0
    assert "s\r\x1b[Kok   jar " in text.replace("\r\n", "\n")


def test_checkpoint_shows_nothing_of_the_wait_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with on_terminal("checkpoint", "show", str(tmp_path), cwd=tmp_path) as (process, screen):
        text = screen.to_end()
        assert process.wait(60) == 0
    assert text.rpartition("\x1b[K")[2].startswith("checkpoint  ")
