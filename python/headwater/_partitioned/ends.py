"""`after`: for sources whose offsets have gaps, where a batch of so many rows ends."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue

from headwater._author.partition_values import Name, checked_offset
from headwater._partitioned.calls import Calls
from headwater._partitioned.policy import WatchFailed
from headwater._partitioned.worker import Call, Outcome

__all__ = ["Wanted", "ends_behind"]

_STEP_SECONDS = 0.25

Wanted = dict[Name, tuple[int, int]]
"""For each partition where to begin, and how many rows are wanted."""


def ends_behind(calls: Calls, wanted: Wanted, is_over: Callable[[], bool]) -> dict[Name, int]:
    """Asks for all at once, and waits for them. WatchFailed, with its cause, for the first that fails."""
    answers: SimpleQueue[tuple[Call, Outcome]] = SimpleQueue()
    for partition, (start, rows) in wanted.items():
        calls.put(Call("after", (partition, start, rows), lambda *done: answers.put(done)))
    ends: dict[Name, int] = {}
    while len(ends) < len(wanted):
        try:
            call, outcome = answers.get(timeout=_STEP_SECONDS)
        except Empty:
            if is_over():
                raise WatchFailed("the watch is over") from None
        else:
            ends[call.args[0]] = _end_of(call, outcome)
    return ends


def _end_of(call: Call, outcome: Outcome) -> int:
    if outcome.error is not None:
        raise WatchFailed(str(call)) from outcome.error
    try:
        end = checked_offset(outcome.value, str(call))
        if end <= call.args[1]:
            raise ValueError(f"{call} gave {end}; it must be behind its start")
    except ValueError as wrong:
        raise WatchFailed(str(call)) from wrong.with_traceback(None)
    return end
