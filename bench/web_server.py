"""A server that sends records of 900 bytes as fast as they are read, in a process of its own.

`GET /ndjson?since=N` and `GET /sse` with `Last-Event-ID: N` go on with record N + 1, without end.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, urlsplit

__all__ = ["LINES", "serving"]

_LINE = b'{"text":"' + b"x" * 872 + b'","id":%d}\n'
_EVENT = b"id: %d\ndata: " + _LINE + b"\n"
_BLOCK = 64

LINES = {"ndjson": 1, "sse": 3}
"""Of each record, on the wire."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        if address.path == "/sse":
            self.send_header("Content-Type", "text/event-stream")
            self._send(self.headers.get("Last-Event-ID"), lambda n: _EVENT % (n, n))
        else:
            self.send_header("Content-Type", "application/x-ndjson")
            self._send(parse_qs(address.query).get("since", [None])[0], lambda n: _LINE % n)

    def _send(self, since: str | None, record: Callable[[int], bytes]) -> None:
        self.end_headers()
        try:
            for first in count(0 if since is None else int(since) + 1, _BLOCK):
                body = b"".join(map(record, range(first, first + _BLOCK)))
                self.wfile.write(b"%x\r\n%b\r\n" % (len(body), body))
        except OSError:
            self.close_connection = True  # the reader has gone

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving() -> Iterator[str]:
    """Its address, without a path."""
    server = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    sys.stdout.write(f"{http.server_port}\n")
    sys.stdout.flush()
    http.serve_forever()
