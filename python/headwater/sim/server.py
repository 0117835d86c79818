"""The HTTP server of the simulators."""

from __future__ import annotations

import logging
import selectors
import socket
import struct
import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, urlsplit

from headwater.sim import faults as _faults
from headwater.sim.faults import Armed, Fault, Redirect, Status
from headwater.sim.records import Timeline

__all__ = ["Connection", "Listener", "RefusedError", "Reply", "Request", "Sim"]


@dataclass(frozen=True)
class Request:
    """As it came: `path` without the query, names of headers in lower case."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    """Records from number `start` on. `encode` gives one as it goes out, or nothing if it is not wanted."""

    content_type: str
    start: int
    encode: Callable[[int], bytes]
    bad: bytes
    greeting: bytes = b""
    keep_alive: bytes = b""


class RefusedError(Exception):
    """A request that gets no records."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


_log = logging.getLogger("headwater.sim")
_MOVED = "/moved"


class Listener(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them

    def __init__(
        self,
        address: tuple[str, int],
        fault_for: Callable[[Request], Fault | None],
        answer: Callable[[Request], Reply],
        serve: Callable[[socket.socket, Reply], None],
    ) -> None:
        self.fault_for = fault_for
        self.answer = answer
        self.serve = serve
        super().__init__(address, _Handler)

    def shutdown_request(self, request: Any) -> None:
        """Without the good-bye that the base class sends first: a connection that is reset has none."""
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a reader has gone", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: Listener
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.close_connection = True
        url = urlsplit(self.path.removeprefix(_MOVED))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(url.path, dict(parse_qsl(url.query, keep_blank_values=True)), headers)
        fault = self.server.fault_for(request)
        if isinstance(fault, Status):
            self._say(fault.code, "a fault on demand", {"Retry-After": fault.retry_after})
        elif isinstance(fault, Redirect):
            self._say(fault.code, "elsewhere", {"Location": fault.to or f"{_MOVED}{self.path}"})
        else:
            self._stream(request)

    def _stream(self, request: Request) -> None:
        try:
            answer = self.server.answer(request)
        except RefusedError as refused:
            self._say(refused.status, str(refused), {})
            return
        self.send_response(200)
        for name, value in {"Content-Type": answer.content_type, "Transfer-Encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.server.serve(self.connection, answer)

    def _say(self, status: int, text: str, headers: dict[str, Any]) -> None:
        body = b"" if status == 204 else f"{text}\n".encode()
        self.send_response(status)
        more = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in {**more, **headers, "Connection": "close"}.items():
            if value is not None:
                self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        _log.info(format, *args)


_AT_ONCE = 64 * 1024
_LAST_CHUNK = b"0\r\n\r\n"


class _OverError(Exception):
    """Nothing more goes out here."""


class Connection:
    """`stopped` is a socket that becomes readable when the simulator stops; `note` is told what is sent."""

    def __init__(
        self,
        reader: socket.socket,
        stopped: socket.socket,
        timeline: Timeline,
        armed: Armed,
        answer: Reply,
        note: Callable[[list[int]], None],
        keep_alive_seconds: float,
    ) -> None:
        self._reader = reader
        self._timeline = timeline
        self._armed = armed
        self._answer = answer
        self._note = note
        self._keep_alive_seconds = keep_alive_seconds if answer.keep_alive else None
        self._either = selectors.DefaultSelector()
        self._either.register(reader, selectors.EVENT_READ)  # a reader sends nothing: it has gone
        self._either.register(stopped, selectors.EVENT_READ)

    def run(self) -> None:
        """Until the reader goes, the simulator stops, or a fault ends it."""
        try:
            if self._answer.greeting:
                self._reader.sendall(_chunk(self._answer.greeting))
            n = self._answer.start
            while True:
                self._wait_for(n)
                n = self._send_from(n)
        except (_OverError, OSError):
            pass
        finally:
            self._either.close()

    def _wait_for(self, n: int) -> None:
        while (left := self._timeline.seconds_to(n)) != 0:
            if left is not None and (self._keep_alive_seconds is None or left < self._keep_alive_seconds):
                self._pause(left)
            elif self._keep_alive_seconds is None:
                self._pause(None)
            else:
                self._pause(self._keep_alive_seconds)
                self._reader.sendall(_chunk(self._answer.keep_alive))

    def _pause(self, seconds: float | None) -> None:
        if self._either.select(seconds):
            raise _OverError

    def _send_from(self, n: int) -> int:
        """Sends what is there, up to the next fault; gives the number of the record to go on with."""
        chunks, numbers, size, end = list[bytes](), list[int](), 0, self._timeline.made
        while n < end and size < _AT_ONCE:
            data = self._answer.encode(n)
            if data and (fault := self._armed.at_record(n, data)):
                self._send(chunks, numbers)
                return self._suffer(fault, n, data)
            if data:
                chunks.append(_chunk(data))
                numbers.append(n)
                size += len(data)
            n += 1
        self._send(chunks, numbers)
        return n

    def _send(self, chunks: list[bytes], numbers: list[int]) -> None:
        """Told before it is done: who has read a record may ask for it in what was sent."""
        if chunks:
            self._note(numbers)
            self._reader.sendall(b"".join(chunks))

    def _suffer(self, fault: _faults.Fault, n: int, data: bytes) -> int:
        match fault:
            case _faults.Stall():
                self._pause(fault.seconds)
            case _faults.Repeat():
                self._repeat(n, fault.count)
            case _faults.Skip():
                return self._behind(n, fault.count)
            case _faults.BadRecord():
                self._reader.sendall(_chunk(self._answer.bad))
            case _:
                self._end(fault, data)
        return n

    def _end(self, fault: _faults.Fault, data: bytes) -> None:
        if isinstance(fault, _faults.End):
            self._reader.sendall(_LAST_CHUNK)
        elif isinstance(fault, _faults.Reset):
            self._reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif isinstance(fault, _faults.CutMidRecord):
            self._send_part(data, len(data) // 2)
        elif isinstance(fault, _faults.CutMidCharacter):
            self._send_part(data, next(i for i, byte in enumerate(data) if byte > 127) + 1)
        raise _OverError

    def _send_part(self, data: bytes, size: int) -> None:
        self._reader.sendall(b"%x\r\n" % len(data) + data[:size])

    def _repeat(self, n: int, count: int) -> None:
        numbers: list[int] = []
        while n > 0 and len(numbers) < count:
            n -= 1
            if self._answer.encode(n):
                numbers.insert(0, n)
        self._send([_chunk(self._answer.encode(number)) for number in numbers], numbers)

    def _behind(self, n: int, count: int) -> int:
        """The number after `count` records that this reader wants."""
        while count > 0 and n < self._timeline.end:
            count -= bool(self._answer.encode(n))
            n += 1
        return n


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


AnySim = TypeVar("AnySim", bound="Sim")


class Sim(ABC):
    """A real HTTP server on this machine. It listens once it is made; `close()` or `with` ends it."""

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
        self._armed = Armed(faults)
        self._keep_alive_seconds = keep_alive_seconds
        self._lock = threading.Lock()
        self._sent = array("q")
        self._reached = 0
        self._requests: list[Request] = []
        self._open: set[socket.socket] = set()
        self._server = Listener((host, port), self._fault_for, self.answer, self._serve)
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
        """Where it listens, with the path of the feed."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}{self.path}"

    @property
    def sent(self) -> list[int]:
        """The numbers of all records that were sent whole, in order, with repeats."""
        with self._lock:
            return self._sent.tolist()

    @property
    def requests(self) -> list[Request]:
        """All that came, also those that got no records."""
        with self._lock:
            return list(self._requests)

    @property
    def faults_come(self) -> list[Fault]:
        """Those that have come, in order."""
        return self._armed.come

    def finish(self) -> int:
        """No new records are made from now on; gives how many there are. Connections stay open."""
        self.timeline.finish()
        return self.timeline.end

    def close(self) -> None:
        """Ends all connections and the server. No thread is left."""
        self._stop.close()  # which makes the other end readable, for every connection
        with self._lock:
            for reader in self._open:
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

    def _note(self, numbers: list[int]) -> None:
        with self._lock:
            self._sent.extend(numbers)
            self._reached = max(self._reached, numbers[-1] + 1)

    def _fault_for(self, request: Request) -> Fault | None:
        with self._lock:
            self._requests.append(request)
            reached = self._reached
        return self._armed.at_request(reached)

    def _serve(self, reader: socket.socket, answer: Reply) -> None:
        with self._lock:
            self._open.add(reader)
        try:
            Connection(
                reader,
                self._stopped,
                self.timeline,
                self._armed,
                answer,
                self._note,
                self._keep_alive_seconds,
            ).run()
        finally:
            with self._lock:
                self._open.discard(reader)
