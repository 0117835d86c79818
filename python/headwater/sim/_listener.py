"""HTTP, as far as all simulators need it: requests are read, faults come first, and a protocol answers."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from headwater.sim._faults import Fault, Redirect, Status
from headwater.sim._protocol import Answer, RefusedError, Request

__all__ = ["Listener"]

_log = logging.getLogger("headwater.sim")
_MOVED = "/moved"


class Listener(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them

    def __init__(
        self,
        address: tuple[str, int],
        fault_for: Callable[[Request], Fault | None],
        answer: Callable[[Request], Answer],
        serve: Callable[[socket.socket, Answer], None],
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
