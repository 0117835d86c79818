"""What the JVM asks about the partitions of a source, and the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater._author.schema import arrow_schema
from headwater._author.source import schema_of_source
from headwater._feed.failure import explain
from headwater._partitioned.order import WatchOrder
from headwater._partitioned.policy import WatchFailed
from headwater._partitioned.shipped import reader
from headwater._partitioned.watch import Watch

__all__ = ["HandOver", "after", "open_watch", "positions"]

Answer = Callable[[dict[str, Any]], None]

HandOver = Callable[[str, Any], None]
"""Gives the JVM what tasks run, by the name of the feed."""


def open_watch(order: WatchOrder, watch: Watch, hand_over: HandOver, answer: Answer) -> None:
    """Hand over what reads the rows, and begin to watch."""
    try:
        source = order.order.make()
        arrow_schema(schema_of_source(source))  # says which column has no way to travel
        hand_over(order.order.feed, reader(source, order))
        watch.start()
    except BaseException as error:
        watch.stop()
        answer({"error": {"message": explain(error, order.order.secrets(), "")}})
    else:
        answer({"answer": {}})


def positions(watch: Watch | None, version: int, answer: Answer) -> None:
    """Answered when there is a newer version; so this returns at once."""
    if watch is None:
        answer({"answer": {"version": version, "stopped": True}})
    else:
        watch.positions.when_newer(version, lambda known: answer({"answer": known}))


def after(watch: Watch | None, wanted: dict[str, list[int]], answer: Answer) -> None:
    try:
        if watch is None:
            raise WatchFailed("the watch is over")
        ends = watch.after({text: (start, rows) for text, (start, rows) in wanted.items()})
    except WatchFailed as failure:
        answer({"error": {"message": str(failure)}})
    else:
        answer({"answer": {"ends": ends}})
