"""A feed: a running source and its threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from headwater.errors import explain, first_line
from headwater.reading import is_async, start_read
from headwater.runtime.batching import BatchSender
from headwater.runtime.protocol import FeedRequest
from headwater.runtime.threads import FeedStopped, ThreadGroup, back_off, interrupt, log_of
from headwater.source import set_shard

__all__ = ["Acks", "Feed", "ReadLoop"]

_NOTHING = object()


class Acks:
    """The newest cursor stands for all before it, so of those that wait only that one is told."""

    def __init__(self, tell: Callable[[Any], None], crew: ThreadGroup) -> None:
        self._tell = tell
        self._crew = crew
        self._changed = threading.Condition()
        self._cursor: Any = _NOTHING
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, cursor: Any) -> None:
        """All rows up to that cursor are durable."""
        with self._changed:
            self._cursor = cursor
            if self._thread is None and not self._closed:
                self._thread = self._crew.new("-ack", self._work)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._cursor is not _NOTHING)
                cursor, self._cursor = self._cursor, _NOTHING
            if cursor is _NOTHING:
                return
            self._tell(cursor)


class ReadLoop:
    """One reading of a source, from its beginning to its end."""

    def __init__(self, outlet: BatchSender) -> None:
        self._outlet = outlet
        self._lock = threading.Lock()
        self._cancelled = False
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    def run(self, source: Any) -> None:
        if self._cancelled:
            raise FeedStopped
        items = start_read(source, self._outlet.cursor)
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


_STOP_SECONDS, _PATIENCE_SECONDS = 3.0, 1.0  # patience: for a feed to end before it is interrupted

# Connects a source to the JVM, given whom to tell of a failure; called in the feed's thread.
OpenOutlet = Callable[[Any, Callable[[BaseException], None]], BatchSender]


class Feed:
    """Runs a source until it ends, fails or is stopped, and starts it again where it is told to.

    `opened` is called once: with None when rows can flow, or with what went wrong before that.
    """

    def __init__(
        self, order: FeedRequest, open_outlet: OpenOutlet, opened: Callable[[str | None], None]
    ) -> None:
        self.order = order
        self.outlet: BatchSender | None = None
        self.restarts = 0
        self.last_error: str | None = None
        self._state = "starting"
        self._open_outlet = open_outlet
        self._opened = opened
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._source: Any = None
        self._closed: Any = None
        self._drive: ReadLoop | None = None
        self._log = log_of(order)
        self._crew = ThreadGroup(f"headwater-feed-{order.name}-{order.feed}")
        self._thread = self._crew.new("", self._live)
        self.acks = Acks(self._acknowledge, self._crew)

    @property
    def state(self) -> str:
        """starting, running, paused, restarting, ended, failed, stopped or abandoned."""
        paused = self._state == "running" and self.outlet is not None and self.outlet.is_paused
        return "paused" if paused else self._state

    @property
    def is_alive(self) -> bool:
        return self._crew.is_alive

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> str:
        """End it, and wait for its threads; `stopped`, or `abandoned` where one of them cannot be moved."""
        deadline = monotonic() + _STOP_SECONDS
        self._stopping.set()
        if self.outlet is not None:
            self.outlet.close()
        with self._lock:
            source, drive = self._source, self._drive
        if drive is not None:
            drive.cancel()
        self.acks.close()
        self._crew.new("-close", lambda: self._close(source)).start()
        self._thread.join(_PATIENCE_SECONDS)
        while self._thread.is_alive() and monotonic() < deadline:
            interrupt(self._thread)
            self._thread.join(0.2)
        self._crew.join(deadline)
        if self.outlet is not None:
            self.outlet.release(max(0.1, deadline - monotonic()))
        self._state = "abandoned" if self.is_alive else "stopped"
        if self.is_alive:
            self._log.warning("does not end and cannot be interrupted: it is abandoned; its rows are refused")
        return self._state

    def _live(self) -> None:
        set_shard(self.order.shard)
        try:
            outlet = self._open()
            self._run(outlet)
            outlet.end()
            self._state = "ended"
            self._log.info("ended, after %d rows", outlet.rows)
        except FeedStopped:
            self._log.debug("stopped")
        except BaseException as error:  # SystemExit too: whatever is raised is the query's failure
            self._fail(error)

    def _open(self) -> BatchSender:
        try:
            outlet = self._open_outlet(self._make(), self._fail)
        except BaseException as error:
            self._opened(explain(error, self.order.secrets()))
            raise
        self.outlet = outlet
        self._opened(None)
        if self._stopping.is_set():
            outlet.close()
        return outlet

    def _run(self, outlet: BatchSender) -> None:
        failures = 0
        while True:
            given = outlet.rows
            try:
                self._attempt(outlet)
                return
            except FeedStopped:
                raise
            except BaseException as error:
                if self._stopping.is_set():
                    raise FeedStopped from None
                if error is outlet.broken:
                    raise
                outlet.flush()
                failures = 1 if outlet.rows > given else failures + 1
                if self.order.on_error == "fail" or failures > self.order.most_failures:
                    raise
                self.last_error = first_line(error, self.order.secrets())
                if self.order.on_error == "end":
                    self._log.warning("failed, and ends, as onError says: %s", self.last_error)
                    return
            self._back_off(back_off(failures))

    def _back_off(self, pause: float) -> None:
        self._log.warning("failed: %s. It starts again in %.1f s", self.last_error, pause)
        self._state = "restarting"
        if self._stopping.wait(pause):
            raise FeedStopped
        self.restarts += 1

    def _attempt(self, outlet: BatchSender) -> None:
        source = self._source or self._make()
        drive = ReadLoop(outlet)
        with self._lock:
            self._drive = drive
        if self._stopping.is_set():  # stop() may have looked before there was something to see
            self._close(source)
            raise FeedStopped
        try:
            source.on_start()
            self._state = "running"
            drive.run(source)
        except BaseException as error:
            if not (isinstance(error, FeedStopped) or self._stopping.is_set()):
                self._tell(source.on_failure, error)
            raise
        finally:
            self._tell(source.on_stop)
            self._close(source)
            with self._lock:
                self._source = self._drive = None

    def _make(self) -> Any:
        source = self.order.make()
        with self._lock:
            self._source = source
        return source

    def _close(self, source: Any) -> None:
        """Once for each instance, whoever comes first."""
        with self._lock:
            first = source is not None and self._closed is not source
            self._closed = source if first else self._closed
        if first:
            self._tell(source.close)

    def _acknowledge(self, cursor: Any) -> None:
        source = self._source or self._closed  # of one that has ended, the last rows become durable later
        self._tell(source.ack, cursor)

    def _tell(self, hook: Callable[..., object], *args: object) -> None:
        try:
            hook(*args)
        except Exception as error:
            self._log.error("%s failed: %s", hook.__name__, explain(error, self.order.secrets(), ""))

    def _fail(self, error: BaseException) -> None:
        if self._stopping.is_set():
            return
        secrets = self.order.secrets()
        self.last_error = first_line(error, secrets)
        self._state = "failed"
        self._log.error("failed: %s", told := explain(error, secrets))
        with suppress(FeedStopped):
            if self.outlet is not None:
                self.outlet.fail(told)
