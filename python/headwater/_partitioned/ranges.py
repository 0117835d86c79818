"""The rows of one range, as `read` gives them: checked against the range, and read again after an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headwater._author.partition_values import Name, checked_offset, from_text
from headwater._author.partitioned import NO_AT, PartitionedSource, begin_range
from headwater._author.reading import At
from headwater._feed.pending import Pending

__all__ = ["Range", "SaidError", "parts_of"]


class SaidError(Exception):
    """An error of the source that reading again would not mend; the message says it all."""


@dataclass(frozen=True)
class Range:
    """Offsets start <= o < end of a partition; `number` is what the JVM calls it."""

    number: int
    partition: Name
    start: int
    end: int

    @classmethod
    def of(cls, asked: dict[str, Any]) -> Range:
        return cls(asked["i"], from_text(asked["p"], asked["kind"]), asked["start"], asked["end"])

    def __str__(self) -> str:
        return f"read({self.partition!r}, {self.start}, {self.end})"

    def still_there(self, source: PartitionedSource) -> Range:
        """The part of it that can still be read; perhaps nothing."""
        call = f"earliest({self.partition!r})"
        try:
            earliest = checked_offset(source.earliest(self.partition), call)
        except ValueError as wrong:
            raise SaidError(str(wrong)) from None
        return Range(self.number, self.partition, min(max(self.start, earliest), self.end), self.end)


def parts_of(source: PartitionedSource, asked: Range, pending: Pending, given: int) -> Iterator[list[Any]]:
    """Lists of rows, and tables, but for the first `given` rows.

    What came before an error of the source is given before it is raised. SaidError for more rows than there
    are offsets, and for fewer than were given before.
    """
    seen = 0
    for parts in _gathered(begin_range(source, asked.partition, asked.start, asked.end), pending):
        before, most = seen, asked.end - asked.start
        seen += sum(map(len, parts))
        if seen > most:
            raise SaidError(
                f"{asked} gave {most + 1} rows and more; offsets increase, so there can be at most {most}"
            )
        yield _without(parts, max(0, given - before))
    if seen < given:
        raise SaidError(
            f"{asked} gave {seen} rows, and had given {given} before it failed; the same range must give the "
            "same rows each time"
        )


def _gathered(items: Iterator[Any], pending: Pending) -> Iterator[list[Any]]:
    failure = None
    try:
        for item in items:
            if isinstance(item, At):
                raise SaidError(NO_AT)
            is_full = pending.add(item)
            if not is_full and not pending.one_by_one:
                is_full = pending.add_many(items)
            if is_full:
                yield _taken(pending)
    except (Exception, SystemExit) as error:
        failure = error
    finally:
        getattr(items, "close", _nothing)()
    yield _taken(pending)
    if failure is not None:
        raise failure


def _taken(pending: Pending) -> list[Any]:
    taken = pending.take()
    if taken.error is not None:
        raise SaidError(NO_AT)
    return taken.parts


def _without(parts: list[Any], rows: int) -> list[Any]:
    """Without the first so many rows."""
    kept = []
    for part in parts:
        if rows < len(part):
            kept.append(_behind(part, rows) if rows else part)
        rows = max(0, rows - len(part))
    return kept


def _behind(part: Any, rows: int) -> Any:
    slicing: Callable[..., Any] | None = getattr(part, "slice", None)  # Arrow's
    return part[rows:] if slicing is None else slicing(rows)


def _nothing() -> None:
    pass
