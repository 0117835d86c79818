"""Pulls a source's items and hands them on, in the feed's thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

from headwater._author.reading import begin, is_async
from headwater._feed.outlet import Outlet
from headwater._feed.threads import FeedStopped

__all__ = ["Drive"]


class Drive:
    """One reading of a source, from its beginning to its end."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._lock = threading.Lock()
        self._cancelled = False
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    def run(self, source: Any) -> None:
        if self._cancelled:
            raise FeedStopped
        items = begin(source, self._outlet.cursor)
        if is_async(items):
            asyncio.run(self._read_async(items))
        else:
            self._read(items)

    def cancel(self) -> None:
        """From another thread: an async source is interrupted where it awaits."""
        with self._lock:
            self._cancelled = True
            if self._running is not None:
                loop, task = self._running
                loop.call_soon_threadsafe(task.cancel)

    def _read(self, items: Any) -> None:
        iterator = iter(items)
        outlet = self._outlet
        try:
            for item in iterator:
                if outlet.add(item):
                    outlet.flush()
                outlet.pull(iterator)
        except BaseException:
            with suppress(Exception):  # what a generator raises while it is closed is less than why it is
                getattr(iterator, "close", _nothing)()
            raise

    async def _read_async(self, items: Any) -> None:
        """Waiting for room is done in another thread: the event loop goes on, and answers pings."""
        task = asyncio.current_task()
        assert task is not None
        with self._lock:
            self._running = asyncio.get_running_loop(), task
            if self._cancelled:
                raise FeedStopped
        try:
            async for item in items:
                if self._outlet.is_paused:
                    await asyncio.to_thread(self._outlet.wait_until_flowing)
                if self._outlet.add(item):
                    await asyncio.to_thread(self._outlet.flush)
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            raise FeedStopped from None
        finally:
            with self._lock:
                self._running = None
            with suppress(Exception):
                await getattr(items, "aclose", _nothing_async)()


def _nothing() -> None:
    pass


async def _nothing_async() -> None:
    pass
