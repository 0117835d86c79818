"""Real servers for tests: redis-server and uvicorn, on the loopback interface only."""

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

PASSWORD = "not-to-be-logged"


class RedisServer:
    """A redis-server that can be killed and restarted on the same port and data."""

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
        wait_until(self._is_ready, (self._folder / "redis.log").read_text, timeout=20)

    def kill(self) -> None:
        """Kills it with SIGKILL, so that it cannot write anything."""
        if self._popen is not None:
            kill_group(self._popen)

    def stop(self) -> None:
        self.client.close()
        self.kill()

    def _is_ready(self) -> bool:
        """Whether it is running and has loaded its data."""
        if self._popen is None or self._popen.poll() is not None:
            raise AssertionError(f"it has ended: {(self._folder / 'redis.log').read_text()}")
        try:
            return bool(self.client.ping())
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    """Runs during the block. Data stays in memory, unless the options say otherwise."""
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
    """Yields the URL of apps/starlette_app.py, without a path."""
    command = [sys.executable, "-m", "uvicorn", "--port", "0", "--app-dir", str(APPS), "starlette_app:app"]
    with running(command, folder / "server.log", os.environ) as server:
        yield server.until("its URL", lambda: re.search(r"running on (http://\S+)", server.output))[1]


def redis_program() -> str:
    """The path of redis-server. Skips the test if it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not on the PATH; on Debian, install the package redis-server")
    return program


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
