"""The HTTP server that all simulators share.

A simulator (`Sim`) listens in a thread of its own. Each request gets a thread, which first looks for a fault
of the request, then asks the simulator which records the request is for (`Sim.answer`), and sends them
(`_Connection`).
"""

from __future__ import annotations

import logging
import selectors
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, urlsplit

from headwater.sim.faults import (
    BadRecord,
    CutMidCharacter,
    CutMidRecord,
    End,
    Fault,
    FaultPlan,
    Redirect,
    Repeat,
    Reset,
    Skip,
    Stall,
    Status,
)
from headwater.sim.timeline import Timeline

__all__ = ["RefusedError", "Reply", "Request", "Sim"]

_LOG = logging.getLogger("headwater.sim")
_MAX_WRITE_BYTES = 64 * 1024
_MOVED = "/moved"  # the prefix of the paths that redirects lead to

AnySim = TypeVar("AnySim", bound="Sim")


@dataclass(frozen=True)
class Request:
    """A request: `path` is without the query, names of `headers` are in lower case."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    """The records from number `start` on.

    `encode` returns the bytes of a record, or nothing if the request is not for it. `bad` are the bytes of a
    malformed record.
    """

    content_type: str
    start: int
    encode: Callable[[int], bytes]
    bad: bytes
    greeting: bytes = b""
    keep_alive: bytes = b""
    frame: Callable[[bytes], bytes] = lambda data: b"%x\r\n%b\r\n" % (len(data), data)
    """Makes a record ready to be sent: by default as a chunk of HTTP."""
    last: bytes = b"0\r\n\r\n"
    """The proper end."""
    handshake: Mapping[str, str] | None = None
    """The headers of a response with status 101, after which HTTP is over."""
    respond: Callable[[bytes], bytes | None] = lambda data: None
    """What to send in response to bytes of the reader; None if it has disconnected."""


class RefusedError(Exception):
    """A request gets this status and no records."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Sim(ABC):
    """An HTTP server on this machine. It listens as soon as it is created; `close()` or `with` ends it."""

    path: ClassVar[str]

    def __init__(
        self,
        seed: int = 0,
        rate: float = 50,
        count: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        start: datetime | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        keep_alive_seconds: float = 15,
    ) -> None:
        self.seed = seed
        self.timeline = Timeline(rate, count, start)
        self._fault_plan = FaultPlan(faults)
        self._keep_alive_seconds = keep_alive_seconds
        self._lock = threading.Lock()
        self._sent = array("q")
        self._sent_up_to = 0
        self._requests: list[Request] = []
        self._readers: set[socket.socket] = set()
        self._server = _Server((host, port), self)
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name=f"headwater-sim-{self.url}", daemon=True
        )
        self._thread.start()

    @abstractmethod
    def answer(self, request: Request) -> Reply:
        """The records that a request is for. Raises RefusedError."""

    @property
    def url(self) -> str:
        """The URL of the feed."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}{self.path}"

    @property
    def sent(self) -> list[int]:
        """The numbers of all records that were sent completely, in order, with repeats."""
        with self._lock:
            return self._sent.tolist()

    @property
    def requests(self) -> list[Request]:
        """All requests, including those that got no records."""
        with self._lock:
            return list(self._requests)

    @property
    def faults_come(self) -> list[Fault]:
        """The faults that have happened, in order."""
        return self._fault_plan.happened

    def finish(self) -> int:
        """Stops making records, and returns how many there are. Connections stay open."""
        self.timeline.finish()
        return self.timeline.end

    def close(self) -> None:
        """Ends all connections and the server. Leaves no thread behind."""
        self._stop.close()  # makes the other end readable, which every connection waits for
        with self._lock:
            for reader in self._readers:
                with suppress(OSError):
                    reader.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._stopped.close()

    def __enter__(self: AnySim) -> AnySim:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _fault_of(self, request: Request) -> Fault | None:
        with self._lock:
            self._requests.append(request)
            sent = self._sent_up_to
        return self._fault_plan.at_request(sent)

    def _serve(self, reader: socket.socket, reply: Reply) -> None:
        with self._lock:
            self._readers.add(reader)
        try:
            _Connection(
                reader,
                reply,
                timeline=self.timeline,
                fault_plan=self._fault_plan,
                stopped=self._stopped,
                record_sent=self._record_sent,
                keep_alive_seconds=self._keep_alive_seconds,
            ).run()
        finally:
            with self._lock:
                self._readers.discard(reader)

    def _record_sent(self, numbers: list[int]) -> None:
        with self._lock:
            self._sent.extend(numbers)
            self._sent_up_to = max(self._sent_up_to, numbers[-1] + 1)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them

    def __init__(self, address: tuple[str, int], sim: Sim) -> None:
        self.sim = sim
        super().__init__(address, _Handler)

    def shutdown_request(self, request: Any) -> None:
        """Closes without a FIN, which the base class sends first: a connection that is reset has none."""
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOG.debug("a reader has disconnected", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.close_connection = True
        url = urlsplit(self.path.removeprefix(_MOVED))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(url.path, dict(parse_qsl(url.query, keep_blank_values=True)), headers)
        fault = self.server.sim._fault_of(request)
        if isinstance(fault, Status):
            self._send_status(fault.code, "a simulated fault", {"Retry-After": fault.retry_after})
        elif isinstance(fault, Redirect):
            self._send_status(fault.code, "a redirect", {"Location": fault.to or f"{_MOVED}{self.path}"})
        else:
            self._send_records(request)

    def _send_records(self, request: Request) -> None:
        try:
            reply = self.server.sim.answer(request)
        except RefusedError as refused:
            self._send_status(refused.status, str(refused), {})
            return
        chunked = {"Content-Type": reply.content_type, "Transfer-Encoding": "chunked"}
        self.send_response(200 if reply.handshake is None else 101)
        for name, value in (reply.handshake or chunked).items():
            self.send_header(name, value)
        self.end_headers()
        self.server.sim._serve(self.connection, reply)

    def _send_status(self, status: int, text: str, headers: dict[str, Any]) -> None:
        body = b"" if status == 204 else f"{text}\n".encode()
        self.send_response(status)
        framing = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in {**framing, **headers, "Connection": "close"}.items():
            if value is not None:
                self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.info(format, *args)


class _Connection:
    """Sends records to one reader, each in a chunk of its own, and injects the faults.

    `stopped` is a socket that becomes readable when the simulator stops; `record_sent` gets the numbers of
    the records.
    """

    def __init__(
        self,
        reader: socket.socket,
        reply: Reply,
        *,
        timeline: Timeline,
        fault_plan: FaultPlan,
        stopped: socket.socket,
        record_sent: Callable[[list[int]], None],
        keep_alive_seconds: float,
    ) -> None:
        self._reader = reader
        self._reply = reply
        self._timeline = timeline
        self._fault_plan = fault_plan
        self._record_sent = record_sent
        self._keep_alive_seconds = keep_alive_seconds if reply.keep_alive else None
        self._selector = selectors.DefaultSelector()
        self._selector.register(reader, selectors.EVENT_READ)
        self._selector.register(stopped, selectors.EVENT_READ)

    def run(self) -> None:
        """Returns when the reader disconnects, the simulator stops, or a fault ends the connection."""
        try:
            if self._reply.greeting:
                self._reader.sendall(self._reply.frame(self._reply.greeting))
            n = self._reply.start
            while True:
                self._wait_for(n)
                if self._reply.handshake is not None:
                    self._pause(0)  # a reader may expect an answer before all records are sent
                n = self._send_from(n)
        except (_ConnectionOver, OSError):
            pass
        finally:
            self._selector.close()

    def _wait_for(self, n: int) -> None:
        while (left := self._timeline.seconds_to(n)) != 0:
            if left is not None and (self._keep_alive_seconds is None or left < self._keep_alive_seconds):
                self._pause(left)
            elif self._keep_alive_seconds is None:
                self._pause(None)
            else:
                self._pause(self._keep_alive_seconds)
                self._reader.sendall(self._reply.keep_alive)

    def _pause(self, seconds: float | None) -> None:
        end = None if seconds is None else time.monotonic() + seconds
        while ready := self._selector.select(None if end is None else max(0.0, end - time.monotonic())):
            data = (
                b"" if any(key.fileobj is not self._reader for key, _ in ready) else self._reader.recv(65_536)
            )
            response = self._reply.respond(data) if data else None
            if response is None:
                raise _ConnectionOver
            self._reader.sendall(response)

    def _send_from(self, n: int) -> int:
        """Sends the records that exist, up to the next fault, and returns the number of the next record."""
        chunks, numbers, size, end = list[bytes](), list[int](), 0, self._timeline.made
        while n < end and size < _MAX_WRITE_BYTES:
            data = self._reply.encode(n)
            if data and (fault := self._fault_plan.at_record(n, data)):
                self._send(chunks, numbers)
                return self._inject(fault, n, data)
            if data:
                chunks.append(self._reply.frame(data))
                numbers.append(n)
                size += len(data)
            n += 1
        self._send(chunks, numbers)
        return n

    def _send(self, chunks: list[bytes], numbers: list[int]) -> None:
        """Records the numbers first, so that a reader that has a record also finds it in `sent`."""
        if chunks:
            self._record_sent(numbers)
            self._reader.sendall(b"".join(chunks))

    def _inject(self, fault: Fault, n: int, data: bytes) -> int:
        match fault:
            case Stall():
                self._pause(fault.seconds)
            case Repeat():
                self._repeat(n, fault.count)
            case Skip():
                return self._skip(n, fault.count)
            case BadRecord():
                self._reader.sendall(self._reply.frame(self._reply.bad))
            case _:
                self._end(fault, data)
        return n

    def _end(self, fault: Fault, data: bytes) -> None:
        if isinstance(fault, End):
            self._reader.sendall(self._reply.last)
        elif isinstance(fault, Reset):
            self._reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif isinstance(fault, CutMidRecord):
            self._send_part(data, len(data) // 2)
        elif isinstance(fault, CutMidCharacter):
            self._send_part(data, next(i for i, byte in enumerate(data) if byte > 127) + 1)
        raise _ConnectionOver

    def _send_part(self, data: bytes, size: int) -> None:
        framed = self._reply.frame(data)
        self._reader.sendall(framed[: framed.rindex(data) + size])

    def _repeat(self, n: int, count: int) -> None:
        numbers: list[int] = []
        while n > 0 and len(numbers) < count:
            n -= 1
            if self._reply.encode(n):
                numbers.insert(0, n)
        self._send([self._reply.frame(self._reply.encode(number)) for number in numbers], numbers)

    def _skip(self, n: int, count: int) -> int:
        """The number after the next `count` records that the request is for."""
        while count > 0 and n < self._timeline.end:
            count -= bool(self._reply.encode(n))
            n += 1
        return n


class _ConnectionOver(Exception):  # noqa: N818
    """Nothing more is sent on this connection."""
