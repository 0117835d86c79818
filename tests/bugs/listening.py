"""Sources on a client that calls back: a queue that is never full, a client that is never closed, neither."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import suppress

import headwater as hw
from bugs.client import Client


@hw.source("n LONG")
def never_full() -> Iterator[int]:
    messages: queue.SimpleQueue[int] = queue.SimpleQueue()
    with Client(messages.put):
        while True:
            yield messages.get()


@hw.source("n LONG")
def never_closed() -> Iterator[int]:
    messages: queue.Queue[int] = queue.Queue(1000)
    Client(messages.put)
    while True:
        yield messages.get()


@hw.source("n LONG")
def full_and_closed() -> Iterator[int]:
    messages: queue.Queue[int] = queue.Queue(1000)
    with Client(messages.put) as client:
        try:
            while True:
                yield messages.get()
        finally:
            client.close()
            with suppress(queue.Empty):
                messages.get_nowait()  # it may wait for room, and not see that it is closed
