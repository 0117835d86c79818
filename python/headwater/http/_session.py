"""requests, told to connect by our wire and to do nothing that it was not asked to do."""

from __future__ import annotations

import socket
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NewConnectionError

from headwater.http._wire import Wire

__all__ = ["Session"]


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
