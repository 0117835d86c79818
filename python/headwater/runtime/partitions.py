"""Partitions as the driver sees them: which there are and how far each one goes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic, thread_time
from typing import Any

from headwater.errors import explain, first_line
from headwater.reading import PartitionKey, partition_key_type, validate_offset, validate_partitions
from headwater.runtime.protocol import FeedRequest, StartFrom, WatchRequest
from headwater.runtime.threads import FeedStopped, back_off, interrupt, log_of

__all__ = [
    "Call",
    "CallPool",
    "CallThread",
    "FailureState",
    "Outcome",
    "Partition",
    "PartitionStatus",
    "PartitionWatch",
    "Policy",
    "Poller",
    "Positions",
    "TooManyStuckError",
    "Wanted",
    "WatchFailed",
    "ends_behind",
]


@dataclass(frozen=True)
class Outcome:
    """Of a call. One that is stuck has two: the time-out, and `was_stuck` once it has returned after all."""

    value: Any = None
    error: BaseException | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    is_stuck: bool = False
    was_stuck: bool = False


@dataclass(frozen=True, eq=False)
class Call:
    """A method with its arguments. `done` is called with each outcome, in any thread, and returns at once."""

    method: str
    args: tuple[Any, ...]
    done: Callable[[Call, Outcome], None]

    def __str__(self) -> str:
        return f"{self.method}({', '.join(map(repr, self.args))})"

    def of(self, instance: Callable[[], Any]) -> Outcome:
        begun, cpu = monotonic(), thread_time()
        value, failure = None, None
        try:
            value = getattr(instance(), self.method)(*self.args)
        except BaseException as error:  # SystemExit too: an author's code does not end the thread
            failure = error
        return Outcome(value, failure, monotonic() - begun, thread_time() - cpu)


class CallThread:
    """One thread, its instance of the source, and the call that it makes. The lock is that of all of them."""

    def __init__(
        self,
        make: Callable[[], Any],
        close: Callable[[Any], None],
        waiting: SimpleQueue[Call | None],
        lock: threading.Lock,
        over: Callable[[], None],
        name: str,
    ) -> None:
        self._make = make
        self._close = close
        self._waiting = waiting
        self._lock = lock
        self._over = over
        self._source: Any = None
        self.is_given_up = False
        self.call: Call | None = None
        self.since = 0.0
        self.thread = threading.Thread(target=self._work, name=f"{name}-call", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """The instance, once, whoever comes first."""
        with self._lock:
            source, self._source = self._source, None
        if source is not None:
            self._close(source)

    def _work(self) -> None:
        with suppress(FeedStopped):
            while not self.is_given_up and (call := self._waiting.get()) is not None:
                self._do(call)
        self.close()

    def _do(self, call: Call) -> None:
        with self._lock:
            self.call, self.since = call, monotonic()
        outcome = call.of(self._instance)
        if outcome.error is not None:
            self.close()  # it may be in any state
        with self._lock:
            self.call = None
            if self.is_given_up:
                outcome = Outcome(was_stuck=True)
            else:
                self._over()
        call.done(call, outcome)

    def _instance(self) -> Any:
        source = self._source  # which may be closed at any time, from elsewhere
        if source is None:
            source = self._make()
            with self._lock:
                self._source = source
        return source


_FEW, _MANY = 4, 32
_PATIENCE_SECONDS, _INTERRUPT_SECONDS = 1.0, 0.2  # patience: for calls to end before they are interrupted


class TooManyStuckError(RuntimeError):
    """So many calls do not return that no more can be made."""


class CallPool:
    """The threads, and the calls that wait for one.

    `make` gives a new instance of the source, and `close` closes one; that must not raise.
    """

    def __init__(
        self, make: Callable[[], Any], close: Callable[[Any], None], name: str, timeout: float
    ) -> None:
        self._make = make
        self._close = close
        self._name = name
        self._timeout = timeout
        self._waiting: SimpleQueue[Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._open = 0
        self._workers: list[CallThread] = []
        self._stuck: list[CallThread] = []
        self._is_closed = False

    def put(self, call: Call) -> None:
        """It is made as soon as a thread is free."""
        with self._lock:
            self._open += 1
            if self._open > len(self._workers) < _FEW:
                self._hire()
        self._waiting.put(call)

    def grow(self) -> None:
        """To be called when nothing was done for a while: one thread more, if calls wait for one."""
        with self._lock:
            if not self._waiting.empty() and len(self._workers) < _MANY:
                self._hire()

    def give_up(self) -> None:
        """To be called now and then: calls that have taken too long fail, and lose their threads."""
        late = monotonic() - self._timeout
        with self._lock:
            found = [(worker, worker.call) for worker in self._workers if worker.call and worker.since < late]
            for worker, call in found:
                worker.is_given_up = True
                self._workers.remove(worker)
                self._stuck.append(worker)
                self._open -= 1
                error = TimeoutError(f"it has not returned for {self._timeout:g} s")
                call.done(call, Outcome(error=error, is_stuck=True))  # here, as the call may return any time
            self._stuck = [worker for worker in self._stuck if worker.thread.is_alive()]
            stuck = len(self._stuck)
        for worker, _ in found:
            self._close_elsewhere(worker)
        if stuck >= _MANY:
            raise TooManyStuckError(f"{stuck} calls do not return, and close() does not unblock them")

    def close(self) -> None:
        """Let the threads go, and make no call that waits. Instances in use are closed, to unblock them."""
        with self._lock:
            self._is_closed = True
            workers = [*self._workers, *self._stuck]
        for worker in workers:
            worker.is_given_up = True
            self._waiting.put(None)
            if worker.call is not None:
                self._close_elsewhere(worker)

    def join(self, deadline: float) -> bool:
        """After `close`: whether all threads have ended by then. Those that do not are interrupted."""
        patience = min(deadline, monotonic() + _PATIENCE_SECONDS)
        with self._lock:
            left = [worker.thread for worker in (*self._workers, *self._stuck)]
        for thread in left:
            thread.join(max(0.0, patience - monotonic()))
        while (left := [thread for thread in left if thread.is_alive()]) and monotonic() < deadline:
            for thread in left:
                interrupt(thread)
            left[0].join(_INTERRUPT_SECONDS)
        return not left

    @property
    def is_alive(self) -> bool:
        with self._lock:
            return any(worker.thread.is_alive() for worker in (*self._workers, *self._stuck))

    def _hire(self) -> None:
        if not self._is_closed:
            worker = CallThread(self._make, self._close, self._waiting, self._lock, self._over, self._name)
            self._workers.append(worker)

    def _over(self) -> None:
        self._open -= 1

    def _close_elsewhere(self, worker: CallThread) -> None:
        with suppress(RuntimeError):  # this process ends, and takes no new threads
            threading.Thread(target=worker.close, name=f"{self._name}-close", daemon=True).start()


@dataclass(frozen=True)
class PartitionStatus:
    """A partition as it was when `feeds()` was called."""

    name: PartitionKey
    offset: int | None
    """Where the query stands: the next offset that it reads."""
    latest: int | None
    """One past the last offset that there is."""
    lag: int | None
    errors: int
    """Calls about it that have failed so far."""
    last_error: str | None


@dataclass
class FailureState:
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

    name: PartitionKey
    start_from: StartFrom | None
    start: int | None = None
    latest: int | None = None
    is_listed: bool = True
    was_asked: bool = False
    is_settled: bool = False
    """Its start stays as it is."""
    trouble: FailureState = field(default_factory=FailureState)

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


_REMEDY = "Set the option onError to restart (with back-off) or to end to go on after such an error."


class WatchFailed(Exception):  # noqa: N818
    """The watch is over; the message is all that the query is told."""


class Policy:
    """`fail` ends the watch; `restart` calls again, after a pause that grows; `end` never calls again."""

    def __init__(
        self, order: FeedRequest, log: logging.LoggerAdapter[logging.Logger], back_off: Callable[[int], float]
    ) -> None:
        self._order = order
        self._log = log
        self._back_off = back_off

    def failed(self, trouble: FailureState, call: Call, error: BaseException) -> None:
        """WatchFailed where that is the end."""
        secrets = self._order.secrets()
        trouble.failed(first_line(error, secrets))
        if self._order.on_error == "fail" or trouble.failures > self._order.most_failures:
            raise WatchFailed(f"{call}: {explain(error, secrets, _REMEDY)}")
        if self._order.on_error == "end":
            trouble.is_ended = True
            self._log.warning("%s failed, and is not called again, as onError says: %s", call, trouble.last)
            return
        pause = self._back_off(trouble.failures)
        trouble.due = monotonic() + pause
        self._log.warning("%s failed: %s. It is called again in %.1f s", call, trouble.last, pause)


Reply = Callable[[dict[str, Any]], None]


class Positions:
    """Used by any thread. Answers are given in the thread that publishes, or at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version = 0
        self._known: dict[str, Any] = {}
        self._waiting: list[tuple[int, Reply]] = []
        self._is_closed = False

    @property
    def known(self) -> dict[str, Any]:
        with self._lock:
            return self._known

    def publish(self, known: dict[str, Any]) -> bool:
        """Whether it is something new, and so a new version."""
        with self._lock:
            if self._is_closed or known == self._known:
                return False
            self._version += 1
            self._known = known
        self._answer()
        return True

    def when_newer(self, version: int, answer: Reply) -> None:
        """Called once: with the first version that is newer, or when there will be no more."""
        with self._lock:
            self._waiting.append((version, answer))
        self._answer()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._answer()

    def _answer(self) -> None:
        with self._lock:
            due = [one for one in self._waiting if self._is_closed or one[0] < self._version]
            self._waiting = [one for one in self._waiting if one not in due]
            body = {"stopped": True} if self._is_closed else self._known
            body = {"version": self._version, **body}
        for _, answer in due:
            answer(body)


_WAIT_SECONDS = 0.25

Wanted = dict[PartitionKey, tuple[int, int]]
"""For each partition where to begin, and how many rows are wanted."""


def ends_behind(calls: CallPool, wanted: Wanted, is_over: Callable[[], bool]) -> dict[PartitionKey, int]:
    """Asks for all at once, and waits for them. WatchFailed, with its cause, for the first that fails."""
    answers: SimpleQueue[tuple[Call, Outcome]] = SimpleQueue()
    for partition, (start, rows) in wanted.items():
        calls.put(Call("after", (partition, start, rows), lambda *done: answers.put(done)))
    ends: dict[PartitionKey, int] = {}
    while len(ends) < len(wanted):
        try:
            call, outcome = answers.get(timeout=_WAIT_SECONDS)
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
        end = validate_offset(outcome.value, str(call))
        if end <= call.args[1]:
            raise ValueError(f"{call} gave {end}; it must be behind its start")
    except ValueError as wrong:
        raise WatchFailed(str(call)) from wrong.with_traceback(None)
    return end


_EARLIEST = StartFrom()


class Poller:
    """Asks `partitions()`, where new partitions start, and the `latest` of each, as often as it is told to.

    `put` makes a call somewhere else; `take` gets its outcome. A call that is under way is not made again.
    """

    def __init__(
        self, order: WatchRequest, put: Callable[[str, tuple[Any, ...]], Call], policy: Policy
    ) -> None:
        self._order = order
        self._put = put
        self._policy = policy
        self._asked: dict[Call, Partition | None] = {}
        self._stuck: set[Call] = set()
        self._listing = FailureState()
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
                self._list(validate_partitions(value))
                return None
            offset = validate_offset(value, str(call))
        except ValueError as wrong:
            return wrong.with_traceback(None)  # the author's code is not to be seen there
        if call.method == "latest":
            self.has_changed |= partition.reached(offset)
        else:
            partition.start = offset
            self._ask_about(partition)
        return None

    def _list(self, names: list[PartitionKey]) -> None:
        kind = partition_key_type(names)
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

    def _failed(self, trouble: FailureState, call: Call, error: BaseException) -> None:
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


_STOP_SECONDS = 3.0
_STEP_SECONDS = 0.25
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
_COST_TO_PAUSE = 10  # so asking costs less than a tenth of a processor

Done = tuple[Call, Outcome]


class PartitionWatch:
    """Asks a source, round by round, how far its partitions go, until it fails or is stopped.

    A round does not wait for slow calls: what is there after `patience` is published, and the others are left
    under way. A call that takes longer than `timeout` has failed.
    """

    def __init__(
        self,
        order: WatchRequest,
        *,
        timeout: float = 30.0,
        patience: float = 0.05,
        back_off: Callable[[int], float] = back_off,
    ) -> None:
        self.order = order.order
        self.positions = Positions()
        self._failure: str | None = None
        self._patience = patience
        self._state = "starting"
        self._stopping = threading.Event()
        self._log = log_of(self.order)
        self._done: SimpleQueue[Done | None] = SimpleQueue()
        name = f"headwater-watch-{self.order.name}-{self.order.feed}"
        self._calls = CallPool(self.order.make, self._close, name, timeout)
        self._rounds = Poller(order, self._put, Policy(self.order, self._log, back_off))
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    @property
    def state(self) -> str:
        """starting, running, restarting, failed, stopped or abandoned."""
        return "restarting" if self._state == "running" and self._rounds.is_failing else self._state

    @property
    def errors(self) -> int:
        """Calls that have failed so far."""
        return self._rounds.errors

    @property
    def last_error(self) -> str | None:
        return self._failure or self._rounds.last_error

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() or self._calls.is_alive

    @property
    def partitions(self) -> list[Partition]:
        """Those that are there now."""
        return [found for found in list(self._rounds.partitions.values()) if found.is_listed]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> str:
        """End it, and wait for its threads; `stopped`, or `abandoned` where one of them cannot be moved."""
        deadline = monotonic() + _STOP_SECONDS
        self._stopping.set()
        self._done.put(None)
        self.positions.close()
        self._calls.close()
        ended = self._calls.join(deadline)
        if self._thread.ident is not None:
            self._thread.join(max(0.1, deadline - monotonic()))
        self._state = "stopped" if ended and not self.is_alive else "abandoned"
        if self._state == "abandoned":
            self._log.warning("a call does not end and cannot be interrupted: it is abandoned")
        return self._state

    def after(self, wanted: dict[str, tuple[int, int]]) -> dict[str, int]:
        """For each partition, an end behind its start with at most so many rows between. Waits for them."""
        named = {self._rounds.partitions[text].name: asked for text, asked in wanted.items()}
        try:
            ends = ends_behind(self._calls, named, lambda: not self._thread.is_alive())
        except WatchFailed as failure:
            if failure.__cause__ is None:
                raise
            told = explain(failure.__cause__, self.order.secrets(), "")
            raise WatchFailed(f"{failure}: {told}") from None
        return {str(name): end for name, end in ends.items()}

    def _put(self, method: str, args: tuple[Any, ...]) -> Call:
        call = Call(method, args, lambda *done: self._done.put(done))
        self._calls.put(call)
        return call

    def _close(self, source: Any) -> None:
        try:
            source.close()
        except Exception as error:
            self._log.error("close failed: %s", explain(error, self.order.secrets(), ""))

    def _live(self) -> None:
        try:
            self._go_round()
        except WatchFailed as failure:
            self._fail(str(failure))
        except BaseException as error:
            self._fail(explain(error, self.order.secrets(), ""))
        finally:
            self._calls.close()

    def _go_round(self) -> None:
        pause = _SHORTEST_PAUSE
        while not self._stopping.is_set():
            own = thread_time()
            self._ask()
            pause = _SHORTEST_PAUSE if self._publish() else min(2 * pause, _LONGEST_PAUSE)
            self._rest(pause, thread_time() - own)

    def _ask(self) -> None:
        """Make the calls that are due, and give them a little time."""
        end = monotonic() + self._patience
        self._rounds.ask()
        while self._rounds.is_busy and (left := end - monotonic()) > 0:
            self._take(left)

    def _rest(self, pause: float, own: float) -> None:
        """Until the next round; what slow calls come to meanwhile is published at once."""
        begun = monotonic()
        self._give_up()
        while not self._stopping.is_set():
            cost = own + self._rounds.cpu_seconds
            left = begun + max(pause, _COST_TO_PAUSE * cost) - monotonic()
            if left <= 0:
                return
            self._take(left)
            if self._done.empty():
                self._publish()

    def _take(self, seconds: float) -> None:
        """What one call has come to, if it comes in time."""
        try:
            done = self._done.get(timeout=min(seconds, _STEP_SECONDS))
        except Empty:
            self._calls.grow()
            self._give_up()
        else:
            if done is not None:
                self._rounds.take(*done)

    def _give_up(self) -> None:
        try:
            self._calls.give_up()
        except TooManyStuckError as error:
            raise WatchFailed(str(error)) from None

    def _publish(self) -> bool:
        if not self._rounds.has_changed or self._stopping.is_set():
            return False
        self._state = "running"
        return self.positions.publish(self._rounds.known())

    def _fail(self, told: str) -> None:
        if self._stopping.is_set():
            return
        self._failure = told.partition("\n")[0]
        self._state = "failed"
        self._log.error("failed: %s", told)
        self.positions.publish({**self._rounds.known(), "failure": told})
