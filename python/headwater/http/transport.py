"""The transport of requests, with sockets that another thread can shut down at any time.

urllib3's `HTTPResponse.shutdown()` can end the read of a body. During a connect, a TLS handshake and a wait
for headers there is no response yet, so the socket itself is kept as soon as it exists.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import ECANCELED
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NewConnectionError

from headwater.http.address import Route
from headwater.http.chunked import JoinedChunksResponse

__all__ = ["CurrentSocket", "Session"]

_POLL_SECONDS = 0.05  # how soon a connect notices that it was cancelled


class CurrentSocket:
    """The socket in use. `close()` may be called from any thread; the other methods belong to the reader.

    It keeps a duplicate, because TLS takes over the original at some point during the connect.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._closed = False

    def close(self) -> None:
        """Ends any wait for the socket, and prevents new connections."""
        with self._lock:
            self._closed = True
            self._shut_down()

    def drop(self) -> None:
        """Ends the connection, if there is one."""
        with self._lock:
            self._shut_down()
            if self._socket is not None:
                self._socket.close()
            self._socket = None

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Shuts the socket down after that time. A socket's own timeout starts anew with every byte."""
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            with self._lock:
                self._shut_down()

        timer = threading.Timer(seconds, expire)
        timer.name = "headwater http deadline"
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            if expired.is_set():  # even without an error: headers that were cut off look like short ones
                raise TimeoutError from None

    def connect(
        self, host: str, port: int, timeout: float, options: Any, check: Callable[[str], None]
    ) -> socket.socket:
        """Connects to the first address of the host that accepts. `check` raises if it must not."""
        failure: OSError = OSError(f"no address of {host}")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            check(str(address[0]))
            sock = socket.socket(family, kind, protocol)
            try:
                for option in options or ():
                    sock.setsockopt(*option)
                self._connect(sock, address, timeout)
                self._keep(sock)
                return sock
            except OSError as error:
                sock.close()
                failure = error
        raise failure

    def _connect(self, sock: socket.socket, address: Any, timeout: float) -> None:
        """Does not block in `connect()`, which no other thread could end."""
        end = time.monotonic() + timeout
        sock.setblocking(False)
        with suppress(BlockingIOError):
            sock.connect(address)
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_WRITE)
            while not selector.select(_POLL_SECONDS):
                if self._closed:
                    raise OSError(ECANCELED, "closed while connecting")
                if time.monotonic() > end:
                    raise TimeoutError
        if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))
        sock.settimeout(timeout)

    def _keep(self, sock: socket.socket) -> None:
        with self._lock:
            if self._closed:
                raise OSError(ECANCELED, "closed while connecting")
            if self._socket is not None:
                self._socket.close()
            self._socket = sock.dup()

    def _shut_down(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # the other side may have closed it
                self._socket.shutdown(socket.SHUT_RDWR)


class Session(requests.Session):
    """A requests session that connects through a `CurrentSocket` and never redirects.

    It stores no cookies and ignores .netrc, which would replace the header Authorization. Proxies and
    REQUESTS_CA_BUNDLE come from the environment, as usual with requests.
    """

    def __init__(self, current: CurrentSocket) -> None:
        super().__init__()
        self.route = Route()
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self.auth = lambda prepared: prepared
        adapter = _Adapter(current, self.route)
        self.mount("https://", adapter)
        self.mount("http://", adapter)

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """None: otherwise requests reads the whole body of a redirect, even one that it does not follow."""
        return None


class _Adapter(HTTPAdapter):
    def __init__(self, current: CurrentSocket, route: Route) -> None:
        self._pool_classes = _pool_classes(current, route)
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pool_classes

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> PoolManager:
        manager: PoolManager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pool_classes
        return manager


def _accept(address: str) -> None: ...


def _pool_classes(current: CurrentSocket, route: Route) -> dict[str, Any]:
    """urllib3 has no option for its sockets; its own SOCKS support overrides `_new_conn` in the same way."""

    def new_connection(self: Any) -> socket.socket:
        check: Callable[[str], None] = route.check
        if self.proxy is not None:  # the host is that of the proxy, which the user has chosen
            route.check(None)
            check = _accept
        try:
            return current.connect(self.host, self.port, self.timeout, self.socket_options, check)
        except OSError as error:
            raise NewConnectionError(self, "no connection") from error

    class PlainConnection(HTTPConnection):
        response_class = JoinedChunksResponse
        _new_conn = new_connection

    class TlsConnection(HTTPSConnection):
        response_class = JoinedChunksResponse
        _new_conn = new_connection

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = PlainConnection

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = TlsConnection

    return {"http": PlainPool, "https": TlsPool}
