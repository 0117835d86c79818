"""A source that swallows its errors, and one that lets them out."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import headwater as hw

attempts = 0


def lines(port: int) -> Iterator[str]:
    global attempts
    attempts += 1
    with socket.create_connection(("127.0.0.1", port)) as connection:
        yield from connection.makefile()


@hw.source("line STRING")
def tries_for_ever(port: int) -> Iterator[str]:
    while True:
        with suppress(OSError):  # it will come back
            yield from lines(port)


@hw.source("line STRING")
def tries_once(port: int) -> Iterator[str]:
    yield from lines(port)
