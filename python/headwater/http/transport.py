"""The transport below requests: sockets that another thread can close."""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ECANCELED
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NewConnectionError

__all__ = ["Session", "Wire"]

_STEP = 0.05  # seconds: how soon a connect that hangs is given up when the wire is cut


class Wire:
    """Knows the socket in use by a duplicate: TLS takes the first one over, at an unknown moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._closed = False

    def close(self) -> None:
        """From any thread, for good. Who waits for the socket wakes up, and there will be no other."""
        with self._lock:
            self._closed = True
            self._shut()

    def drop(self) -> None:
        """Ends the socket in use."""
        with self._lock:
            self._shut()
            if self._socket is not None:
                self._socket.close()
            self._socket = None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Cuts the socket after that time. Its own time-out begins again with every byte."""
        late = threading.Event()

        def cut() -> None:
            late.set()
            with self._lock:
                self._shut()

        timer = threading.Timer(seconds, cut)
        timer.name = "headwater http answer"
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            if late.is_set():  # also where all seems well: a head that is cut off passes for a short one
                raise TimeoutError from None

    def connect(self, host: str, port: int, timeout: float, options: Any) -> socket.socket:
        """The first address of a host that answers."""
        failure: OSError = OSError(f"no address of {host}")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            try:
                for option in options or ():
                    sock.setsockopt(*option)
                self._connect(sock, address, timeout)
                self._take(sock)
                return sock
            except OSError as error:
                sock.close()
                failure = error
        raise failure

    def _connect(self, sock: socket.socket, address: Any, timeout: float) -> None:
        """A blocking connect could not be ended from outside."""
        end = time.monotonic() + timeout
        sock.setblocking(False)
        with suppress(BlockingIOError):
            sock.connect(address)
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_WRITE)
            while not selector.select(_STEP):
                if self._closed:
                    raise OSError(ECANCELED, "closed while connecting")
                if time.monotonic() > end:
                    raise TimeoutError
        if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))
        sock.settimeout(timeout)

    def _take(self, sock: socket.socket) -> None:
        with self._lock:
            if self._closed:
                raise OSError(ECANCELED, "closed while connecting")
            if self._socket is not None:
                self._socket.close()
            self._socket = sock.dup()

    def _shut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # it was shut by the other side
                self._socket.shutdown(socket.SHUT_RDWR)


class Session(requests.Session):
    """Keeps no cookies, reads no .netrc, which would replace the header Authorization, and does not redirect.

    Proxies and REQUESTS_CA_BUNDLE are taken from the environment, as requests does.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self.auth = lambda prepared: prepared
        adapter = _Adapter(wire)
        self.mount("https://", adapter)
        self.mount("http://", adapter)

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """None. Else requests reads the whole body of a redirect, even if it does not follow it."""
        return None


class _Adapter(HTTPAdapter):
    """Has requests connect by a wire."""

    def __init__(self, wire: Wire) -> None:
        self._classes = _pools(wire)
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._classes

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> PoolManager:
        manager: PoolManager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._classes
        return manager


def _pools(wire: Wire) -> dict[str, Any]:
    def new_connection(self: Any) -> socket.socket:
        try:
            return wire.connect(self.host, self.port, self.timeout, self.socket_options)
        except OSError as error:
            raise NewConnectionError(self, "no connection") from error

    class Plain(HTTPConnection):
        _new_conn = new_connection

    class Tls(HTTPSConnection):
        _new_conn = new_connection

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = Tls

    return {"http": PlainPool, "https": TlsPool}
