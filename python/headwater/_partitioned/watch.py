"""A watch: a running partitioned source, as far as the driver has to do with it, and its thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import monotonic, thread_time
from typing import Any

from headwater._feed.failure import explain
from headwater._feed.threads import back_off, log_of
from headwater._partitioned.calls import Calls, TooManyStuckError
from headwater._partitioned.ends import ends_behind
from headwater._partitioned.order import WatchOrder
from headwater._partitioned.partition import Partition
from headwater._partitioned.policy import Policy, WatchFailed
from headwater._partitioned.positions import Positions
from headwater._partitioned.rounds import Rounds
from headwater._partitioned.worker import Call, Outcome

__all__ = ["Watch"]

_STOP_SECONDS = 3.0
_STEP_SECONDS = 0.25
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
_COST_TO_PAUSE = 10  # so asking costs less than a tenth of a processor

Done = tuple[Call, Outcome]


class Watch:
    """Asks a source, round by round, how far its partitions go, until it fails or is stopped.

    A round does not wait for slow calls: what is there after `patience` is published, and the others are left
    under way. A call that takes longer than `timeout` has failed.
    """

    def __init__(
        self,
        order: WatchOrder,
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
        self._calls = Calls(self.order.make, self._close, name, timeout)
        self._rounds = Rounds(order, self._put, Policy(self.order, self._log, back_off))
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
