"""An HTTP server for tests, which sends exactly the bytes that a test wants, mistakes included."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

__all__ = ["Exchange", "Server", "certificate", "chunked", "serving"]

SECONDS = 20.0


@dataclass
class Exchange:
    """A request, and the socket for its response."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    number: int  # of the request, from 0
    socket: socket.socket
    closing: threading.Event

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_headers(self, status: int = 200, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} Whatever"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode())

    def respond(self, status: int = 200, body: bytes = b"", **headers: str) -> None:
        """Sends a complete response with a Content-Length."""
        self.send_headers(status, Content_Length=str(len(body)), **headers)
        self.send(body)

    def stream(self, content_type: str, *parts: bytes, end: bool = True, **headers: str) -> None:
        """Sends a chunked response. Without `end` it stays open, and is cut when the handler returns."""
        self.send_headers(200, Content_Type=content_type, Transfer_Encoding="chunked", **headers)
        for part in parts:
            self.send(chunked(part))
        if end:
            self.send(b"0\r\n\r\n")

    def hang(self) -> None:
        """Waits until the client disconnects or the test is over."""
        self.socket.settimeout(0.05)
        while not self.closing.is_set():
            with suppress(TimeoutError):
                try:
                    if not self.socket.recv(1):
                        return
                except OSError as error:
                    if isinstance(error, TimeoutError):
                        raise
                    return

    def reset(self) -> None:
        """Resets the connection."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


Handler = Callable[[Exchange], None]


class Server:
    """Passes each request to the next handler; the last handler gets all further requests."""

    def __init__(self, handlers: Iterable[Handler], tls: ssl.SSLContext | None = None) -> None:
        self._handlers = list(handlers)
        self._tls = tls
        self.closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0.05)
        self.requests: list[Exchange] = []
        self.accepted = 0
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listening.getsockname()[1]}/stream"

    def run(self) -> None:
        while not self.closing.is_set():
            with suppress(TimeoutError):
                connection, _ = self._listening.accept()
                self.accepted += 1
                thread = threading.Thread(target=self._serve, args=(connection,), name="test server")
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        """Call it after `run` has returned."""
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), "a handler of the test does not return"
        self._listening.close()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.settimeout(SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                self._handle(connection)

    def _handle(self, connection: socket.socket) -> None:
        headers_bytes = b""
        while not headers_bytes.endswith(b"\r\n\r\n"):
            data = connection.recv(1)
            if not data:
                return
            headers_bytes += data
            if headers_bytes == b"\x16":  # a TLS client
                connection.sendall(b"HTTP/1.1 400 What\r\n\r\n")
                return
        first, _, rest = headers_bytes.partition(b"\r\n")
        target = urlsplit(first.split()[1].decode())
        pairs = [line.partition(": ") for line in rest.decode("latin-1").split("\r\n") if line]
        headers = {name.lower(): value for name, _, value in pairs}
        exchange = Exchange(
            target.path, dict(parse_qsl(target.query)), headers, len(self.requests), connection, self.closing
        )
        self.requests.append(exchange)
        self._handlers[min(exchange.number, len(self._handlers) - 1)](exchange)


@contextmanager
def serving(*handlers: Handler, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(handlers, tls)
    thread = threading.Thread(target=server.run, name="test server")
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        thread.join(SECONDS)
        server.close()


def certificate(folder: Path, *, days: int = 2, host: str = "127.0.0.1") -> tuple[Path, ssl.SSLContext]:
    """The file of a self-signed certificate, and a server context that uses it."""
    key, request, names, file = (folder / f"{days}.{kind}" for kind in ("key", "csr", "ext", "pem"))
    names.write_text(f"subjectAltName=IP:{host}\n")
    _openssl(
        "req",
        "-new",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        key,
        "-out",
        request,
        "-subj",
        f"/CN={host}",
    )
    _openssl("x509", "-req", "-in", request, "-signkey", key, "-days", days, "-extfile", names, "-out", file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    return file, context


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
