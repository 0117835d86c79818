"""The protocol between this process and Spark's JVM: addresses, the control connection, requests."""

from __future__ import annotations

import json
import logging
import math
import re
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from headwater import registry
from headwater.reading import PartitionKey
from headwater.registry import request_options
from headwater.source import Shard

__all__ = [
    "Address",
    "ControlConnection",
    "FeedRequest",
    "Reply",
    "RequestHandler",
    "StartFrom",
    "WatchRequest",
    "replying_to_errors",
]

_log = logging.getLogger("headwater.bridge")
_LENGTH = struct.Struct(">i")
_few = threading.BoundedSemaphore(16)
"""Feeds that open at once; of many, a socket would refuse those that wait to be accepted."""

Reply = Callable[[dict[str, Any]], None]

RequestHandler = Callable[[str, dict[str, Any], Reply], None]
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


class ControlConnection:
    """The control connection, with a thread that listens on it for as long as the JVM lives."""

    def __init__(self, address: Address, asked: RequestHandler, gone: Callable[[], None]) -> None:
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

        replying_to_errors(lambda: self._asked(question["ask"], question, answer), answer)

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        with self._sending:
            try:
                self._connection.sendall(_LENGTH.pack(len(data)) + data)
            except OSError:
                _log.debug("an answer came too late: the connection to Spark's JVM is closed")


def replying_to_errors(work: Callable[[], None], answer: Reply) -> None:
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


@dataclass(frozen=True)
class FeedRequest:
    """One feed that is to run."""

    feed: str
    source: str
    options: dict[str, str]
    shard: Shard
    query: str
    on_error: str
    most_failures: float
    """In a row; one more fails the query, whatever `on_error` says."""
    on_bad_row: str
    linger: float
    batch_rows: int
    since: Any = None
    """The cursor to go on after."""

    @classmethod
    def read(cls, question: dict[str, Any]) -> FeedRequest:
        return cls(
            feed=question["feed"],
            source=question["source"],
            options=request_options(question),
            shard=Shard(question.get("shard", 0), question.get("shards", 1)),
            query=question.get("queryName") or question.get("query") or "none",
            on_error=question["onError"],
            most_failures=question.get("maxRestarts", math.inf),
            on_bad_row=question["onBadRow"],
            linger=question.get("lingerMs", 0) / 1000,
            batch_rows=question["batchRows"],
            since=json.loads(question.get("since", "null")),
        )

    @property
    def name(self) -> str:
        """The source's name, without the mark of a value that was handed over."""
        return self.source.partition("@")[0]

    def make(self) -> Any:
        """The configured source; a new instance each time."""
        return registry.find(self.source, self.options)

    def secrets(self) -> list[str]:
        """What must not be told."""
        return registry.secrets_in(self.source, self.options)


@dataclass(frozen=True)
class StartFrom:
    """Where partitions begin that were never read: `earliest`, `latest`, `at` a time, or a `vector`."""

    kind: str = "earliest"
    time: datetime | None = None
    offsets: dict[str, int] | None = None

    @classmethod
    def read(cls, asked: dict[str, Any]) -> StartFrom:
        if asked["kind"] == "at":
            text = re.sub(r"(\.\d{6})\d+", r"\1", asked["time"])  # Java's have nanoseconds
            time = datetime.fromisoformat(text.replace("Z", "+00:00"))
            return cls("at", time=time.astimezone(timezone.utc))
        return cls(asked["kind"], offsets=asked.get("offsets"))

    def known(self, partition: str) -> int | None:
        """Where that one begins, if no call is needed to know it."""
        return (self.offsets or {}).get(partition)

    def call(self, partition: PartitionKey) -> tuple[str, tuple[Any, ...]] | None:
        """The method to call, and its arguments; None: its first `latest` is its start."""
        if self.kind == "latest":
            return None
        return ("at", (partition, self.time)) if self.kind == "at" else ("earliest", (partition,))


@dataclass(frozen=True)
class WatchRequest:
    """One watch that is to run. `known` are the partitions, as texts, whose start the JVM has."""

    order: FeedRequest
    fail_on_data_loss: bool
    start_from: StartFrom
    known: frozenset[str]
    max_restarts: int | None

    @classmethod
    def read(cls, question: dict[str, Any]) -> WatchRequest:
        return cls(
            order=FeedRequest.read(question),
            fail_on_data_loss=question["failOnDataLoss"],
            start_from=StartFrom.read(question["startFrom"]),
            known=frozenset(question["known"]),
            max_restarts=question.get("maxRestarts"),
        )
