"""What becomes of a call that has failed, as the option `onError` says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from headwater._feed.failure import explain, first_line
from headwater._feed.order import Order
from headwater._partitioned.partition import Trouble
from headwater._partitioned.worker import Call

__all__ = ["Policy", "WatchFailed"]

_REMEDY = "Set the option onError to restart (with back-off) or to end to go on after such an error."


class WatchFailed(Exception):  # noqa: N818
    """The watch is over; the message is all that the query is told."""


class Policy:
    """`fail` ends the watch; `restart` calls again, after a pause that grows; `end` never calls again."""

    def __init__(
        self, order: Order, log: logging.LoggerAdapter[logging.Logger], back_off: Callable[[int], float]
    ) -> None:
        self._order = order
        self._log = log
        self._back_off = back_off

    def failed(self, trouble: Trouble, call: Call, error: BaseException) -> None:
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
