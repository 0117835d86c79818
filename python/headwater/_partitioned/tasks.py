"""Reading on Spark's executors: ranges of partitions in, rows as Arrow messages out."""

from __future__ import annotations

import json
import logging
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from headwater._author.partitioned import PartitionedSource
from headwater._author.reading import has_array_rows
from headwater._author.secret import masked
from headwater._feed.failure import explain, first_line
from headwater._feed.pending import Pending
from headwater._feed.threads import back_off
from headwater._partitioned.packing import TASK_BYTES, Packing
from headwater._partitioned.ranges import Range, SaidError, parts_of
from headwater._partitioned.shipped import Shipped
from headwater._rows.converter import BadRowError, Converter

__all__ = ["Reader", "opened"]

_log = logging.getLogger("headwater.tasks")
_AGAIN = "Set the option onError to restart to have a range that fails read again."
_LOSS = "Set the option failOnDataLoss to false to go on without them"


def opened(shipped: bytes, name: str, module: str) -> Reader:
    """What was sent to this executor; RuntimeError where it cannot be had here."""
    try:
        return Reader(pickle.loads(shipped))  # noqa: S301
    except Exception as error:
        raise RuntimeError(
            f"source '{name}' cannot be read here: what it is made of, in module '{module}', cannot be "
            f"loaded by {sys.executable}, the Python of Spark's workers ({type(error).__name__}: {error}). "
            "Install it there, or send its file with spark-submit --py-files or sparkContext.addPyFile"
        ) from None


class Reader:
    """Reads the ranges of one task after the other, on one instance of the source."""

    def __init__(self, shipped: Shipped, sleep: Callable[[float], None] = time.sleep) -> None:
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(shipped.schema))
        self._shipped = shipped
        self._sleep = sleep
        self._converter = Converter(schema, shipped.on_bad_row)
        self._has_array_rows = has_array_rows(schema)
        self._source: PartitionedSource | None = None
        self._secrets = shipped.secrets()

    def read(self, tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """`tasks` has one column, each value of it a JSON of ranges. Of each range come its rows, as
        messages, and a report after them."""
        try:
            for batch in tasks:
                for task in batch.column(0).to_pylist():
                    for asked in json.loads(task)["ranges"]:
                        yield from self._read(Range.of(asked))
        finally:
            self._close()

    def _read(self, asked: Range) -> Iterator[pa.RecordBatch]:
        packing = Packing(self._converter)
        try:
            there = self._still_there(asked)
            if there.start > asked.start and self._shipped.fail_on_data_loss:
                raise SaidError(
                    f"offsets {asked.start} to {there.start - 1} of partition {asked.partition!r} are gone, "
                    f"and were not read yet. {_LOSS}"
                )
            if there.start < there.end:
                yield from self._messages(there, packing)
        except SaidError as said:
            raise self._failure(asked, str(said)) from None
        except (Exception, SystemExit) as error:
            remedy = None if isinstance(error, BadRowError) else _AGAIN
            raise self._failure(asked, explain(error, self._secrets, remedy)) from None
        samples = [masked(sample, self._secrets) for sample in packing.samples]
        yield packing.report(asked.number, there.start - asked.start, samples)

    def _still_there(self, asked: Range) -> Range:
        failures = 0
        while True:
            try:
                return asked.still_there(self._instance())
            except (Exception, SystemExit) as error:
                failures += 1
                self._pause_after(error, failures)

    def _messages(self, asked: Range, packing: Packing) -> Iterator[pa.RecordBatch]:
        pending = Pending(
            resumable=False,
            batch_rows=self._shipped.batch_rows,
            batch_bytes=TASK_BYTES,
            array_column=self._has_array_rows,
        )
        for parts in self._parts(asked, pending):
            yield from packing.pack(parts)
            pending.learn(packing.rows, packing.weight)

    def _parts(self, asked: Range, pending: Pending) -> Iterator[list[Any]]:
        """All rows, each once, however often the range has to be read."""
        given = failures = 0
        while True:
            try:
                for parts in parts_of(self._instance(), asked, pending, given):
                    given += sum(map(len, parts))
                    yield parts
                return
            except (Exception, SystemExit) as error:
                failures += 1
                self._pause_after(error, failures)

    def _pause_after(self, error: BaseException, failures: int) -> None:
        """Raises it, unless it is worth another try; that is made with another instance."""
        shipped = self._shipped
        if isinstance(error, SaidError) or shipped.on_error != "restart" or failures > shipped.max_restarts:
            raise error
        self._close()
        pause = back_off(failures)
        said = first_line(error, self._secrets)
        _log.warning("[%s] failed: %s. It is read again in %.1f s", shipped.source._name, said, pause)
        self._sleep(pause)

    def _instance(self) -> PartitionedSource:
        if self._source is None:
            self._source = self._shipped.make()
        return self._source

    def _close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            try:
                source.close()
            except Exception as error:
                _log.error("[%s] close failed: %s", source._name, explain(error, self._secrets, ""))

    def _failure(self, asked: Range, told: str) -> RuntimeError:
        return RuntimeError(masked(f"source '{self._shipped.source._name}', {asked}: {told}", self._secrets))
