"""What a watch asks, and what it makes of the answers. All of it runs in the watch's own thread."""

from __future__ import annotations

from collections.abc import Callable, Collection
from time import monotonic
from typing import Any

from headwater._author.partition_values import Name, checked_names, checked_offset, kind_of_names
from headwater._partitioned.order import StartFrom, WatchOrder
from headwater._partitioned.partition import Partition, Trouble
from headwater._partitioned.policy import Policy, WatchFailed
from headwater._partitioned.worker import Call, Outcome

__all__ = ["Rounds"]

_EARLIEST = StartFrom()


class Rounds:
    """Asks `partitions()`, where new partitions start, and the `latest` of each, as often as it is told to.

    `put` makes a call somewhere else; `take` gets its outcome. A call that is under way is not made again.
    """

    def __init__(
        self, order: WatchOrder, put: Callable[[str, tuple[Any, ...]], Call], policy: Policy
    ) -> None:
        self._order = order
        self._put = put
        self._policy = policy
        self._asked: dict[Call, Partition | None] = {}
        self._stuck: set[Call] = set()
        self._listing = Trouble()
        self._listings = 0
        self._doubts: list[tuple[int, Partition, Call, BaseException]] = []
        self._kind: str | None = None
        self._is_listed = False
        self.has_changed = False
        self.cpu_seconds = 0.0
        self.errors = 0
        self.last_error: str | None = None
        self.partitions: dict[str, Partition] = {}

    @property
    def is_busy(self) -> bool:
        """A call is under way that may return."""
        return len(self._asked) > len(self._stuck)

    @property
    def is_failing(self) -> bool:
        """From any thread."""
        troubles = [self._listing, *(found.trouble for found in list(self.partitions.values()))]
        return any(trouble.is_failing and not trouble.is_ended for trouble in troubles)

    def ask(self) -> None:
        """Make all calls that are due."""
        self.cpu_seconds = 0.0
        now = monotonic()
        if self._listing.can_be_asked(now):
            self._listings += 1
            self._call(None, "partitions", ())
        for partition in self.partitions.values():
            if partition.is_listed and partition.trouble.can_be_asked(now):
                self._ask_about(partition)

    def take(self, call: Call, outcome: Outcome) -> None:
        partition = self._asked[call]
        trouble = self._listing if partition is None else partition.trouble
        if outcome.is_stuck:
            self._stuck.add(call)
        else:
            del self._asked[call]
            self._stuck.discard(call)
            trouble.is_busy = False
        if outcome.was_stuck or (partition is not None and not partition.is_listed):
            return  # it has failed already, or its partition is gone
        self.cpu_seconds += outcome.cpu_seconds
        error = outcome.error or self._applied(call, partition, outcome.value)
        trouble.due = max(trouble.due, monotonic() + outcome.seconds)  # a slow one is asked half of the time
        if error is None:
            self.has_changed |= trouble.is_failing
            trouble.failures = 0
        elif partition is None or outcome.is_stuck or self._listing.is_ended:
            self._failed(trouble, call, error)
        else:
            trouble.is_busy = True
            self._doubts.append((self._listings, partition, call, error))

    def known(self) -> dict[str, Any]:
        """All that the JVM is told."""
        self.has_changed = False
        listed = {text: found for text, found in self.partitions.items() if found.is_listed}
        placed = {text: found for text, found in listed.items() if found.is_placed}
        troubles = {"": self._listing, **{text: found.trouble for text, found in listed.items()}}
        gone = (self._order.known | self.partitions.keys()) - listed.keys() if self._is_listed else set()
        return {
            "partitions": self._kind or "text",
            "latest": {text: found.latest for text, found in placed.items() if found.latest is not None},
            "starts": {
                t: p.start for t, p in self.partitions.items() if p.is_settled and p.start is not None
            },
            "gone": sorted(gone),
            "complete": (self._is_listed or self._listing.is_ended)
            and all(found.has_answered for found in listed.values()),
            "failing": {text: trouble.told() for text, trouble in troubles.items() if trouble.is_failing},
        }

    def _ask_about(self, partition: Partition) -> None:
        """First where it begins, then how far it goes."""
        partition.was_asked = True
        how = None if partition.is_placed or partition.start_from is None else partition.start_from
        method, args = (how and how.call(partition.name)) or ("latest", (partition.name,))
        self._call(partition, method, args)

    def _call(self, partition: Partition | None, method: str, args: tuple[Any, ...]) -> None:
        trouble = self._listing if partition is None else partition.trouble
        trouble.is_busy = True
        self._asked[self._put(method, args)] = partition

    def _applied(self, call: Call, partition: Partition | None, value: Any) -> ValueError | None:
        """What is wrong with the value, if anything."""
        try:
            if partition is None:
                self._list(checked_names(value))
                return None
            offset = checked_offset(value, str(call))
        except ValueError as wrong:
            return wrong.with_traceback(None)  # the author's code is not to be seen there
        if call.method == "latest":
            self.has_changed |= partition.reached(offset)
        else:
            partition.start = offset
            self._ask_about(partition)
        return None

    def _list(self, names: list[Name]) -> None:
        kind = kind_of_names(names)
        if self._kind and kind and kind != self._kind:
            raise ValueError(f"partitions() gave {kind}s, and {self._kind}s before: names stay of one kind")
        self._kind = kind or self._kind
        texts = {str(name): name for name in names}
        is_first = not self._is_listed and not self._order.known
        if is_first:
            self._check_vector(texts.keys())
        for text, name in texts.items():
            if text not in self.partitions:
                start_from = self._order.start_from if is_first else _EARLIEST
                placed = text in self._order.known
                self.partitions[text] = Partition(
                    name, None if placed else start_from, start_from.known(text)
                )
        self.has_changed |= not self._is_listed
        self._is_listed = True
        for text, partition in self.partitions.items():
            self.has_changed |= partition.is_listed != (text in texts) or not partition.was_asked
            partition.is_listed = text in texts
            if not partition.is_listed:
                partition.latest = None
            elif not partition.was_asked:
                self._ask_about(partition)
        self._settle_doubts()

    def _settle_doubts(self) -> None:
        """A call about a partition may fail because that is gone: the next list of partitions tells."""
        doubts, self._doubts = self._doubts, []
        for listing, partition, call, error in doubts:
            if partition.is_listed and listing >= self._listings:  # this list may be older than the error
                self._doubts.append((listing, partition, call, error))
                continue
            partition.trouble.is_busy = False
            if partition.is_listed:
                self._failed(partition.trouble, call, error)

    def _failed(self, trouble: Trouble, call: Call, error: BaseException) -> None:
        self.has_changed = True
        self.errors += 1
        try:
            self._policy.failed(trouble, call, error)
        finally:
            self.last_error = trouble.last

    def _check_vector(self, there: Collection[str]) -> None:
        unknown = sorted(set(self._order.start_from.offsets or ()) - set(there))
        if unknown:
            raise WatchFailed(
                f"the option startFrom names partition {', '.join(map(repr, unknown))}, which is not there; "
                f"there are: {', '.join(map(repr, sorted(there))) or 'none'}. Set it to offsets of those."
            )
