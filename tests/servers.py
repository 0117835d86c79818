"""Real servers for tests, of programs that the system has, on this machine's loopback only."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from processes import APPS, kill_group, running, wait_until

__all__ = ["PASSWORD", "RedisServer", "redis_program", "redis_server", "starlette_server"]

PASSWORD = "not-to-be-told"


class RedisServer:
    """One redis-server that can be killed and started again, on the same port and the same data."""

    def __init__(self, program: str, folder: Path, options: tuple[str, ...]) -> None:
        self._folder = folder
        self._options = [program, "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *options]
        self.port = _free_port()
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"
        self.client = redis.Redis.from_url(self.url, decode_responses=True, socket_timeout=10)
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [*self._options, "--port", str(self.port), "--requirepass", PASSWORD]
        with (self._folder / "redis.log").open("ab") as log:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(self._answers, (self._folder / "redis.log").read_text, timeout=20)

    def kill(self) -> None:
        """SIGKILL: it has no time to write anything."""
        if self._popen is not None:
            kill_group(self._popen)

    def stop(self) -> None:
        self.client.close()
        self.kill()

    def _answers(self) -> bool:
        """It lives and has read its data."""
        if self._popen is None or self._popen.poll() is not None:
            raise AssertionError(f"it has ended: {(self._folder / 'redis.log').read_text()}")
        try:
            return bool(self.client.ping())
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    """Runs while the block lasts. It keeps its data in memory, if no option says otherwise."""
    program = redis_program()
    folder.mkdir()
    server = RedisServer(program, folder, options)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def starlette_server(folder: Path) -> Iterator[str]:
    """The URL of apps/starlette_app.py, without a path."""
    command = [sys.executable, "-m", "uvicorn", "--port", "0", "--app-dir", str(APPS), "starlette_app:app"]
    with running(command, folder / "server.log", os.environ) as server:
        yield server.until("its URL", lambda: re.search(r"running on (http://\S+)", server.output))[1]


def redis_program() -> str:
    """Skips the test where there is none."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server on the PATH; Debian has it in the package redis-server")
    return program


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
