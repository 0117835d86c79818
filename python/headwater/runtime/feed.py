"""A feed: a running source and its threads.

A feed has a thread of its own, in which all of the source's code runs: `__init__`, `on_start`, `read` and the
other hooks. There are two exceptions: `close` is called from another thread when the feed is stopped while
`read` is running, in order to unblock it; and `ack` is called in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from time import time
from typing import Any

from headwater.backoff import RESTARTS
from headwater.errors import explain, first_line, mask
from headwater.reading import is_async, start_read, yield_lines
from headwater.runtime.batching import BatchSender
from headwater.runtime.protocol import FeedRequest
from headwater.runtime.published import Published
from headwater.runtime.threads import BlockedCall, Deadline, FeedStopped, ThreadGroup, join_or_interrupt
from headwater.source import Source, set_ack_on, set_connection_reporter, set_shard

__all__ = ["Feed", "OpenSender", "ReadLoop"]

OpenSender = Callable[[Any, Callable[[BaseException], None]], BatchSender]
"""Connects a source to the JVM. Its second argument is called with errors of the sender's own thread."""


class Feed:
    """Runs a source until it ends, fails or is stopped, and restarts it as `onError` says.

    `on_open` is called once, in the feed's thread: with None when rows can flow, or with a message that says
    why they cannot. `restart_delay` returns the seconds to wait after that many failures in a row.

    `start` returns at once. `stop` may be called from any other thread, and blocks until the deadline at
    most. All other methods return at once, from any thread.
    """

    def __init__(
        self,
        request: FeedRequest,
        open_sender: OpenSender,
        on_open: Callable[[str | None], None],
        *,
        restart_delay: Callable[[int], float] = RESTARTS.delay,
    ) -> None:
        self.request = request
        self.sender: BatchSender | None = None
        self.restarts = 0
        self.last_error: str | None = None
        self.last_error_at: float | None = None
        """Seconds since 1970."""
        self.status = Published()
        """For the JVM: `state`, `restarts`, `badRows`, `lastError` and `lastErrorAt` (milliseconds)."""
        self._state = "starting"
        self._is_connected = True
        self._open_sender = open_sender
        self._on_open = on_open
        self._restart_delay = restart_delay
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._source: Any = None
        self._closed_source: Any = None
        self._read_loop: ReadLoop | None = None
        self._last_read_loop: ReadLoop | None = None
        self._log = request.logger()
        self._threads = ThreadGroup(f"headwater-feed-{request.name}-{request.feed}")
        self._thread = self._threads.new("", self._run)
        self._acks = _Acks(self._ack, self._threads)

    @property
    def state(self) -> str:
        """starting, running, paused, reconnecting, restarting, ended, failed, stopped or abandoned."""
        if self._state != "running":
            return self._state
        if self.sender is not None and self.sender.is_paused:
            return "paused"
        return "running" if self._is_connected else "reconnecting"

    @property
    def is_alive(self) -> bool:
        return self._threads.is_alive

    def start(self) -> None:
        self._thread.start()

    def pause(self) -> None:
        """Hold the feed back at its next row."""
        if self.sender is not None:
            self.sender.pause()
            self._publish()

    def resume(self) -> None:
        if self.sender is not None:
            self.sender.resume()
            self._publish()

    def acknowledge(self, cursor: Any) -> None:
        """All rows up to that cursor are durable, or committed: call `ack`, in a thread of its own."""
        self._acks.add(cursor)

    def disconnect(self) -> None:
        """Close the connection to the JVM. A thread that waits for it ends the feed."""
        if self.sender is not None:
            self.sender.close()

    def stop(self, deadline: Deadline) -> str:
        """Stop, and wait for the threads. Returns `stopped`, or `abandoned` if one of them still runs.

        A read is unblocked in three ways, one after the other: the connection is closed, the source's `close`
        is called, and the feed's thread is interrupted, once. `finally` and `on_stop` are not interrupted.
        """
        self._stopping.set()
        self.status.close()
        self.disconnect()
        with self._lock:
            source, read_loop = self._source, self._read_loop
        if read_loop is not None:
            read_loop.cancel()
        self._acks.close()
        self._threads.new("-close", lambda: self._close(source)).start()
        join_or_interrupt([self._thread], deadline)
        self._threads.join(deadline)
        if self.sender is not None:
            self.sender.release(deadline)
        self._state = "abandoned" if self.is_alive else "stopped"
        if self._state == "abandoned":
            self._log.warning(
                "did not stop in time: it is abandoned, and its rows are discarded. %s", self._blocked(source)
            )
        return self._state

    def _blocked(self, source: Any) -> str:
        """What keeps a feed from stopping, and what its author can do."""
        call = next(filter(None, map(BlockedCall.of, self._threads.alive)), None)
        if call is None:
            return "None of its threads is in the source's code"
        where = f"{call.function}() is blocked at {call.place}"
        if call.is_cleanup or call.function in ("close", "on_stop", "ack"):
            return f"{where}; it must return sooner"
        if source is None:
            return f"{where}; a source must not wait before its read()"
        if type(source).close is not Source.close:
            return f"{where}; close() does not unblock it"
        if call.function == "read":
            return f"{where}; add close(), which has to unblock it"
        return f"{where}; set a timeout there, or write the source as a class with close()"

    def _run(self) -> None:
        set_shard(self.request.shard)
        set_ack_on(self.request.ack_on)
        set_connection_reporter(self._report_connection)
        try:
            sender = self._open()
            self._read_with_restarts(sender)
            sender.end()
            self._state = "ended"
            self._publish()
            self._log.info("ended after %d rows", sender.rows)
        except FeedStopped:
            self._log.debug("stopped")
        except BaseException as error:  # SystemExit too: whatever the source raises fails the query
            self._fail(error)

    def _open(self) -> BatchSender:
        try:
            sender = self._open_sender(self._make_source(), self._fail)
        except BaseException as error:
            self._on_open(explain(error, self.request.secrets()))
            raise
        self.sender = sender
        sender.on_bad_rows = self._publish
        self._on_open(None)
        if self._stopping.is_set():  # stop() may have found no sender to close
            sender.close()
        return sender

    def _read_with_restarts(self, sender: BatchSender) -> None:
        failures = 0
        while True:
            rows_before = sender.rows
            self._thread.allow_interrupt()
            try:
                self._read_once(sender)
                return
            except FeedStopped:
                raise
            except BaseException as error:
                if self._stopping.is_set():
                    raise FeedStopped from None
                if error is sender.broken:
                    raise
                sender.flush()
                failures = 1 if sender.rows > rows_before else failures + 1
                if self.request.on_error != "end" and not self.request.allows_restart(failures):
                    raise
                self._set_last_error(first_line(error, self.request.secrets()))
            if self.request.on_error == "end":
                self._log.warning("failed, and ends because onError is end: %s", self.last_error)
                return
            delay = self._restart_delay(failures)
            self._log.warning("failed: %s. It restarts in %.1f s", self.last_error, delay)
            self._state = "restarting"
            self._publish()
            if self._stopping.wait(delay):
                raise FeedStopped
            self.restarts += 1

    def _read_once(self, sender: BatchSender) -> None:
        source = self._make_source() if self._source is None else self._source
        read_loop = ReadLoop(sender, before_cleanup=self._thread.forbid_interrupt)
        with self._lock:
            self._read_loop = self._last_read_loop = read_loop
        if self._stopping.is_set():  # stop() may have found no source to close
            self._close(source)
            raise FeedStopped
        try:
            try:
                source.on_start()
                self._state, self._is_connected = "running", True
                self._publish()
                read_loop.run(source)
            finally:
                self._thread.forbid_interrupt()
        except BaseException as error:
            if not (isinstance(error, FeedStopped) or self._stopping.is_set()):
                self._call_hook(source.on_failure, error)
            raise
        finally:
            self._call_hook(source.on_stop)
            self._close(source)
            with self._lock:
                self._source = self._read_loop = None

    def _make_source(self) -> Any:
        source = self.request.make_source()
        with self._lock:
            self._source = source
        return source

    def _close(self, source: Any) -> None:
        """Close an instance once, whichever thread comes first."""
        with self._lock:
            is_first = source is not None and self._closed_source is not source
            if is_first:
                self._closed_source = source
        if is_first:
            self._call_hook(source.close)

    def _ack(self, cursor: Any) -> None:
        # The last rows become durable after the source has ended.
        source = self._closed_source if self._source is None else self._source
        self._call_hook(source.ack, cursor)

    def _call_hook(self, hook: Callable[..., object], *args: object) -> None:
        try:
            hook(*args)
        except Exception as error:
            self._log.error("%s failed: %s", hook.__name__, explain(error, self.request.secrets(), ""))

    def _fail(self, error: BaseException) -> None:
        if self._stopping.is_set():
            return
        secrets = self.request.secrets()
        read_loop = self._last_read_loop
        message = explain(error, secrets, yields=[] if read_loop is None else yield_lines(read_loop.items))
        self._set_last_error(first_line(error, secrets))
        self._state = "failed"
        self._publish()
        self._log.info("failed: %s", self.last_error)  # Spark logs all of it when it fails the query
        with suppress(FeedStopped):
            if self.sender is not None:
                self.sender.fail(message)

    def _report_connection(self, connected: bool, error: object) -> None:
        self._is_connected = connected
        if error is not None:
            secrets = self.request.secrets()
            if isinstance(error, BaseException):
                self._set_last_error(first_line(error, secrets))
            else:
                self._set_last_error(mask(str(error), secrets))
        self._publish()

    def _set_last_error(self, message: str) -> None:
        self.last_error, self.last_error_at = message, time()

    def _publish(self) -> None:
        error_at = self.last_error_at
        self.status.publish(
            {
                "state": self.state,
                "restarts": self.restarts,
                "badRows": self.sender.encoder.bad_rows if self.sender else 0,
                "lastError": self.last_error,
                "lastErrorAt": None if error_at is None else int(1000 * error_at),
            }
        )


class ReadLoop:
    """Reads a source once, from `read` to its end, and hands each item to the sender.

    `run` is called in the feed's thread and returns when the source has ended. It blocks wherever the source
    blocks, and where the sender does. `cancel` may be called from another thread.
    """

    def __init__(self, sender: BatchSender, *, before_cleanup: Callable[[], None] = lambda: None) -> None:
        """`before_cleanup` is called before what `read` has returned is closed."""
        self.items: Any = None
        """What `read` has returned."""
        self._sender = sender
        self._before_cleanup = before_cleanup
        self._lock = threading.Lock()
        self._cancelled = False
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    def run(self, source: Any) -> None:
        if self._cancelled:
            raise FeedStopped
        try:
            self.items = start_read(source, self._sender.cursor)
            if is_async(self.items):
                asyncio.run(self._read_async(self.items))
            else:
                self._read(self.items)
        finally:
            self._sender.exit_if_forked()

    def cancel(self) -> None:
        """Interrupt an async source where it awaits. A generator cannot be interrupted like this."""
        with self._lock:
            self._cancelled = True
            if self._task is not None:
                loop, task = self._task
                loop.call_soon_threadsafe(self._cancel_task, task)

    def _cancel_task(self, task: asyncio.Task[None]) -> None:
        """In the event loop: from here on the source cleans up."""
        self._before_cleanup()
        task.cancel()

    def _read(self, items: Any) -> None:
        iterator = iter(items)
        sender = self._sender
        try:
            for item in iterator:
                if sender.add(item):
                    sender.flush()
                sender.pull(iterator)
        except BaseException:
            self._before_cleanup()
            if hasattr(iterator, "close"):
                with suppress(Exception):  # the error that is being raised matters more
                    iterator.close()
            raise

    async def _read_async(self, items: Any) -> None:
        """Blocking calls are made in another thread: the event loop keeps running, and answers pings."""
        task = asyncio.current_task()
        assert task is not None
        with self._lock:
            self._task = asyncio.get_running_loop(), task
            if self._cancelled:
                raise FeedStopped
        try:
            async for item in items:
                if self._sender.is_paused:
                    await asyncio.to_thread(self._sender.wait_until_flowing)
                if self._sender.add(item):
                    await asyncio.to_thread(self._sender.flush)
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            raise FeedStopped from None
        finally:
            self._sender.exit_if_forked()  # asyncio would wait for threads that a child does not have
            self._before_cleanup()
            with self._lock:
                self._task = None
            if hasattr(items, "aclose"):
                with suppress(Exception):
                    await items.aclose()


class _Acks:
    """Calls `ack` in a thread of its own, which starts with the first cursor.

    A cursor stands for all before it, so if several are waiting, only the newest is acknowledged.
    """

    def __init__(self, ack: Callable[[Any], None], threads: ThreadGroup) -> None:
        self._ack = ack
        self._threads = threads
        self._changed = threading.Condition()
        self._waiting: list[Any] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, cursor: Any) -> None:
        with self._changed:
            self._waiting = [cursor]
            if self._thread is None and not self._closed:
                self._thread = self._threads.new("-ack", self._run)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """End the thread, after the cursor that is waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting)
                cursors, self._waiting = self._waiting, []
            if not cursors:
                return
            self._ack(cursors[0])
