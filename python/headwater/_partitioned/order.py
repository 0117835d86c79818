"""What the JVM orders: a watch of a source's partitions, and where it begins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from headwater._author.partition_values import Name
from headwater._feed.order import Order

__all__ = ["StartFrom", "WatchOrder"]


@dataclass(frozen=True)
class StartFrom:
    """Where partitions begin that were never read: `earliest`, `latest`, `at` a time, or a `vector`."""

    kind: str = "earliest"
    time: datetime | None = None
    offsets: dict[str, int] | None = None

    @classmethod
    def read(cls, asked: dict[str, Any]) -> StartFrom:
        if asked["kind"] == "at":
            text = re.sub(r"(\.\d{6})\d+", r"\1", asked["time"])  # Java's have nanoseconds
            time = datetime.fromisoformat(text.replace("Z", "+00:00"))
            return cls("at", time=time.astimezone(timezone.utc))
        return cls(asked["kind"], offsets=asked.get("offsets"))

    def known(self, partition: str) -> int | None:
        """Where that one begins, if no call is needed to know it."""
        return (self.offsets or {}).get(partition)

    def call(self, partition: Name) -> tuple[str, tuple[Any, ...]] | None:
        """The method to call, and its arguments; None: its first `latest` is its start."""
        if self.kind == "latest":
            return None
        return ("at", (partition, self.time)) if self.kind == "at" else ("earliest", (partition,))


@dataclass(frozen=True)
class WatchOrder:
    """One watch that is to run. `known` are the partitions, as texts, whose start the JVM has."""

    order: Order
    fail_on_data_loss: bool
    start_from: StartFrom
    known: frozenset[str]
    max_restarts: int | None

    @classmethod
    def read(cls, question: dict[str, Any]) -> WatchOrder:
        return cls(
            order=Order.read(question),
            fail_on_data_loss=question["failOnDataLoss"],
            start_from=StartFrom.read(question["startFrom"]),
            known=frozenset(question["known"]),
            max_restarts=question.get("maxRestarts"),
        )
