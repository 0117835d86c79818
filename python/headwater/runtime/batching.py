"""Batches: rows that a feed yields become Arrow batches and are sent to the JVM."""

from __future__ import annotations

import json
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
from headwater.runtime.threads import FeedStopped
from headwater.schema import has_array_rows
from headwater.source import CAUGHT_UP, At, Source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "BATCH_BYTES",
    "END",
    "MAX_ROW_BYTES",
    "BatchEncoder",
    "BatchSender",
    "Drained",
    "ItemBuffer",
    "message",
    "to_json",
]

MAX_ROW_BYTES = 64 << 20

BATCH_BYTES = 400 << 10
"""Arrays from half a megabyte on may take up to twice their size of a JVM's heap."""

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Ends an Arrow stream."""


def message(batch: pa.RecordBatch, metadata: dict[str, str]) -> Any:
    """One message of an Arrow stream; the metadata is the batch's own."""
    if not metadata:
        return batch.serialize()
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, batch.schema).write_batch(batch, custom_metadata=metadata)
    return memoryview(sink.getvalue())[batch.schema.serialize().size :]


def to_json(cursor: Any) -> str:
    try:
        text = json.dumps(cursor, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
        text.encode()  # a str may have lone surrogates
        return text
    except (TypeError, ValueError) as error:
        raise TypeError(f"the cursor {cursor!r} cannot be written as JSON: {error}") from error


_SAMPLES = 10


class BatchEncoder:
    """Numbers rows from 0 in the order they come. Used by one thread at a time."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self._numbered = 0
        self.bad_rows = 0
        self.samples: list[str] = []

    @property
    def schema(self) -> pa.Schema:
        return self._converter.arrow_schema

    def nothing(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], self.schema)

    def pack(self, parts: list[Any]) -> tuple[list[pa.RecordBatch], BadRowError | None]:
        """All that is good before the first row that fails the feed, and the error of that row."""
        made: list[pa.RecordBatch] = []
        error = None
        for part in parts:
            try:
                made += self._convert(part)
            except BadRowError as bad:
                error = bad
                if isinstance(part, list):
                    made += self._convert(part[: bad.number - self._numbered])
                break
        return list(resize(made, BATCH_BYTES)), error

    def _convert(self, part: Any) -> list[pa.RecordBatch]:
        convert = self._converter.from_rows if isinstance(part, list) else self._converter.from_arrow
        batch, bad = convert(part, self._numbered)
        if batch.nbytes > MAX_ROW_BYTES:
            batch, heavy = self._without_heavy_rows(batch)
            bad = bad + heavy
        self._numbered += len(part)
        self.bad_rows += len({error.number for error in bad})
        self.samples += [str(error) for error in bad[: _SAMPLES - len(self.samples)]]
        return [batch] if batch.num_rows else []

    def _without_heavy_rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[BadRowError]]:
        """A row travels whole, in one message to a task, and that is limited."""
        good, bad = [], []
        for index in range(batch.num_rows):
            row = batch.slice(index, 1)
            if row.nbytes <= MAX_ROW_BYTES:
                good.append(row)
                continue
            column = max(row.schema.names, key=lambda name: row.column(name).nbytes)
            reason = f"the row weighs {row.nbytes:,} bytes; a row may weigh up to {MAX_ROW_BYTES:,}"
            bad.append(BadRowError(self._numbered + index, column, "…", reason))
        if bad and self._converter.on_bad_row == "fail":
            raise bad[0]
        return join(good) if good else self.nothing(), bad


_FIRST_ROWS = 64  # until it is known what rows weigh
_GROWTH = 8
_CHUNK = 512
_SECOND: Any = {}.get  # of two arguments, in C


@dataclass
class Drained:
    """Items in their order: lists of rows, and Arrow or pandas tables; and what is to be said after them."""

    parts: list[Any] = field(default_factory=list)
    has_cursor: bool = False
    cursor: Any = None
    caught_up: bool = False
    error: TypeError | None = None


class ItemBuffer:
    """Gathers items until they are taken. What stands under one `At` is one item, so it is taken together.

    One thread adds, any may take; a deque is made for that. A batch is full at `batch_rows` rows, and before
    that where rows are heavy: at about `batch_bytes`, going by what the rows before them have weighed.
    """

    def __init__(self, *, resumable: bool, batch_rows: int, batch_bytes: int, array_column: bool) -> None:
        self._resumable = resumable
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        self._array_column = array_column
        self._items: deque[Any] = deque()
        self._in_tables = 0
        self._limit = min(batch_rows, _FIRST_ROWS)
        self._asked: list[None] = []
        # Lists and dicts are copied as they come, and of tables a few may fill the memory.
        self.one_by_one = False

    @classmethod
    def of(cls, source: Source, schema: StructType, batch_rows: int) -> ItemBuffer:
        """For what that source yields, in messages of a good size."""
        return cls(
            resumable=is_resumable(type(source)),
            batch_rows=batch_rows,
            batch_bytes=BATCH_BYTES,
            array_column=has_array_rows(schema),
        )

    def __len__(self) -> int:
        """Rows, or more than that while items are being added and taken."""
        return len(self._items) + self._in_tables

    def add(self, item: Any) -> bool:
        """Whether there is enough for a batch. Runs for each row, so it does little."""
        if type(item) is not tuple or self._resumable:
            self._check(item)
            if type(item) is list or type(item) is dict:
                item = item.copy()  # its author may fill the same one again
                self.one_by_one = True
            if self._count(item):
                self._items.append(item)
                return True
        self._items.append(item)
        return len(self._items) + self._in_tables >= self._limit

    def add_many(self, items: Iterator[Any]) -> bool:
        """As `add` for the next few items, if there are any, without a step of Python for each."""
        self._asked = [None] * min(_CHUNK, self._limit)
        self._items.extend(map(_SECOND, self._asked, items))  # a None is drawn before each item
        return len(self) >= self._limit

    def ask_no_more(self) -> None:
        """From any thread: `add_many` ends with the item that it waits for."""
        self._asked.clear()

    @property
    def is_caught_up(self) -> bool:
        """Nothing was added after CAUGHT_UP."""
        try:
            return self._items[-1] is CAUGHT_UP
        except IndexError:
            return False

    def take(self) -> Drained:
        """All that is there."""
        items = [self._items.popleft() for _ in range(len(self._items))]
        self._in_tables = 0
        if set(map(type, items)) == {tuple} and not self._resumable:
            return Drained([items])
        taken = Drained()
        try:
            for item in items:
                self._sort(item, taken)
        except TypeError as error:  # what came before it is good
            taken.error = error
        return taken

    def learn(self, rows: int, weight: int) -> None:
        """What so many rows have weighed."""
        if rows:
            by_weight = max(1, self._batch_bytes * rows // max(1, weight))
            self._limit = min(self._batch_rows, by_weight, self._limit * _GROWTH)

    def _count(self, item: Any) -> bool:
        """Whether the item alone makes it time to send."""
        if item is CAUGHT_UP:
            return True
        rows = item.rows if isinstance(item, At) else item
        many = self._size(rows)
        if many is not None:
            self.one_by_one = True
            self._in_tables += many
            return self._in_tables >= self._batch_rows
        return False

    def _size(self, rows: Any) -> int | None:
        """How many rows these are; None for one row."""
        if type(rows) is list and not self._array_column:
            return len(rows)
        return len(rows) if Converter.is_table(rows) else None

    def _sort(self, item: Any, taken: Drained) -> None:
        self._check(item)
        if item is CAUGHT_UP:
            taken.caught_up = True
            return
        rows = item
        if isinstance(item, At):
            taken.has_cursor, taken.cursor, rows = True, item.cursor, item.rows
        many = self._size(rows)
        self.one_by_one = self.one_by_one or many is not None
        if many is not None and type(rows) is not list:
            taken.parts.append(rows)
        elif many != 0:
            if not taken.parts or type(taken.parts[-1]) is not list:
                taken.parts.append([])
            taken.parts[-1].extend([rows] if many is None else rows)

    def _check(self, item: Any) -> None:
        if item is not CAUGHT_UP and isinstance(item, At) is not self._resumable:
            raise TypeError(_NO_AT.format(item=shorten(item)) if self._resumable else _NO_SINCE)


_NO_AT = (
    "a source whose read takes `since` is resumable, and yields hw.At(cursor, row_or_rows) only; it has "
    "yielded {item}. Wrap its rows in hw.At, or take `since` out of its parameters"
)
_NO_SINCE = (
    "a source that yields hw.At(cursor, rows) is resumable: let its read take a parameter `since`, the "
    "cursor to go on after, or yield the rows alone"
)


_POLL_SECONDS, _LOOK_SECONDS = 0.005, 0.05


class BatchSender:
    """One feed's way to the JVM. Batches go out in the order of their rows, whoever sends them."""

    def __init__(
        self,
        connection: socket.socket,
        packing: BatchEncoder,
        pending: ItemBuffer,
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

    def _transmit(self, taken: Drained) -> None:
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
