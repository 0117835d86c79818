"""One partition as the driver knows it, and how its calls have failed."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater._author.partition_values import Name
from headwater._partitioned.order import StartFrom

__all__ = ["Partition", "PartitionStatus", "Trouble"]


@dataclass(frozen=True)
class PartitionStatus:
    """A partition as it was when `feeds()` was called."""

    name: Name
    offset: int | None
    """Where the query stands: the next offset that it reads."""
    latest: int | None
    """One past the last offset that there is."""
    lag: int | None
    errors: int
    """Calls about it that have failed so far."""
    last_error: str | None


@dataclass
class Trouble:
    """What went wrong with calls about one thing, and when to make the next."""

    failures: int = 0
    """In a row."""
    errors: int = 0
    last: str | None = None
    due: float = 0.0
    is_ended: bool = False
    is_busy: bool = False
    """A call is under way; perhaps one that was given up."""

    @property
    def is_failing(self) -> bool:
        return self.failures > 0

    def can_be_asked(self, now: float) -> bool:
        return not self.is_busy and not self.is_ended and now >= self.due

    def failed(self, said: str) -> None:
        self.failures += 1
        self.errors += 1
        self.last = said

    def told(self) -> dict[str, object]:
        return {"errors": self.failures, "last": self.last}


@dataclass
class Partition:
    """`start_from` is how its start is found out; None where the JVM knows it."""

    name: Name
    start_from: StartFrom | None
    start: int | None = None
    latest: int | None = None
    is_listed: bool = True
    was_asked: bool = False
    is_settled: bool = False
    """Its start stays as it is."""
    trouble: Trouble = field(default_factory=Trouble)

    @property
    def text(self) -> str:
        return str(self.name)

    @property
    def is_placed(self) -> bool:
        """It is known where it begins, here or in the JVM."""
        return self.start_from is None or self.start is not None

    @property
    def has_answered(self) -> bool:
        """Or failed to."""
        ready = self.is_placed and self.latest is not None
        return ready or self.trouble.is_failing or self.trouble.is_ended

    def reached(self, latest: int) -> bool:
        """Whether that is news. A time after all that is there leads to the end: the next row comes there."""
        is_news = latest != self.latest
        self.latest = latest
        if not self.is_settled and self.start_from is not None:
            is_later = self.start is not None and self.start > latest and self.start_from.kind == "at"
            self.start = latest if self.start is None or is_later else self.start
        self.is_settled = True
        return is_news

    def status(self, offset: int | None) -> PartitionStatus:
        lag = None if offset is None or self.latest is None else max(0, self.latest - offset)
        trouble = self.trouble
        return PartitionStatus(self.name, offset, self.latest, lag, trouble.errors, trouble.last)
