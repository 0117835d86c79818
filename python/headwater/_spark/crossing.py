"""This process and its Spark, brought together: sources become formats, and feeds run for the JVM."""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING

from headwater._author import registry
from headwater._errors import HeadwaterError

if TYPE_CHECKING:
    from headwater._feed.host import Host
    from headwater._spark.bridge import Driver

__all__ = ["connect", "current", "join"]

_log = logging.getLogger("headwater")
_lock = threading.RLock()
_driver: Driver | None = None
_host: Host | None = None


def join(driver: Driver) -> None:
    """Make all sources that are defined, now or later, formats of that driver's Spark; and those built in."""
    global _driver, _host
    with _lock:
        if _driver is not None and _driver.is_gone:
            _host = None  # it belongs to another JVM, which may still be there
        _driver = driver
    connect()  # for those built in: the jar has their formats
    registry.subscribe(_register)  # unlocked: who defines a source has the registry's lock, and wants ours
    for name in registry.all_sources():
        _register(name)


def connect() -> None:
    """Connect to the JVM, if that is not done yet."""
    from headwater._feed.host import Host
    from headwater._feed.wire import Address

    global _host
    with _lock:
        if _driver is None or _driver.is_gone:
            raise HeadwaterError(
                "no Spark session is attached", "call hw.session() or hw.attach(spark) first"
            )
        if _host is None or not _host.is_alive:
            where = _driver.open_bridge(unix=hasattr(socket, "AF_UNIX"))
            _host = Host(Address(where["address"], where["secret"]), _driver.hand_over)


def current() -> tuple[Driver, Host] | None:
    """The driver and the host of its feeds, if there are any."""
    with _lock:
        return None if _driver is None or _driver.is_gone or _host is None else (_driver, _host)


def _register(name: str) -> None:
    with _lock:
        if _driver is None or _driver.is_gone:
            return  # it becomes a format when a session is attached
        connect()
        only_plain = _driver.register(name)
        if only_plain:
            _log.warning("format(%r) is not available: %s", name, only_plain)
