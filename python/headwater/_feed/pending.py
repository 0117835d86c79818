"""What a feed has yielded and nobody has sent yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater._author.reading import CAUGHT_UP, At, has_array_rows
from headwater._author.source import Source, is_resumable
from headwater._feed.message import BATCH_BYTES
from headwater._rows.bad_rows import shown
from headwater._rows.converter import Converter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Pending", "Taken"]

_FIRST_ROWS = 64  # until it is known what rows weigh
_GROWTH = 8
_CHUNK = 512
_SECOND: Any = {}.get  # of two arguments, in C


@dataclass
class Taken:
    """Items in their order: lists of rows, and Arrow or pandas tables; and what is to be said after them."""

    parts: list[Any] = field(default_factory=list)
    has_cursor: bool = False
    cursor: Any = None
    caught_up: bool = False
    error: TypeError | None = None


class Pending:
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
    def of(cls, source: Source, schema: StructType, batch_rows: int) -> Pending:
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

    def take(self) -> Taken:
        """All that is there."""
        items = [self._items.popleft() for _ in range(len(self._items))]
        self._in_tables = 0
        if set(map(type, items)) == {tuple} and not self._resumable:
            return Taken([items])
        taken = Taken()
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

    def _sort(self, item: Any, taken: Taken) -> None:
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
            raise TypeError(_NO_AT.format(item=shown(item)) if self._resumable else _NO_SINCE)


_NO_AT = (
    "a source whose read takes `since` is resumable, and yields hw.At(cursor, row_or_rows) only; it has "
    "yielded {item}. Wrap its rows in hw.At, or take `since` out of its parameters"
)
_NO_SINCE = (
    "a source that yields hw.At(cursor, rows) is resumable: let its read take a parameter `since`, the "
    "cursor to go on after, or yield the rows alone"
)
