"""Real servers for tests: redis-server, mosquitto and uvicorn, on the loopback interface only."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from processes import APPS, kill_group, running, wait_until

__all__ = [
    "PASSWORD",
    "Mosquitto",
    "RedisServer",
    "RestApi",
    "mosquitto",
    "redis_program",
    "redis_server",
    "rest_api",
    "starlette_server",
]

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


class RestApi:
    """apps/poll_app.py on uvicorn, which can be killed and restarted on the same port and data."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, _free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._popen: subprocess.Popen[bytes] | None = None
        self.add(0)

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "--port",
            str(self._port),
            "--app-dir",
            str(APPS),
            "poll_app:app",
        ]
        with (self._folder / "server.log").open("ab") as log:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "POLL_APP_FOLDER": str(self._folder)},
            )
        wait_until(self._is_ready, (self._folder / "server.log").read_text, timeout=60)

    def kill(self) -> None:
        """Kills it with SIGKILL, so that responses are cut off."""
        if self._popen is not None:
            kill_group(self._popen)

    def add(self, records: int) -> None:
        """From now on there are so many records in all."""
        unfinished = self._folder / "unfinished"
        unfinished.write_text(str(records))
        unfinished.replace(self._folder / "records")

    @property
    def requests(self) -> list[dict[str, Any]]:
        """What was asked so far."""
        file = self._folder / "requests"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def _is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


@contextmanager
def rest_api(folder: Path) -> Iterator[RestApi]:
    folder.mkdir()
    server = RestApi(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


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


class Mosquitto:
    """A mosquitto that can be killed and restarted on the same port and data.

    It writes its data to disk when it is told to with `save`, and when it ends by itself.
    """

    def __init__(self, program: str, folder: Path, options: tuple[str, ...], scheme: str) -> None:
        self._program = program
        self._folder = folder
        self.port = _free_port()
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._popen: subprocess.Popen[bytes] | None = None
        self._config = folder / "mosquitto.conf"
        self._data = folder / "mosquitto.db"
        lines = [
            f"listener {self.port} 127.0.0.1",
            f"user {getpass.getuser()}",  # started by root, it would become another one
            "persistence true",
            f"persistence_location {folder}/",
            "autosave_interval 0",
            "max_queued_messages 0",
            *(
                []
                if any(line.startswith("allow_anonymous") for line in options)
                else ["allow_anonymous true"]
            ),
            *options,
        ]
        self._config.write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                [self._program, "-c", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(self._is_ready, self.log.read_text, timeout=20)

    @property
    def log(self) -> Path:
        return self._folder / "mosquitto.log"

    def save(self) -> None:
        """Writes its data to disk: what a kill leaves."""
        assert self._popen is not None
        self._data.unlink(missing_ok=True)
        self._popen.send_signal(signal.SIGUSR1)
        wait_until(lambda: self._data.exists() and not self._is_saving(), self.log.read_text, timeout=20)

    def kill(self) -> None:
        """Kills it with SIGKILL, so that it cannot write anything."""
        if self._popen is not None:
            kill_group(self._popen)

    def _is_saving(self) -> bool:
        return self._data.with_suffix(".db.new").exists()

    def _is_ready(self) -> bool:
        if self._popen is None or self._popen.poll() is not None:
            raise AssertionError(f"it has ended: {self.log.read_text()}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def mosquitto(folder: Path, *options: str, scheme: str = "mqtt") -> Iterator[Mosquitto]:
    """Runs during the block. The options are lines of its configuration file."""
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("mosquitto is not on the PATH; on Debian, install the package mosquitto")
    folder.mkdir()
    broker = Mosquitto(program, folder, options, scheme)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
