"""The protocol between this process and Spark's JVM.

The JVM listens on a local socket. This process opens one **control** connection, and one **feed** connection
per running feed. Each begins with a handshake: see `Address.connect`.

On the control connection the JVM sends requests and this process sends one reply to each, in any order. A
message is a four-byte big-endian length and that many bytes of JSON. A request has an `id`, the kind of
request as `ask`, and the fields of that kind; its reply has the same `id` and either `answer`, an object, or
`error`, an object with a `message` and perhaps a `kind`. `REQUESTS` lists every kind of request; the fields
and the reply are described on its class.

A feed connection carries an Arrow stream of the feed's rows, from this process to the JVM: see
`headwater.runtime.batching`.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import struct
import threading
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from headwater import references, registry
from headwater.options import OptionError
from headwater.reading import PartitionKey
from headwater.registry import request_options
from headwater.runtime.forks import inherits
from headwater.runtime.threads import Deadline
from headwater.source import Shard

__all__ = [
    "DEFAULT_STOP_SECONDS",
    "AcknowledgeRequest",
    "Address",
    "AfterRequest",
    "CommittedRequest",
    "ControlConnection",
    "FeedRequest",
    "LoadRequest",
    "PositionsRequest",
    "Reply",
    "Request",
    "StartFrom",
    "StatusRequest",
    "StopRequest",
    "WatchRequest",
    "parse_request",
]

_log = logging.getLogger("headwater.bridge")

Message = dict[str, Any]


VERSION = 1
"""Of the handshake, the requests and the feeds' streams; the same number is in the JVM's BridgeServer."""


# Connections


_CONNECT_SECONDS = 30
_connecting = threading.BoundedSemaphore(16)  # a socket refuses connections beyond its backlog of 50


@dataclass(frozen=True)
class Address:
    """Where the JVM listens, `unix:PATH` or `tcp:PORT`, and the secret that a connection has to present."""

    endpoint: str
    secret: str

    def __repr__(self) -> str:
        return f"Address({self.endpoint!r})"

    def connect(self, role: str) -> socket.socket:
        """A new connection, after the handshake. `role` is `control`, or `feed` and the feed's id."""
        with _connecting:
            kind, _, path_or_port = self.endpoint.partition(":")
            target: Any
            if kind == "unix":
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                target = path_or_port
            else:
                connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                target = ("127.0.0.1", int(path_or_port))
            try:
                connection.settimeout(_CONNECT_SECONDS)
                connection.connect(target)
                self._shake_hands(connection, role)
                connection.settimeout(None)
            except BaseException:
                connection.close()
                raise
            return connection

    def _shake_hands(self, connection: socket.socket, role: str) -> None:
        """Send the line `headwater VERSION SECRET ROLE`.

        The JVM replies with the line `ok`, or with `version N` if it speaks another version, or it closes.
        """
        connection.sendall(f"headwater {VERSION} {self.secret} {role}\n".encode("ascii"))
        response = _read_line(connection)
        if response.startswith("version "):
            raise ConnectionError(
                f"headwater's jar speaks {response} of the protocol, and this Python version {VERSION}; use "
                "the package and the jar of one release"
            )
        if response != "ok":
            raise ConnectionError(f"Spark's JVM refused the connection at {self.endpoint}")


class Reply:
    """The reply to one request: `send` or `fail` is called once, from any thread."""

    def __init__(self, send_message: Callable[[Message], None]) -> None:
        self._send_message = send_message

    def send(self, answer: Message) -> None:
        self._send_message({"answer": answer})

    def fail(self, message: str, kind: str | None = None) -> None:
        """Kind `option`: an option of the source is wrong, so the JVM reports it as a user's mistake."""
        error = {"message": message} if kind is None else {"kind": kind, "message": message}
        self._send_message({"error": error})

    def fail_on_error(self, work: Callable[[], None]) -> None:
        """Do the work, which sends the reply. The JVM waits for a reply, so any error becomes one."""
        try:
            work()
        except BaseException as error:
            _log.exception("cannot handle a request of Spark's JVM")
            self.fail(f"{type(error).__name__}: {error}")


class ControlConnection:
    """The control connection, and the thread that reads requests from it for as long as the JVM lives.

    The thread calls `handle` with each request and its reply. Requests are read one after the other, so
    `handle` must return soon. `on_close` is called once, in the same thread, when the connection has ended.
    """

    def __init__(
        self, address: Address, handle: Callable[[Request, Reply], None], on_close: Callable[[], None]
    ) -> None:
        self._connection = address.connect("control")
        inherits(self)
        self._handle = handle
        self._on_close = on_close
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._listen, name="headwater-bridge", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def after_fork(self) -> None:
        """In a child process: let go of the connection."""
        self._connection.close()

    def _listen(self) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(_read_exactly(self._connection, _LENGTH.size))
                if not 0 < length <= _MAX_MESSAGE:
                    raise ValueError(f"a message of {length} bytes")
                self._receive(json.loads(_read_exactly(self._connection, length)))
        except (OSError, EOFError):
            _log.debug("the connection to Spark's JVM is closed")
        except Exception:
            _log.exception("a message of Spark's JVM cannot be read, so the connection is closed")
        finally:
            self._connection.close()
            self._on_close()

    def _receive(self, message: Message) -> None:
        reply = Reply(lambda body: self._send({"id": message["id"], **body}))
        reply.fail_on_error(lambda: self._handle(parse_request(message), reply))

    def _send(self, message: Message) -> None:
        data = json.dumps(message).encode()
        with self._sending:
            try:
                self._connection.sendall(_LENGTH.pack(len(data)) + data)
            except OSError:
                _log.debug("a reply was not sent: the connection to Spark's JVM is closed")


_LENGTH = struct.Struct(">i")
_MAX_MESSAGE = 64 << 20  # as in the JVM's PythonConnection
_MAX_LINE = 64


def _read_line(connection: socket.socket) -> str:
    """Byte by byte: what follows the line belongs to somebody else. Without the line break."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _MAX_LINE:
        line += _read_exactly(connection, 1)
    return line.decode("ascii", "replace").rstrip("\n")


def _read_exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        chunk = connection.recv(min(length - len(data), 1 << 20))
        if not chunk:
            raise EOFError("the connection was closed")
        data += chunk
    return bytes(data)


# Requests


@dataclass(frozen=True)
class LoadRequest:
    """`load`: make the source once, to describe it while Spark analyses a query.

    Fields: `source`, `options`, `onBadRow`, and `schema` (JSON) where the query sets one. The reply has
    `name`, `schema`, `arrowSchema`, `description`, `resumable`, `ack`, `identity`, `literalSecrets`,
    `partitioned`, `hasAt` and `hasAfter`.
    """

    source: str
    options: dict[str, str]
    schema: str | None
    on_bad_row: str = "fail"

    @classmethod
    def parse(cls, message: Message) -> LoadRequest:
        on_bad_row = message.get("onBadRow", "fail")
        return cls(message["source"], message["options"], message.get("schema"), on_bad_row)

    @property
    def name(self) -> str:
        return _name_of(self.source)

    def make_source(self) -> Any:
        """OptionError where the options are wrong."""
        source, options = references.expand(self.source, self.options)
        schema = {} if self.schema is None else {"schema": self.schema}
        return registry.find(source, request_options({"source": source, "options": options, **schema}))

    def secrets(self) -> list[str]:
        """The strings that no message may contain."""
        return _secrets_in(self.source, self.options)


@dataclass(frozen=True, kw_only=True)
class FeedRequest:
    """`open`: run a feed. The reply is empty, and is sent when rows can flow.

    Fields: `feed`, `source`, `options`, `schema`, `shard`, `shards`, `query`, `queryName`, `onError`,
    `maxRestarts`, `onBadRow`, `lingerMs`, `batchRows`, `since`, a string of JSON, and `ackOn`, if there will
    be acknowledgements.
    """

    feed: str
    source: str
    options: dict[str, str]
    shard: Shard
    query: str
    on_error: str
    """`fail`, `restart` or `end`."""
    max_restarts: int | None
    """Restarts in a row before the query fails; None for any number. Only with `restart`."""
    on_bad_row: str
    linger: float
    """Seconds."""
    batch_rows: int
    since: Any = None
    """The cursor to resume after."""
    ack_on: str | None = None
    """When cursors will be acknowledged: `durable`, `commit`, or None for never."""

    @classmethod
    def parse(cls, message: Message) -> FeedRequest:
        return cls(**_feed_fields(message))

    @property
    def name(self) -> str:
        return _name_of(self.source)

    def make_source(self) -> Any:
        """The configured source; a new instance each time."""
        return registry.find(self.source, self.options)

    def secrets(self) -> list[str]:
        """The strings that no message may contain."""
        return registry.secrets_in(self.source, self.options)

    def allows_restart(self, failures: int) -> bool:
        """Whether to start again after that many failures in a row."""
        within_limit = self.max_restarts is None or failures <= self.max_restarts
        return self.on_error == "restart" and within_limit

    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that puts the source and the query at the start of every line."""
        shard = f", shard {self.shard.index} of {self.shard.count}" if self.shard.count > 1 else ""
        prefix = f"[{self.name}{shard}, query {self.query}]"
        return _PrefixLogger(logging.getLogger("headwater.feed"), {"prefix": prefix})


@dataclass(frozen=True)
class AcknowledgeRequest:
    """`acknowledge`: all rows up to a cursor are durable, or committed. The reply is empty.

    Fields: `feed`, and `cursor`, a string of JSON.
    """

    feed: str
    cursor: Any

    @classmethod
    def parse(cls, message: Message) -> AcknowledgeRequest:
        return cls(message["feed"], json.loads(message["cursor"]))


@dataclass(frozen=True)
class StatusRequest:
    """`status`: the status of a feed, once it has a version newer than `version`.

    Fields: `feed`, `version`. The reply has `version`, and either `stopped` or the status: see `Feed.status`.
    """

    feed: str
    version: int

    @classmethod
    def parse(cls, message: Message) -> StatusRequest:
        return cls(message["feed"], message["version"])


@dataclass(frozen=True, kw_only=True)
class WatchRequest(FeedRequest):
    """`watch`: watch the partitions of a partitioned source.

    Fields: those of `open`, and `failOnDataLoss`, `callTimeoutMs`, `startFrom` and `known`. The reply has
    `reader`, see `headwater.runtime.tasks.reader_message`, and `committed`, whether the source wants to know
    of commits.
    """

    fail_on_data_loss: bool
    call_timeout: float
    """Seconds."""
    start_from: StartFrom
    known: frozenset[str]
    """The partitions, as strings, whose start the JVM has already."""

    @classmethod
    def parse(cls, message: Message) -> WatchRequest:
        return cls(
            **_feed_fields(message),
            fail_on_data_loss=message["failOnDataLoss"],
            call_timeout=message.get("callTimeoutMs", 30_000) / 1000,
            start_from=StartFrom.parse(message["startFrom"]),
            known=frozenset(message["known"]),
        )


@dataclass(frozen=True)
class StartFrom:
    """Where partitions begin that were never read: `earliest`, `latest`, `at` a time, or a `vector`."""

    kind: str = "earliest"
    time: datetime | None = None
    offsets: dict[str, int] | None = None

    @classmethod
    def parse(cls, message: Message) -> StartFrom:
        if message["kind"] == "at":
            text = re.sub(r"(\.\d{6})\d+", r"\1", message["time"])  # Java sends nanoseconds
            time = datetime.fromisoformat(text.replace("Z", "+00:00"))
            return cls("at", time=time.astimezone(timezone.utc))
        return cls(message["kind"], offsets=message.get("offsets"))

    def known_offset(self, partition: str) -> int | None:
        """Where that partition begins, if this is known without a call."""
        return (self.offsets or {}).get(partition)

    def call(self, partition: PartitionKey) -> tuple[str, tuple[Any, ...]] | None:
        """The method to call and its arguments; None where the first `latest` is the start."""
        if self.kind == "latest":
            return None
        return ("at", (partition, self.time)) if self.kind == "at" else ("earliest", (partition,))


@dataclass(frozen=True)
class PositionsRequest:
    """`positions`: the offsets of a watch, once they have a version newer than `version`.

    Fields: `feed`, `version`. The reply has `version`, and either `stopped` or the offsets: see `Poller`.
    """

    feed: str
    version: int

    @classmethod
    def parse(cls, message: Message) -> PositionsRequest:
        return cls(message["feed"], message["version"])


@dataclass(frozen=True)
class AfterRequest:
    """`after`: ends of ranges that hold at most so many rows. The reply has `ends`, by partition.

    Fields: `feed`, and `wanted`, a start and a number of rows for each partition.
    """

    feed: str
    limits: dict[str, tuple[int, int]]

    @classmethod
    def parse(cls, message: Message) -> AfterRequest:
        limits = {partition: (start, rows) for partition, (start, rows) in message["wanted"].items()}
        return cls(message["feed"], limits)


@dataclass(frozen=True)
class CommittedRequest:
    """`committed`: Spark has committed a batch of a partitioned source. The reply is empty.

    Fields: `feed`, and `offsets`, the end of the batch by partition.
    """

    feed: str
    offsets: dict[str, int]

    @classmethod
    def parse(cls, message: Message) -> CommittedRequest:
        return cls(message["feed"], message["offsets"])


@dataclass(frozen=True)
class RowRequest:
    """`row`: call the function of a sink with a row. The reply is empty, and is sent when it has returned.

    Fields: `sink`, and `row`, a string of JSON.
    """

    sink: str
    row: str

    @classmethod
    def parse(cls, message: Message) -> RowRequest:
        return cls(message["sink"], message["row"])


DEFAULT_STOP_SECONDS = 3.0
"""Where no JVM says how long a stop may take."""

_STOP_SHARE = 0.9  # of the time that the JVM waits; the rest is for the reply


@dataclass(frozen=True)
class StopRequest:
    """`stop`: stop a feed or a watch. The reply has its `state`, `stopped` or `abandoned`.

    Fields: `feed`, and `timeoutMs`, how long the JVM waits for the reply.
    """

    feed: str
    deadline: Deadline

    @classmethod
    def parse(cls, message: Message) -> StopRequest:
        if "timeoutMs" not in message:
            return cls(message["feed"], Deadline.after(DEFAULT_STOP_SECONDS))
        return cls(message["feed"], Deadline.after(message["timeoutMs"] / 1000).portion(_STOP_SHARE))


Request = (
    LoadRequest
    | FeedRequest
    | AcknowledgeRequest
    | StatusRequest
    | WatchRequest
    | PositionsRequest
    | AfterRequest
    | CommittedRequest
    | RowRequest
    | StopRequest
)

REQUESTS: dict[str, Callable[[Message], Request]] = {
    "load": LoadRequest.parse,
    "open": FeedRequest.parse,
    "acknowledge": AcknowledgeRequest.parse,
    "status": StatusRequest.parse,
    "watch": WatchRequest.parse,
    "positions": PositionsRequest.parse,
    "after": AfterRequest.parse,
    "committed": CommittedRequest.parse,
    "row": RowRequest.parse,
    "stop": StopRequest.parse,
}


def parse_request(message: Message) -> Request:
    """ValueError for a kind of request that is not known; OptionError where a schema cannot be set."""
    kind = message["ask"]
    if kind not in REQUESTS:
        raise ValueError(f"unknown request {kind!r}; known are {', '.join(REQUESTS)}")
    return REQUESTS[kind](message)


def _feed_fields(message: Message) -> dict[str, Any]:
    source, options = references.expand(message["source"], message["options"])
    return {
        "feed": message["feed"],
        "source": source,
        "options": request_options({**message, "source": source, "options": options}),
        "shard": Shard(message.get("shard", 0), message.get("shards", 1)),
        "query": message.get("queryName") or message.get("query") or "none",
        "on_error": message["onError"],
        "max_restarts": message.get("maxRestarts"),
        "on_bad_row": message["onBadRow"],
        "linger": message.get("lingerMs", 0) / 1000,
        "batch_rows": message["batchRows"],
        "since": json.loads(message.get("since", "null")),
        "ack_on": message.get("ackOn"),
    }


def _name_of(source: str) -> str:
    """The source's name, or the reference, without the token of a source that was passed as a value."""
    return references.shown(source)


def _secrets_in(source: str, options: dict[str, str]) -> list[str]:
    """The strings that no message about the source may contain. A reference itself contains no secret."""
    try:
        return registry.secrets_in(*references.expand(source, options))
    except OptionError:
        return []


class _PrefixLogger(logging.LoggerAdapter):  # type: ignore[type-arg]
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"{(self.extra or {})['prefix']} {msg}", kwargs
