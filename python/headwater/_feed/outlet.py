"""Where a feed's rows go: they become Arrow batches, by number or after a while, and are sent to the JVM.

The feed's thread adds rows and sends them when there are enough, or when none was sent for a while. A second
thread sends what has waited for `linger`, since the feed's own may be blocked in `read` by then. Sending
blocks while the JVM's buffer is full, and so the feed is held back.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any

from headwater._feed.message import END, message, to_json
from headwater._feed.packing import Packing
from headwater._feed.pending import Pending, Taken
from headwater._feed.threads import FeedStopped

__all__ = ["Outlet"]

_POLL_SECONDS, _LOOK_SECONDS = 0.005, 0.05


class Outlet:
    """One feed's way to the JVM. Batches go out in the order of their rows, whoever sends them."""

    def __init__(
        self,
        connection: socket.socket,
        packing: Packing,
        pending: Pending,
        *,
        shard: int,
        linger: float,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._connection = connection
        self.packing = packing
        self._pending = pending
        self._shard = shard
        self._linger = linger
        self._failed = failed
        self._sending = threading.Lock()
        self._something = threading.Event()
        self._closed = threading.Event()
        self._since = 0.0  # when the oldest item was added, or one was last taken
        self._is_fast = self._is_pulling = False
        self.broken: BaseException | None = None
        self._flowing = threading.Event()
        self._flowing.set()
        self.rows = 0
        self.cursor: Any = None
        self._send(packing.schema.serialize())
        name = f"{threading.current_thread().name}-linger"
        self._lingering = threading.Thread(target=self._keep_flushing, name=name, daemon=True)
        self._lingering.start()

    def add(self, item: Any) -> bool:
        """Take one item that was yielded. True: flush, before adding more."""
        if self._closed.is_set() or not self._flowing.is_set():
            self.wait_until_flowing()
        enough = self._pending.add(item)
        self._is_fast = self._is_fast or enough
        if not enough and not self._something.is_set():
            before, self._since = self._since, monotonic()
            if self._since - before > self._linger:
                return True  # after a pause: a single row waits for no other
            self._something.set()
        return enough

    def pull(self, items: Iterator[Any]) -> None:
        """Take the next few items, if they come so fast that batches are full before they have waited."""
        if self._is_fast and not self._pending.one_by_one:
            self._is_pulling = True
            self._something.set()
            try:
                enough = self._pending.add_many(items)
            finally:
                self._is_pulling = False
            if enough:
                self.flush()

    def flush(self) -> None:
        """Send what was added. Blocks while the JVM's buffer is full.

        What cannot be sent breaks the outlet: it leaves a gap, and no row behind it may follow.
        """
        with self._sending:
            if self.broken is not None:
                raise FeedStopped  # whoever broke it says so
            self._something.clear()
            if self._is_pulling:  # rows then come without a word; it may have begun just now
                self._something.set()
            self._since = monotonic()
            if len(self._pending):
                try:
                    self._transmit(self._pending.take())
                except BaseException as error:
                    self.broken = error
                    raise
                self._since = monotonic()  # it may have been held back

    @property
    def is_paused(self) -> bool:
        return not self._flowing.is_set()

    def pause(self) -> None:
        self._flowing.clear()
        self._pending.ask_no_more()
        if self._closed.is_set():  # perhaps since: nobody would resume it
            self._flowing.set()

    def resume(self) -> None:
        self._flowing.set()

    def wait_until_flowing(self) -> None:
        self._flowing.wait()
        if self._closed.is_set():
            raise FeedStopped

    def end(self) -> None:
        """Send what is left, and say that no row will follow."""
        self.flush()
        with self._sending:
            self._send(END)
        self._take_no_more()

    def fail(self, what: str) -> None:
        """Say that the feed has failed; what was sent before is read first."""
        with self._sending:
            if not self._closed.is_set():
                what = what.encode("utf-8", "backslashreplace").decode()  # a str may have lone surrogates
                self._send(message(self.packing.nothing(), {"headwater.failure": what}))
                self._send(END)
        self._take_no_more()

    def close(self) -> None:
        """From any thread: whoever waits here goes on, with FeedStopped."""
        self._take_no_more()
        with suppress(OSError):  # it is closed already
            self._connection.shutdown(socket.SHUT_RDWR)

    def release(self, timeout: float) -> None:
        """After `close`: give everything back."""
        self._lingering.join(timeout)  # it never waits for anything but the connection, which is shut down
        self._connection.close()

    def _take_no_more(self) -> None:
        self._closed.set()
        self._flowing.set()
        self._something.set()
        self._pending.ask_no_more()

    def _keep_flushing(self) -> None:
        try:
            while not self._closed.is_set():
                self._something.wait()
                due = self._since + self._linger - monotonic()
                if due > 0 and not (self._is_pulling and self._pending.is_caught_up):
                    self._closed.wait(min(due, _LOOK_SECONDS))
                elif len(self._pending):
                    self._is_fast = False
                    self._pending.ask_no_more()
                    self.flush()
                else:
                    self.flush()
                    self._closed.wait(_POLL_SECONDS)
        except BaseException as error:  # the feed's own thread may not come by for long
            if not isinstance(error, FeedStopped):
                self._failed(error)

    def _transmit(self, taken: Taken) -> None:
        batches, bad_row = self.packing.pack(taken.parts)
        error = bad_row or taken.error
        metadata: dict[str, str] = {}
        if taken.has_cursor and bad_row is None:
            metadata = {"headwater.cursor": to_json(taken.cursor), "headwater.shard": str(self._shard)}
        if taken.caught_up:
            metadata["headwater.caught_up"] = "true"
        if metadata and not batches:
            batches = [self.packing.nothing()]
        self._pending.learn(sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches))
        for batch in batches:
            self._send(message(batch, metadata if batch is batches[-1] else {}))
            self.rows += batch.num_rows
        if error is not None:
            raise error
        if taken.has_cursor:
            self.cursor = json.loads(metadata["headwater.cursor"])  # the same after every kind of restart

    def _send(self, data: Any) -> None:
        try:
            self._connection.sendall(data)
        except OSError:  # closed by either side: the query is over, and knows why
            raise FeedStopped from None
