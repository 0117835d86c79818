"""The socket to Spark's JVM: how to connect, and the connection over which the JVM gives its orders.

Who connects says one line, `headwater SECRET control` or `headwater SECRET feed ID`, and is answered `ok`. On
the control connection the JVM asks and Python answers, in JSON with its length before it. A feed's connection
is an Arrow IPC stream.
"""

from __future__ import annotations

import json
import logging
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Address", "Answer", "Asked", "Control", "answering"]

_log = logging.getLogger("headwater.bridge")
_LENGTH = struct.Struct(">i")
_few = threading.BoundedSemaphore(16)
"""Feeds that open at once; of many, a socket would refuse those that wait to be accepted."""

Answer = Callable[[dict[str, Any]], None]

Asked = Callable[[str, dict[str, Any], Answer], None]
"""Called with what is asked, the question, and where the answer goes; it must return soon."""


@dataclass(frozen=True)
class Address:
    """Where the JVM listens, and the secret that it wants to hear."""

    place: str
    secret: str

    def __repr__(self) -> str:
        return f"Address({self.place!r})"

    def connect(self, role: str) -> socket.socket:
        with _few:
            return self._connect(role)

    def _connect(self, role: str) -> socket.socket:
        kind, _, where = self.place.partition(":")
        if kind == "unix":
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            target: Any = where
        else:
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            target = ("127.0.0.1", int(where))
        try:
            connection.settimeout(30)
            connection.connect(target)
            connection.sendall(f"headwater {self.secret} {role}\n".encode("ascii"))
            if _exactly(connection, 3) != b"ok\n":
                raise ConnectionError(f"Spark's JVM refused the connection at {self.place}")
            connection.settimeout(None)
        except BaseException:
            connection.close()
            raise
        return connection


class Control:
    """The control connection, with a thread that listens on it for as long as the JVM lives."""

    def __init__(self, address: Address, asked: Asked, gone: Callable[[], None]) -> None:
        self._connection = address.connect("control")
        self._asked = asked
        self._gone = gone
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._listen, name="headwater-bridge", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _listen(self) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(_exactly(self._connection, _LENGTH.size))
                question = json.loads(_exactly(self._connection, length))
                self._take(question)
        except (OSError, EOFError):
            _log.debug("the connection to Spark's JVM is closed")
        finally:
            self._connection.close()
            self._gone()

    def _take(self, question: dict[str, Any]) -> None:
        number = question["id"]

        def answer(body: dict[str, Any]) -> None:
            self._send({"id": number, **body})

        answering(lambda: self._asked(question["ask"], question, answer), answer)

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        with self._sending:
            try:
                self._connection.sendall(_LENGTH.pack(len(data)) + data)
            except OSError:
                _log.debug("an answer came too late: the connection to Spark's JVM is closed")


def answering(work: Callable[[], None], answer: Answer) -> None:
    """The JVM waits for an answer, whatever goes wrong here; and the conversation goes on."""
    try:
        work()
    except BaseException as error:
        _log.exception("cannot answer Spark's JVM")
        answer({"error": {"message": f"{type(error).__name__}: {error}"}})


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = connection.recv(min(length - len(data), 1 << 20))
        if not piece:
            raise EOFError("the connection was closed")
        data += piece
    return bytes(data)
