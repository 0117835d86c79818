"""From `yield` to the socket: what a feed yields becomes Arrow batches, and these are sent to the JVM.

A row passes four objects, in this order:

1. `ReadLoop` (`headwater.runtime.feed`) iterates over what `read` yields, in the feed's thread.
2. `ItemBuffer` collects the items until there are enough for a batch.
3. `BatchEncoder` converts the items to Arrow record batches and deals with bad rows.
4. `BatchSender` decides when to do that, and writes the batches to the feed's socket.

Two threads work here. The **feed's thread** adds items, and flushes when a batch is full. The **linger
thread** of each sender flushes when items have waited for `linger` seconds. Whoever flushes holds the
sender's lock while it drains, encodes and sends, so batches leave in the order of their rows.

The socket is what holds a feed back: when the JVM's buffer is full, the JVM stops reading, and `flush` blocks
until it reads again or the sender is closed. Nothing else here waits for long.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.definition import is_resumable
from headwater.errors import BadRowError, shorten
from headwater.rows.batches import join, resize
from headwater.rows.converter import Converter
from headwater.rows.kept import KeepingConverter
from headwater.runtime.forks import exit_if_forked, inherits
from headwater.runtime.threads import Deadline, FeedStopped
from headwater.schema import has_array_rows
from headwater.source import CAUGHT_UP, At, Source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["MAX_SAMPLES", "BatchEncoder", "BatchSender", "ItemBuffer"]

BATCH_BYTES = 400 << 10
"""An array of half a megabyte or more may take up to twice its size of a JVM's heap."""

_FIRST_ROWS = 64  # in the first batch, while the size of a row is not known
_GROWTH = 8
_CHUNK = 512
_second: Any = {}.get  # a function in C that returns its second argument


@dataclass
class Drained:
    """What an ItemBuffer held. `parts` are lists of rows, and Arrow or pandas tables, in order."""

    parts: list[Any] = field(default_factory=list)
    has_cursor: bool = False
    cursor: Any = None
    """Of the last `At`."""
    caught_up: bool = False
    error: TypeError | None = None
    """For the first item that this source may not yield; the parts before it are good."""


class ItemBuffer:
    """Collects what a source yields until it is drained.

    An item is a row, a list of rows, a table, an `At` with any of those, or CAUGHT_UP. The rows of one `At`
    are one item, so they are drained together.

    A batch is full at `batch_rows` rows, or earlier at about `batch_bytes` bytes, judged by the size of the
    rows before it. The buffer does not refuse items: whoever adds is told that it is full, and drains it.

    One thread adds; any thread may drain at the same time, and `cancel_add_many` may come from any thread. No
    method blocks, except that `add_many` waits for the iterator that it is given.
    """

    def __init__(self, *, resumable: bool, batch_rows: int, batch_bytes: int, array_column: bool) -> None:
        self._resumable = resumable
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        self._array_column = array_column
        self._items: deque[Any] = deque()
        self._rows_in_tables = 0
        self._limit = min(batch_rows, _FIRST_ROWS)
        self._tickets: list[None] = []
        self.one_by_one = False
        """Do not use `add_many`: lists and dicts must be copied at once, and a few tables fill the memory."""

    @classmethod
    def for_source(cls, source: Source, schema: StructType, batch_rows: int) -> ItemBuffer:
        return cls(
            resumable=is_resumable(type(source)),
            batch_rows=batch_rows,
            batch_bytes=BATCH_BYTES,
            array_column=has_array_rows(schema),
        )

    def __len__(self) -> int:
        """The number of rows; too high while items are being added and drained."""
        return len(self._items) + self._rows_in_tables

    def add(self, item: Any) -> bool:
        """Add an item, and return whether a batch is full. Runs for every row, so it does little."""
        if type(item) is not tuple or self._resumable:
            self._validate(item)
            if type(item) is list or type(item) is dict:
                item = item.copy()  # its author may fill the same one again
                self.one_by_one = True
            if self._completes_batch(item):
                self._items.append(item)
                return True
        self._items.append(item)
        return len(self._items) + self._rows_in_tables >= self._limit

    def add_many(self, items: Iterator[Any]) -> bool:
        """As `add` for the next few items of an iterator, but in C. They are validated when they are drained.

        Each item costs a ticket, which is taken before the item is drawn. When no ticket is left, it ends.
        """
        self._tickets = [None] * min(_CHUNK, self._limit)
        self._items.extend(map(_second, self._tickets, items))
        return len(self) >= self._limit

    def cancel_add_many(self) -> None:
        """Make `add_many` end with the item that it is waiting for."""
        self._tickets.clear()

    @property
    def is_caught_up(self) -> bool:
        """Whether CAUGHT_UP was added last."""
        try:
            return self._items[-1] is CAUGHT_UP
        except IndexError:
            return False

    def drain(self) -> Drained:
        """Remove and return all items."""
        items = [self._items.popleft() for _ in range(len(self._items))]
        self._rows_in_tables = 0
        if set(map(type, items)) == {tuple} and not self._resumable:
            return Drained([items])
        drained = Drained()
        try:
            for item in items:
                self._move(item, drained)
        except TypeError as error:
            drained.error = error
        return drained

    def learn_row_size(self, rows: int, size: int) -> None:
        """Adapt the size of batches: that many rows had `size` bytes."""
        if rows:
            rows_per_batch = max(1, self._batch_bytes * rows // max(1, size))
            self._limit = min(self._batch_rows, rows_per_batch, self._limit * _GROWTH)

    def _completes_batch(self, item: Any) -> bool:
        """Count the rows of an item that holds many; whether it is time to send because of it."""
        if item is CAUGHT_UP:
            return True
        count = self._row_count(item.rows if isinstance(item, At) else item)
        if count is None:
            return False
        self.one_by_one = True
        self._rows_in_tables += count
        return self._rows_in_tables >= self._batch_rows

    def _row_count(self, rows: Any) -> int | None:
        """None for a single row."""
        if type(rows) is list and not self._array_column:
            return len(rows)
        return len(rows) if Converter.is_table(rows) else None

    def _move(self, item: Any, drained: Drained) -> None:
        self._validate(item)
        if item is CAUGHT_UP:
            drained.caught_up = True
            return
        rows = item
        if isinstance(item, At):
            drained.has_cursor, drained.cursor, rows = True, item.cursor, item.rows
        count = self._row_count(rows)
        self.one_by_one = self.one_by_one or count is not None
        if count is not None and type(rows) is not list:
            drained.parts.append(rows)
        elif count != 0:
            if not drained.parts or type(drained.parts[-1]) is not list:
                drained.parts.append([])
            drained.parts[-1].extend([rows] if count is None else rows)

    def _validate(self, item: Any) -> None:
        if item is not CAUGHT_UP and isinstance(item, At) is not self._resumable:
            raise TypeError(_NEEDS_AT.format(item=shorten(item)) if self._resumable else _NEEDS_SINCE)


_NEEDS_AT = (
    "a source whose read takes `since` is resumable and may only yield hw.At(cursor, row_or_rows); it "
    "yielded {item}. Wrap its rows in hw.At, or remove the parameter `since`"
)
_NEEDS_SINCE = (
    "a source that yields hw.At(cursor, rows) is resumable: add a parameter `since` to its read, the cursor "
    "to resume after, or yield the rows alone"
)


MAX_ROW_BYTES = 64 << 20
MAX_SAMPLES = 10
"""Messages about bad rows that a feed's status shows."""


class BatchEncoder:
    """Converts rows to Arrow batches of a good size, and counts bad rows.

    Rows are numbered from 0 in the order in which they come, for messages about them. Used by one thread at a
    time: the sender calls it under its lock.
    """

    def __init__(self, converter: Converter | KeepingConverter) -> None:
        self._converter = converter
        self._numbered = 0
        self.bad_rows = 0
        self.samples: list[str] = []

    @property
    def schema(self) -> pa.Schema:
        return self._converter.arrow_schema

    def empty_batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], self.schema)

    def encode(self, parts: list[Any]) -> tuple[list[pa.RecordBatch], BadRowError | None]:
        """The batches. With `onBadRow` `fail`, those before the first bad row, and the error for that row."""
        batches: list[pa.RecordBatch] = []
        error = None
        for part in parts:
            try:
                batches += self._convert(part)
            except BadRowError as bad:
                error = bad
                if isinstance(part, list):
                    batches += self._convert(part[: bad.number - self._numbered])
                break
        return list(resize(batches, BATCH_BYTES)), error

    def _convert(self, part: Any) -> list[pa.RecordBatch]:
        convert = self._converter.from_rows if isinstance(part, list) else self._converter.from_arrow
        batch, bad = convert(part, self._numbered)
        if batch.nbytes > MAX_ROW_BYTES:
            batch, oversized = self._without_oversized_rows(batch)
            bad = bad + oversized
        self._numbered += len(part)
        self.bad_rows += len({error.number for error in bad})
        self.samples += [str(error) for error in bad[: MAX_SAMPLES - len(self.samples)]]
        return [batch] if batch.num_rows else []

    def _without_oversized_rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[BadRowError]]:
        """A row travels to a task in one message, whose size is limited."""
        good, bad = [], []
        for index in range(batch.num_rows):
            row = batch.slice(index, 1)
            if row.nbytes <= MAX_ROW_BYTES:
                good.append(row)
                continue
            column = max(row.schema.names, key=lambda name: row.column(name).nbytes)
            reason = f"the row has {row.nbytes:,} bytes; the limit is {MAX_ROW_BYTES:,}"
            bad.append(BadRowError(self._numbered + index, column, "…", reason))
            if isinstance(self._converter, KeepingConverter):
                good.append(self._converter.kept(bad[-1]))
        if bad and self._converter.on_bad_row == "fail":
            raise bad[0]
        return join(good) if good else self.empty_batch(), bad


_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # the end of an Arrow stream
_IDLE_SECONDS, _CHECK_SECONDS = 0.005, 0.05


class BatchSender:
    """Sends a feed's items to the JVM, as an Arrow stream on a connection of its own.

    A batch is sent when the buffer says that it is full, or when its oldest item has waited `linger` seconds.
    A single item after a quiet time is sent at once. The last batch of a flush carries, as metadata, the
    cursor to resume after, and whether the source has caught up.

    The feed's thread calls `add`, `pull`, `flush`, `end` and `fail`. The linger thread, which the constructor
    starts, calls `flush`, and reports what goes wrong there to `on_error`. `pause`, `resume` and `close` may
    be called from any thread.

    `flush`, `pull`, `end` and `fail` block while the JVM's buffer is full; this is how back-pressure reaches
    the source. `add` blocks while the feed is paused. `close` makes all of them raise FeedStopped.
    """

    def __init__(
        self,
        connection: socket.socket,
        encoder: BatchEncoder,
        buffer: ItemBuffer,
        *,
        shard: int,
        linger: float,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._connection = connection
        self._process = os.getpid()
        self.encoder = encoder
        self._buffer = buffer
        self._shard = shard
        self._linger = linger
        self._on_error = on_error
        self._sending = threading.Lock()
        self._has_items = threading.Event()
        self._closed = threading.Event()
        self._waiting_since = -math.inf  # when the oldest item was added, or the buffer was last drained
        self._is_fast = self._is_pulling = False
        self._flowing = threading.Event()
        self._flowing.set()
        self.broken: BaseException | None = None
        """Why a batch could not be sent. No row may follow the gap that it left."""
        self.on_bad_rows: Callable[[], None] = lambda: None
        """Called when there are more bad rows than before, by the thread that has flushed."""
        self.rows = 0
        """Rows sent so far."""
        self.cursor: Any = None
        """The last cursor sent, as it comes back from JSON: the same after every kind of restart."""
        inherits(self)
        self._send(encoder.schema.serialize())
        name = f"{threading.current_thread().name}-linger"
        self._linger_thread = threading.Thread(target=self._flush_lingering, name=name, daemon=True)
        self._linger_thread.start()

    def add(self, item: Any) -> bool:
        """Take one item. Returns whether to flush before the next one is added."""
        if self._closed.is_set() or not self._flowing.is_set():
            self.wait_until_flowing()
        is_full = self._buffer.add(item)
        self._is_fast = self._is_fast or is_full
        if not is_full and not self._has_items.is_set():
            before, self._waiting_since = self._waiting_since, monotonic()
            if self._waiting_since - before > self._linger:
                return True  # the first item after a quiet time
            self._has_items.set()
        return is_full

    def pull(self, items: Iterator[Any]) -> None:
        """Take the next few items of an iterator, if items come so fast that batches fill within `linger`."""
        if self._is_fast and not self._buffer.one_by_one:
            self._is_pulling = True
            self._has_items.set()
            try:
                is_full = self._buffer.add_many(items)
            finally:
                self._is_pulling = False
            if is_full:
                self.flush()

    def flush(self) -> None:
        """Send all items that were added."""
        with self._sending:
            if self.broken is not None:
                raise FeedStopped  # the thread that broke it reports why
            self._has_items.clear()
            if self._is_pulling:  # `add_many` does not set the event, so keep polling
                self._has_items.set()
            self._waiting_since = monotonic()
            if len(self._buffer):
                try:
                    self._transmit(self._buffer.drain())
                except BaseException as error:
                    self.broken = error
                    raise
                self._waiting_since = monotonic()  # sending may have blocked

    @property
    def is_paused(self) -> bool:
        return not self._flowing.is_set()

    def pause(self) -> None:
        self._flowing.clear()
        self._buffer.cancel_add_many()
        if self._closed.is_set():  # perhaps just now, and nobody would resume it
            self._flowing.set()

    def resume(self) -> None:
        self._flowing.set()

    def wait_until_flowing(self) -> None:
        """Block while the feed is paused."""
        self.exit_if_forked()
        self._flowing.wait()
        if self._closed.is_set():
            raise FeedStopped

    def end(self) -> None:
        """Send what is left, and the end of the stream."""
        self.flush()
        with self._sending:
            self._send(_END)
        self._accept_no_more()

    def fail(self, message: str) -> None:
        """Send the feed's failure, and the end of the stream. The JVM reads the rows before it first."""
        with self._sending:
            if not self._closed.is_set():
                text = message.encode("utf-8", "backslashreplace").decode()  # it may have lone surrogates
                self._send(_ipc_message(self.encoder.empty_batch(), {"headwater.failure": text}))
                self._send(_END)
        self._accept_no_more()

    def close(self) -> None:
        """Shut the connection down. Threads that are blocked here continue, with FeedStopped."""
        self._accept_no_more()
        with suppress(OSError):  # it is closed already
            self._connection.shutdown(socket.SHUT_RDWR)

    def release(self, deadline: Deadline) -> None:
        """After `close`: wait for the linger thread, and free the socket."""
        self._linger_thread.join(deadline.remaining)  # it only ever blocks on the connection
        self._connection.close()

    def after_fork(self) -> None:
        """In a child process: let go of the connection, without shutting it down for the parent."""
        self._connection.close()
        self._sending = threading.Lock()
        self._closed, self._flowing, self._has_items = threading.Event(), threading.Event(), threading.Event()
        self._accept_no_more()

    def exit_if_forked(self) -> None:
        """End a child process of the one that created this sender."""
        exit_if_forked(self._process)

    def _accept_no_more(self) -> None:
        self._closed.set()
        self._flowing.set()
        self._has_items.set()
        self._buffer.cancel_add_many()

    def _flush_lingering(self) -> None:
        try:
            while not self._closed.is_set():
                self._has_items.wait()
                due = self._waiting_since + self._linger - monotonic()
                if due > 0 and not (self._is_pulling and self._buffer.is_caught_up):
                    self._closed.wait(min(due, _CHECK_SECONDS))
                elif len(self._buffer):
                    self._is_fast = False
                    self._buffer.cancel_add_many()
                    self.flush()
                else:
                    self.flush()
                    self._closed.wait(_IDLE_SECONDS)
        except BaseException as error:  # the feed's thread may not send anything for a long time
            if not isinstance(error, FeedStopped):
                self._on_error(error)

    def _transmit(self, drained: Drained) -> None:
        bad_rows = self.encoder.bad_rows
        batches, bad_row = self.encoder.encode(drained.parts)
        if self.encoder.bad_rows > bad_rows:
            self.on_bad_rows()
        error = bad_row or drained.error
        metadata: dict[str, str] = {}
        if drained.has_cursor and bad_row is None:
            metadata = {"headwater.cursor": _cursor_json(drained.cursor), "headwater.shard": str(self._shard)}
        if drained.caught_up:
            metadata["headwater.caught_up"] = "true"
        if metadata and not batches:
            batches = [self.encoder.empty_batch()]
        self._buffer.learn_row_size(
            rows=sum(batch.num_rows for batch in batches), size=sum(batch.nbytes for batch in batches)
        )
        for batch in batches:
            self._send(_ipc_message(batch, metadata if batch is batches[-1] else {}))
            self.rows += batch.num_rows
        if error is not None:
            raise error
        if drained.has_cursor:
            self.cursor = json.loads(metadata["headwater.cursor"])

    def _send(self, data: Any) -> None:
        try:
            self._connection.sendall(data)
        except OSError:  # closed by either side: the query is over, and knows why
            raise FeedStopped from None


def _ipc_message(batch: pa.RecordBatch, metadata: dict[str, str]) -> Any:
    """A batch as a message of an Arrow stream, with metadata of its own."""
    if not metadata:
        return batch.serialize()
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, batch.schema).write_batch(batch, custom_metadata=metadata)
    return memoryview(sink.getvalue())[batch.schema.serialize().size :]


_MAX_CURSOR_BYTES = 8 << 20
"""The JVM divides it by the number of shards, and has limits for numbers and nesting too."""


def _cursor_json(cursor: Any) -> str:
    try:
        text = json.dumps(cursor, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
        size = len(text.encode())  # a str may have lone surrogates
    except (TypeError, ValueError) as error:
        raise TypeError(f"the cursor {cursor!r} cannot be written as JSON: {error}") from error
    if size > _MAX_CURSOR_BYTES:
        raise ValueError(
            f"the cursor {shorten(cursor)} has {size:,} bytes; the limit is {_MAX_CURSOR_BYTES:,}"
        )
    return text
