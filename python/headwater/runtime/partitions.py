"""How the driver watches a partitioned source: which partitions there are, and how far each one goes.

The driver runs a `PartitionWatch` per query. Its thread works in rounds: the `Poller` makes the calls that
are due (`partitions`, `earliest` or `at`, `latest`) on a `CallPool`, takes their outcomes, and keeps the
state of each `Partition`. When something has changed, the watch publishes the new `Positions`, and the JVM,
which always has a request waiting there, gets them. The JVM plans batches with them; executors read the rows:
see `headwater.runtime.tasks`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic, thread_time, time
from typing import Any

from headwater.backoff import RESTARTS
from headwater.errors import explain, first_line, retry_may_help
from headwater.reading import (
    PartitionKey,
    parse_partition_key,
    partition_key_type,
    validate_offset,
    validate_partitions,
)
from headwater.runtime.calls import Call, CallPool, Outcome, TooManyStuckError
from headwater.runtime.protocol import FeedRequest, StartFrom, WatchRequest
from headwater.runtime.published import Published
from headwater.runtime.threads import AuthorThread, BlockedCall, Deadline, FeedStopped, join_or_interrupt

__all__ = ["HOOKS", "Partition", "PartitionWatch", "WatchFailed"]


class WatchFailed(Exception):  # noqa: N818
    """The watch is over. The message is what the query fails with."""


# The state of each partition


@dataclass
class FailureState:
    """The failures of calls about one partition, or of `partitions()`, and when the next call may be made."""

    failures: int = 0
    """In a row."""
    errors: int = 0
    """So far."""
    last_error: str | None = None
    due: float = 0.0
    is_ended: bool = False
    """No more calls are made."""
    is_busy: bool = False
    """A call is under way, perhaps one that was given up."""

    @property
    def is_failing(self) -> bool:
        return self.failures > 0

    def may_call(self, now: float) -> bool:
        return not self.is_busy and not self.is_ended and now >= self.due

    def count(self, message: str) -> None:
        self.failures += 1
        self.errors += 1
        self.last_error = message


@dataclass
class Partition:
    """A partition that was listed at some time."""

    name: PartitionKey
    start_from: StartFrom | None
    """How its start is determined; None where the JVM has it already."""
    start: int | None = None
    latest: int | None = None
    is_listed: bool = True
    was_called: bool = False
    is_settled: bool = False
    """Its start does not change any more."""
    failure: FailureState = field(default_factory=FailureState)

    @property
    def text(self) -> str:
        """Its name in JSON."""
        return str(self.name)

    @property
    def has_start(self) -> bool:
        """Whether its start is known, here or in the JVM."""
        return self.start_from is None or self.start is not None

    @property
    def has_settled_or_failed(self) -> bool:
        is_ready = self.has_start and self.latest is not None
        return is_ready or self.failure.is_failing or self.failure.is_ended

    def update_latest(self, latest: int) -> bool:
        """Whether it has changed."""
        has_changed = latest != self.latest
        self.latest = latest
        if not self.is_settled and self.start_from is not None:
            # A time in the future leads to the end, where the next row will be.
            is_later = self.start is not None and self.start > latest and self.start_from.kind == "at"
            self.start = latest if self.start is None or is_later else self.start
        self.is_settled = True
        return has_changed


class FailurePolicy:
    """What happens after a failed call. `fail` ends the watch; `restart` makes the call again, after a delay
    that grows; `end` never makes it again."""

    def __init__(
        self,
        request: FeedRequest,
        log: logging.LoggerAdapter[logging.Logger],
        restart_delay: Callable[[int], float],
    ) -> None:
        self._request = request
        self._log = log
        self._restart_delay = restart_delay

    def apply(self, failure: FailureState, call: Call, error: BaseException) -> None:
        """WatchFailed where that ends the watch."""
        secrets = self._request.secrets()
        failure.count(first_line(error, secrets))
        if self._request.on_error == "end":
            failure.is_ended = True
            self._log.warning(
                "%s failed, and is not called again because onError is end: %s", call, failure.last_error
            )
        elif self._request.allows_restart(failure.failures):
            delay = self._restart_delay(failure.failures)
            failure.due = monotonic() + delay
            self._log.warning("%s failed: %s. It is called again in %.1f s", call, failure.last_error, delay)
        else:
            remedy = _REMEDY if retry_may_help(error) else ""
            raise WatchFailed(f"{call}: {explain(error, secrets, remedy)}")


_REMEDY = "Set the option onError to restart (with back-off) or to end to continue after such an error."
_EARLIEST = StartFrom()


class Poller:
    """Decides which calls to make, and keeps the state of all partitions.

    `put` makes a call in another thread; `take` gets its outcome. A call that is under way is not made again.
    Used by the thread of the watch; `is_failing` and `partitions` are read by other threads too.
    """

    def __init__(
        self,
        request: WatchRequest,
        put: Callable[[str, tuple[Any, ...]], Call],
        policy: FailurePolicy,
        on_list_change: Callable[[list[PartitionKey], list[PartitionKey]], None],
    ) -> None:
        self._request = request
        self._put = put
        self._policy = policy
        self._on_list_change = on_list_change
        self._calls: dict[Call, Partition | None] = {}
        self._stuck: set[Call] = set()
        self._listing = FailureState()
        self._listings = 0
        self._unconfirmed: list[tuple[int, Partition, Call, BaseException]] = []
        self._kind: str | None = None
        self._is_listed = False
        self.has_changed = False
        self.cpu_seconds = 0.0
        """Spent in calls since `call_due`."""
        self.errors = 0
        self.last_error: str | None = None
        self.last_error_at: float | None = None
        self.partitions: dict[str, Partition] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way that may still return in time."""
        return len(self._calls) > len(self._stuck)

    @property
    def is_failing(self) -> bool:
        states = [self._listing, *(partition.failure for partition in list(self.partitions.values()))]
        return any(state.is_failing and not state.is_ended for state in states)

    def call_due(self) -> None:
        """Make all calls that are due."""
        self.cpu_seconds = 0.0
        now = monotonic()
        if self._listing.may_call(now):
            self._listings += 1
            self._call(None, "partitions", ())
        for partition in self.partitions.values():
            if partition.is_listed and partition.failure.may_call(now):
                self._call_about(partition)

    def take(self, call: Call, outcome: Outcome) -> None:
        partition = self._calls[call]
        failure = self._listing if partition is None else partition.failure
        if outcome.is_stuck:
            self._stuck.add(call)
        else:
            del self._calls[call]
            self._stuck.discard(call)
            failure.is_busy = False
        if outcome.was_stuck or (partition is not None and not partition.is_listed):
            return  # it has failed already, or its partition is gone
        self.cpu_seconds += outcome.cpu_seconds
        error = self._apply(call, partition, outcome.value) if outcome.error is None else outcome.error
        # A slow call is made half of the time at most.
        failure.due = max(failure.due, monotonic() + outcome.seconds)
        if error is None:
            self.has_changed |= failure.is_failing
            failure.failures = 0
        elif partition is None or outcome.is_stuck or self._listing.is_ended:
            self._fail(failure, call, error)
        else:
            failure.is_busy = True
            self._unconfirmed.append((self._listings, partition, call, error))

    def key_of(self, text: str) -> PartitionKey:
        """The name of a partition, from JSON."""
        return parse_partition_key(text, self._kind or "text")

    def positions(self) -> dict[str, Any]:
        """What the JVM gets in the reply to `positions`, beside the status of the watch.

        `partitions`: the kind of the names. `latest` and `starts`: offsets by partition. `gone`: partitions
        that are no longer listed. `complete`: each partition has been asked. `failing`: failures by
        partition, and those of `partitions()` under the empty name.
        """
        self.has_changed = False
        everything = self.partitions
        listed = {text: partition for text, partition in everything.items() if partition.is_listed}
        gone = (self._request.known | everything.keys()) - listed.keys() if self._is_listed else set()
        failures = {"": self._listing, **{text: partition.failure for text, partition in listed.items()}}
        return {
            "partitions": self._kind or "text",
            "latest": {text: p.latest for text, p in listed.items() if p.has_start and p.latest is not None},
            "starts": {
                text: p.start for text, p in everything.items() if p.is_settled and p.start is not None
            },
            "gone": sorted(gone),
            "complete": (self._is_listed or self._listing.is_ended)
            and all(partition.has_settled_or_failed for partition in listed.values()),
            "failing": {
                text: {"errors": failure.failures, "last": failure.last_error}
                for text, failure in failures.items()
                if failure.is_failing
            },
        }

    def _call_about(self, partition: Partition) -> None:
        """Ask first where it begins, then how far it goes."""
        partition.was_called = True
        start_from = None if partition.has_start else partition.start_from
        method, args = (start_from and start_from.call(partition.name)) or ("latest", (partition.name,))
        self._call(partition, method, args)

    def _call(self, partition: Partition | None, method: str, args: tuple[Any, ...]) -> None:
        failure = self._listing if partition is None else partition.failure
        failure.is_busy = True
        self._calls[self._put(method, args)] = partition

    def _apply(self, call: Call, partition: Partition | None, value: Any) -> ValueError | None:
        """Use what a call returned. Returns an error where that is not valid."""
        try:
            if partition is None:
                self._list(validate_partitions(value))
                return None
            offset = validate_offset(value, str(call))
        except ValueError as error:
            return error.with_traceback(None)  # it would not show the author's code
        if call.method == "latest":
            self.has_changed |= partition.update_latest(offset)
        else:
            partition.start = offset
            self._call_about(partition)
        return None

    def _list(self, names: list[PartitionKey]) -> None:
        kind = partition_key_type(names)
        if self._kind and kind and kind != self._kind:
            raise ValueError(
                f"partitions() returned {_KINDS[kind]}, and {_KINDS[self._kind]} before: names must stay of "
                "one kind"
            )
        self._kind = kind or self._kind
        texts = {str(name): name for name in names}
        before = {text: p.name for text, p in self.partitions.items() if p.is_listed}
        is_first = not self._is_listed and not self._request.known
        if is_first:
            self._check_start_offsets(texts.keys())
        for text, name in texts.items():
            if text not in self.partitions:
                start_from = self._request.start_from if is_first else _EARLIEST
                has_start = text in self._request.known
                self.partitions[text] = Partition(
                    name, None if has_start else start_from, start_from.known_offset(text)
                )
        self.has_changed |= not self._is_listed
        self._is_listed = True
        for text, partition in self.partitions.items():
            self.has_changed |= partition.is_listed != (text in texts) or not partition.was_called
            partition.is_listed = text in texts
            if not partition.is_listed:
                partition.latest = None
            elif not partition.was_called:
                self._call_about(partition)
        added = [name for text, name in texts.items() if text not in before]
        removed = [name for text, name in before.items() if text not in texts]
        if added or removed:
            self._on_list_change(added, removed)
        self._confirm_failures()

    def _confirm_failures(self) -> None:
        """A call may fail because its partition is gone. Only the next list of partitions tells."""
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        for listing, partition, call, error in unconfirmed:
            if partition.is_listed and listing >= self._listings:  # this list may be older than the error
                self._unconfirmed.append((listing, partition, call, error))
                continue
            partition.failure.is_busy = False
            if partition.is_listed:
                self._fail(partition.failure, call, error)

    def _fail(self, failure: FailureState, call: Call, error: BaseException) -> None:
        self.has_changed = True
        self.errors += 1
        self.last_error_at = time()
        try:
            self._policy.apply(failure, call, error)
        finally:
            self.last_error = failure.last_error

    def _check_start_offsets(self, partitions: Collection[str]) -> None:
        unknown = sorted(set(self._request.start_from.offsets or ()) - set(partitions))
        if unknown:
            raise WatchFailed(
                f"the option startFrom names partition {', '.join(map(repr, unknown))}, which does not "
                f"exist; the partitions are: {', '.join(map(repr, sorted(partitions))) or 'none'}. Set it to "
                "offsets of those."
            )


_KINDS = {"int": "integers", "text": "strings"}


# Hooks

HOOKS = ("committed", "partitions_changed")
"""Methods of a source that are called when something has happened. They return nothing."""


class HookCalls:
    """Calls hooks one after the other, in a thread and on an instance of their own.

    Spark and the polling do not wait for them. An error is logged. A commit stands for all before it, so if
    several are waiting, only the newest is passed on. All methods may be called from any thread, and only
    `join` blocks.
    """

    def __init__(
        self, make: Callable[[], Any], on_error: Callable[[str, Exception], None], name: str
    ) -> None:
        self._make = make
        self._on_error = on_error
        self._changed = threading.Condition()
        self._waiting: list[tuple[str, tuple[Any, ...]]] = []
        self._is_closed = False
        self._thread = AuthorThread(self._run, f"{name}-hooks")

    def add(self, method: str, *args: Any) -> None:
        with self._changed:
            if method == "committed":
                self._waiting = [call for call in self._waiting if call[0] != method]
            self._waiting.append((method, args))
            if self._thread.ident is None and not self._is_closed:
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """End the thread, after the calls that are waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def join(self, deadline: Deadline) -> None:
        """After `close`: wait for the thread, or interrupt it."""
        join_or_interrupt([self._thread], deadline)

    @property
    def alive(self) -> list[AuthorThread]:
        return [self._thread] if self._thread.is_alive() else []

    def _run(self) -> None:
        source = None
        with suppress(FeedStopped):
            while (call := self._next()) is not None:
                method, args = call
                try:
                    source = self._make() if source is None else source
                    getattr(source, method)(*args)
                except Exception as error:
                    self._on_error(method, error)
        self._thread.forbid_interrupt()
        if source is not None:
            try:
                source.close()
            except Exception as error:
                self._on_error("close", error)

    def _next(self) -> tuple[str, tuple[Any, ...]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._waiting)
            return self._waiting.pop(0) if self._waiting else None


# The watch


_STEP_SECONDS = 0.25
_MIN_PAUSE, _MAX_PAUSE = 0.01, 0.25
_PAUSE_PER_CPU_SECOND = 10  # so polling takes less than a tenth of a processor


class PartitionWatch:
    """Polls a partitioned source, round by round, until it fails or is stopped.

    A round does not wait for slow calls: what has returned after `patience` is published, and the other calls
    stay under way. A call that takes longer than `timeout` fails; the default is the request's. Both are in
    seconds.

    `start` returns at once. `stop` and `after` block, the latter as long as its calls take. All methods may
    be called from any thread.
    """

    def __init__(
        self,
        request: WatchRequest,
        *,
        timeout: float | None = None,
        patience: float = 0.05,
        restart_delay: Callable[[int], float] = RESTARTS.delay,
    ) -> None:
        self.request = request
        self.positions = Published()
        self._failure: str | None = None
        self._patience = patience
        self._state = "starting"
        self._stopping = threading.Event()
        self._log = request.logger()
        self._outcomes: SimpleQueue[tuple[Call, Outcome] | None] = SimpleQueue()
        name = f"headwater-watch-{request.name}-{request.feed}"
        timeout = request.call_timeout if timeout is None else timeout
        self._calls = CallPool(request.make_source, self._close, name, timeout)
        policy = FailurePolicy(request, self._log, restart_delay)
        self._poller = Poller(request, self._put, policy, self._partitions_changed)
        self._hooks: Collection[str] = ()
        self._hook_calls = HookCalls(request.make_source, self._log_hook_error, name)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def state(self) -> str:
        """starting, running, restarting, failed, stopped or abandoned."""
        return "restarting" if self._state == "running" and self._poller.is_failing else self._state

    @property
    def errors(self) -> int:
        """Calls that have failed so far."""
        return self._poller.errors

    @property
    def last_error(self) -> str | None:
        return self._failure or self._poller.last_error

    @property
    def last_error_at(self) -> float | None:
        """Seconds since 1970."""
        return self._poller.last_error_at

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() or bool(self._calls.alive or self._hook_calls.alive)

    @property
    def partitions(self) -> list[Partition]:
        """Those that are listed now."""
        return [partition for partition in list(self._poller.partitions.values()) if partition.is_listed]

    def start(self, hooks: Collection[str] = ()) -> None:
        """`hooks` are those of HOOKS that the source defines."""
        self._hooks = hooks
        self._thread.start()

    def committed(self, offsets: dict[str, int]) -> None:
        """Spark has committed a batch that ends there: call the source's `committed`."""
        if "committed" in self._hooks:
            keys = {self._poller.key_of(text): offset for text, offset in offsets.items()}
            self._hook_calls.add("committed", keys)

    def stop(self, deadline: Deadline) -> str:
        """Stop, and wait for the threads. Returns `stopped`, or `abandoned` if one of them still runs."""
        self._stopping.set()
        self._outcomes.put(None)
        self.positions.close()
        self._calls.close()
        self._hook_calls.close()
        self._calls.join(deadline)
        self._hook_calls.join(deadline)
        if self._thread.ident is not None:
            self._thread.join(deadline.remaining)
        self._state = "abandoned" if self.is_alive else "stopped"
        if self._state == "abandoned":
            threads = (*self._calls.alive, *self._hook_calls.alive)
            calls = [call for thread in threads if (call := BlockedCall.of(thread))]
            places = ", ".join(sorted({f"{call.function}() at {call.place}" for call in calls}))
            self._log.warning("did not stop in time, and is abandoned. Blocked calls: %s", places or "none")
        return self._state

    def after(self, limits: dict[str, tuple[int, int]]) -> dict[str, int]:
        """For each partition with a start and a number of rows: an end with at most that many rows before it.

        Makes all calls at once and waits for them. WatchFailed for the first that fails.
        """
        outcomes: SimpleQueue[tuple[Call, Outcome]] = SimpleQueue()
        for text, (start, rows) in limits.items():
            name = self._poller.partitions[text].name
            self._calls.put(Call("after", (name, start, rows), lambda *outcome: outcomes.put(outcome)))
        ends: dict[str, int] = {}
        while len(ends) < len(limits):
            try:
                call, outcome = outcomes.get(timeout=_STEP_SECONDS)
            except Empty:
                if not self._thread.is_alive():
                    raise WatchFailed("the watch is over") from None
            else:
                ends[str(call.args[0])] = self._end_of(call, outcome)
        return ends

    def _end_of(self, call: Call, outcome: Outcome) -> int:
        error = outcome.error
        if error is None:
            try:
                end = validate_offset(outcome.value, str(call))
                if end > call.args[1]:
                    return end
                error = ValueError(f"{call} returned {end}; it must be greater than its start")
            except ValueError as invalid:
                error = invalid.with_traceback(None)  # it would not show the author's code
        raise WatchFailed(f"{call}: {explain(error, self.request.secrets(), '')}") from None

    def _partitions_changed(self, added: list[PartitionKey], removed: list[PartitionKey]) -> None:
        if "partitions_changed" in self._hooks:
            self._hook_calls.add("partitions_changed", added, removed)

    def _log_hook_error(self, method: str, error: Exception) -> None:
        self._log.error("%s failed: %s", method, explain(error, self.request.secrets(), ""))

    def _put(self, method: str, args: tuple[Any, ...]) -> Call:
        call = Call(method, args, lambda *outcome: self._outcomes.put(outcome))
        self._calls.put(call)
        return call

    def _close(self, source: Any) -> None:
        try:
            source.close()
        except Exception as error:
            self._log.error("close failed: %s", explain(error, self.request.secrets(), ""))

    def _run(self) -> None:
        try:
            self._poll()
        except WatchFailed as failure:
            self._fail(str(failure))
        except BaseException as error:
            self._fail(explain(error, self.request.secrets(), ""))
        finally:
            self._calls.close()

    def _poll(self) -> None:
        """One round after the other. The pause between them grows while nothing changes."""
        pause = _MIN_PAUSE
        while not self._stopping.is_set():
            cpu_before = thread_time()
            self._call_due()
            pause = _MIN_PAUSE if self._publish() else min(2 * pause, _MAX_PAUSE)
            self._rest(pause, thread_time() - cpu_before)

    def _call_due(self) -> None:
        """Make the calls that are due, and wait for their outcomes, but no longer than `patience`."""
        end = Deadline.after(self._patience)
        self._poller.call_due()
        while self._poller.is_busy and (remaining := end.remaining) > 0:
            self._take_outcome(remaining)

    def _rest(self, pause: float, cpu_seconds: float) -> None:
        """Wait for the next round. Outcomes of slow calls are published meanwhile."""
        begun = monotonic()
        self._give_up_calls()
        while not self._stopping.is_set():
            cost = cpu_seconds + self._poller.cpu_seconds
            remaining = begun + max(pause, _PAUSE_PER_CPU_SECOND * cost) - monotonic()
            if remaining <= 0:
                return
            self._take_outcome(remaining)
            if self._outcomes.empty():
                self._publish()

    def _take_outcome(self, seconds: float) -> None:
        """Take the outcome of one call, if one comes in time."""
        try:
            outcome = self._outcomes.get(timeout=min(seconds, _STEP_SECONDS))
        except Empty:
            self._calls.grow()
            self._give_up_calls()
        else:
            if outcome is not None:
                self._poller.take(*outcome)

    def _give_up_calls(self) -> None:
        try:
            self._calls.give_up()
        except TooManyStuckError as error:
            raise WatchFailed(str(error)) from None

    def _publish(self) -> bool:
        if not self._poller.has_changed or self._stopping.is_set():
            return False
        self._state = "running"
        return self.positions.publish({**self._poller.positions(), "status": self._status()})

    def _status(self) -> dict[str, Any]:
        """As `Feed` publishes it. The JVM counts bad rows, which tasks find."""
        error_at = self.last_error_at
        return {
            "state": self.state,
            "restarts": self.errors,
            "lastError": self.last_error,
            "lastErrorAt": None if error_at is None else int(1000 * error_at),
        }

    def _fail(self, message: str) -> None:
        if self._stopping.is_set():
            return
        self._failure = message.partition("\n")[0]
        self._state = "failed"
        self._log.info("failed: %s", self._failure)  # Spark logs all of it when it fails the query
        self.positions.publish({**self._poller.positions(), "failure": message})
