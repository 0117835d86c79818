"""What the JVM orders: a feed of a source, with the policies that it runs under."""

from __future__ import annotations

import json
import math
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from headwater._author import registry
from headwater._author.given_schema import options_in

__all__ = ["Order", "Shard", "in_shard", "shard"]


@dataclass(frozen=True)
class Shard:
    """Which of the feeds that run side by side this is, from 0, and how many they are."""

    index: int
    count: int


_ALONE = Shard(0, 1)
_current: ContextVar[Shard] = ContextVar("headwater_shard", default=_ALONE)


def shard() -> Shard:
    """Called in `read`: which of `concurrency` feeds this is, to read a share of the upstream.

    >>> import headwater as hw
    >>> @hw.source("n LONG")
    ... def share():
    ...     mine = hw.shard()
    ...     yield from range(mine.index, 6, mine.count)
    >>> print(hw.shard(), list(share()))
    Shard(index=0, count=1) [0, 1, 2, 3, 4, 5]
    """
    return _current.get()


def in_shard(mine: Shard) -> None:
    """From now on, in this thread and what it starts, `shard()` is that one."""
    _current.set(mine)


@dataclass(frozen=True)
class Order:
    """One feed that is to run."""

    feed: str
    source: str
    options: dict[str, str]
    shard: Shard
    query: str
    on_error: str
    most_failures: float
    """In a row; one more fails the query, whatever `on_error` says."""
    on_bad_row: str
    linger: float
    batch_rows: int
    since: Any = None
    """The cursor to go on after."""

    @classmethod
    def read(cls, question: dict[str, Any]) -> Order:
        return cls(
            feed=question["feed"],
            source=question["source"],
            options=options_in(question),
            shard=Shard(question.get("shard", 0), question.get("shards", 1)),
            query=question.get("queryName") or question.get("query") or "none",
            on_error=question["onError"],
            most_failures=question.get("maxRestarts", math.inf),
            on_bad_row=question["onBadRow"],
            linger=question.get("lingerMs", 0) / 1000,
            batch_rows=question["batchRows"],
            since=json.loads(question.get("since", "null")),
        )

    @property
    def name(self) -> str:
        """The source's name, without the mark of a value that was handed over."""
        return self.source.partition("@")[0]

    def make(self) -> Any:
        """The configured source; a new instance each time."""
        return registry.find(self.source, self.options)

    def secrets(self) -> list[str]:
        """What must not be told."""
        return registry.secrets_in(self.source, self.options)
