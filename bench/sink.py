"""A sink in Python, for `foreachBatch`."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from pyspark.sql import DataFrame

__all__ = ["Sink"]

_TIMEOUT = 60.0


class Sink(ABC):
    """What becomes of a batch is up to `take`.

    A query that is stopped while Python has its batch can end in a StackOverflowError of Spark: call `rest`
    first.
    """

    def __init__(self) -> None:
        self._returned = threading.Event()

    @abstractmethod
    def take(self, rows: DataFrame) -> None: ...

    def __call__(self, rows: DataFrame, _: int) -> None:
        try:
            self.take(rows)
        finally:
            self._returned.set()

    def rest(self) -> None:
        """Waits for the end of a batch."""
        self._returned.clear()
        if not self._returned.wait(_TIMEOUT):
            raise TimeoutError(f"no batch has ended for {_TIMEOUT} s")
