"""Tasks: Spark's executors read ranges of partitions."""

from __future__ import annotations

import json
import logging
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater._version import __version__
from headwater.definition import instantiate, schema_of_source
from headwater.errors import BadRowError, HeadwaterError, explain, first_line, mask
from headwater.options import Secret, strings_to_mask
from headwater.reading import (
    AT_IN_PARTITION,
    PartitionKey,
    parse_partition_key,
    read_range,
    validate_offset,
)
from headwater.rows.batches import resize
from headwater.rows.converter import Converter
from headwater.runtime.batching import ItemBuffer
from headwater.runtime.protocol import WatchRequest
from headwater.runtime.threads import back_off
from headwater.schema import has_array_rows
from headwater.source import At, PartitionedSource

__all__ = [
    "TASK_BYTES",
    "FatalReadError",
    "Range",
    "RangeEncoder",
    "Reader",
    "ReaderSpec",
    "opened",
    "parts_of",
    "reader",
]


class FatalReadError(Exception):
    """An error of the source that reading again would not mend; the message says it all."""


@dataclass(frozen=True)
class Range:
    """Offsets start <= o < end of a partition; `number` is what the JVM calls it."""

    number: int
    partition: PartitionKey
    start: int
    end: int

    @classmethod
    def of(cls, asked: dict[str, Any]) -> Range:
        return cls(asked["i"], parse_partition_key(asked["p"], asked["kind"]), asked["start"], asked["end"])

    def __str__(self) -> str:
        return f"read({self.partition!r}, {self.start}, {self.end})"

    def still_there(self, source: PartitionedSource) -> Range:
        """The part of it that can still be read; perhaps nothing."""
        call = f"earliest({self.partition!r})"
        try:
            earliest = validate_offset(source.earliest(self.partition), call)
        except ValueError as wrong:
            raise FatalReadError(str(wrong)) from None
        return Range(self.number, self.partition, min(max(self.start, earliest), self.end), self.end)


def parts_of(source: PartitionedSource, asked: Range, pending: ItemBuffer, given: int) -> Iterator[list[Any]]:
    """Lists of rows, and tables, but for the first `given` rows.

    What came before an error of the source is given before it is raised. SaidError for more rows than there
    are offsets, and for fewer than were given before.
    """
    seen = 0
    for parts in _gathered(read_range(source, asked.partition, asked.start, asked.end), pending):
        before, most = seen, asked.end - asked.start
        seen += sum(map(len, parts))
        if seen > most:
            raise FatalReadError(
                f"{asked} gave {most + 1} rows and more; offsets increase, so there can be at most {most}"
            )
        yield _without(parts, max(0, given - before))
    if seen < given:
        raise FatalReadError(
            f"{asked} gave {seen} rows, and had given {given} before it failed; the same range must give the "
            "same rows each time"
        )


def _gathered(items: Iterator[Any], pending: ItemBuffer) -> Iterator[list[Any]]:
    failure = None
    try:
        for item in items:
            if isinstance(item, At):
                raise FatalReadError(AT_IN_PARTITION)
            is_full = pending.add(item)
            if not is_full and not pending.one_by_one:
                is_full = pending.add_many(items)
            if is_full:
                yield _taken(pending)
    except (Exception, SystemExit) as error:
        failure = error
    finally:
        getattr(items, "close", _nothing)()
    yield _taken(pending)
    if failure is not None:
        raise failure


def _taken(pending: ItemBuffer) -> list[Any]:
    taken = pending.take()
    if taken.error is not None:
        raise FatalReadError(AT_IN_PARTITION)
    return taken.parts


def _without(parts: list[Any], rows: int) -> list[Any]:
    """Without the first so many rows."""
    kept = []
    for part in parts:
        if rows < len(part):
            kept.append(_behind(part, rows) if rows else part)
        rows = max(0, rows - len(part))
    return kept


def _behind(part: Any, rows: int) -> Any:
    slicing: Callable[..., Any] | None = getattr(part, "slice", None)  # Arrow's
    return part[rows:] if slicing is None else slicing(rows)


def _nothing() -> None:
    pass


TASK_BYTES = 400 << 10
"""What a message weighs at most; a larger batch is cut, and a single row may weigh more. Spark takes messages
of this size about twice as fast as those of a megabyte: they are arrays of its heap, and fit into caches."""

_SAMPLES = 10
_ANSWER = pa.schema([("report", pa.string()), ("rows", pa.binary())])
_NO_REPORT, _NO_ROWS = pa.nulls(1, pa.string()), pa.nulls(1, pa.binary())


class RangeEncoder:
    """Of one range; its rows are numbered from 0."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter
        self._numbered = 0
        self.rows = 0
        self.weight = 0
        self.bad_rows = 0
        self.samples: list[str] = []

    def pack(self, parts: list[Any]) -> Iterator[pa.RecordBatch]:
        """One message after the other. BadRowError for a row that does not fit, where that is not allowed."""
        for batch in resize([self._convert(part) for part in parts], TASK_BYTES):
            self.rows += batch.num_rows
            self.weight += batch.nbytes
            yield _message(batch)

    def report(self, number: int, lost: int, samples: list[str]) -> pa.RecordBatch:
        """What is told after the last row of a range."""
        told = {"i": number, "rows": self.rows, "bad": self.bad_rows, "samples": samples, "lost": lost}
        return pa.RecordBatch.from_arrays(
            [pa.array([json.dumps(told)], pa.string()), _NO_ROWS], schema=_ANSWER
        )

    def _convert(self, part: Any) -> pa.RecordBatch:
        convert = self._converter.from_rows if isinstance(part, list) else self._converter.from_arrow
        batch, bad = convert(part, self._numbered)
        self._numbered += len(part)
        self._count(bad)
        return batch

    def _count(self, bad: list[BadRowError]) -> None:
        if bad:
            self.bad_rows += len({error.number for error in bad})
            self.samples += [str(error) for error in bad[: _SAMPLES - len(self.samples)]]


def _message(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The bytes of the message become the value as they are: they may be megabytes, and are not copied."""
    data = batch.serialize()
    ends = pa.array([0, data.size], pa.int32()).buffers()[1]
    rows = pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])
    return pa.RecordBatch.from_arrays([_NO_REPORT, rows], schema=_ANSWER)


@dataclass(frozen=True)
class _Sealed:
    """A secret on its way: Secret itself refuses to be pickled, as that must not happen unawares."""

    text: str


@dataclass(frozen=True)
class ReaderSpec:
    """What a task needs to read ranges."""

    source: type[PartitionedSource]
    options: dict[str, Any]
    shown: str
    schema: str
    fail_on_data_loss: bool
    on_error: str
    max_restarts: int
    on_bad_row: str
    batch_rows: int

    @classmethod
    def of(cls, source: PartitionedSource, order: WatchRequest) -> ReaderSpec:
        return cls(
            source=type(source),
            options={name: _replaced(value, Secret, _sealed) for name, value in source._bound.items()},
            shown=repr(source),
            schema=schema_of_source(source).json(),
            fail_on_data_loss=order.fail_on_data_loss,
            on_error=order.order.on_error,
            max_restarts=_RESTARTS if order.max_restarts is None else order.max_restarts,
            on_bad_row=order.order.on_bad_row,
            batch_rows=order.order.batch_rows,
        )

    def make(self) -> PartitionedSource:
        """A new instance."""
        made: PartitionedSource = instantiate(self.source, self._bound(), self.shown)
        return made

    def secrets(self) -> list[str]:
        """What must not be told."""
        return strings_to_mask(self._bound())

    def _bound(self) -> dict[str, Any]:
        return {name: _replaced(value, _Sealed, _opened) for name, value in self.options.items()}


_RESTARTS = 3
"""Of a read in one task, where nothing else is set: Spark runs a failed task again, too."""


def reader(source: PartitionedSource, order: WatchRequest) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What Spark runs on its executors, over batches of tasks; HeadwaterError if it cannot be sent there."""
    shipped = _pickled(source, ReaderSpec.of(source, order))
    name, module, version = type(source)._name, type(source).__module__, __version__

    def read(tasks: Iterator[Any]) -> Iterator[Any]:
        """Sent as it is, not by name: it has to say so where headwater is missing, or is another one."""
        import sys

        try:
            from headwater import __version__ as found
        except ImportError as error:
            raise RuntimeError(
                f"source '{name}' cannot be read here: {sys.executable}, the Python of Spark's workers, has "
                f"no headwater ({error}). Install headwater=={version} for it, or set PYSPARK_PYTHON to a "
                "Python that has it, before Spark is started"
            ) from None
        if found != version:
            raise RuntimeError(
                f"source '{name}' cannot be read here: {sys.executable}, the Python of Spark's workers, has "
                f"headwater {found}, and the driver has {version}. Install headwater=={version} for it"
            )
        from headwater.runtime.tasks import opened  # by name: this function is pickled by value

        return opened(shipped, name, module).read(tasks)

    return read


def _pickled(source: PartitionedSource, shipped: ReaderSpec) -> bytes:
    from pyspark import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(shipped)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise HeadwaterError(
            f"source '{type(source)._name}' cannot be sent to Spark's executors: {type(error).__name__}: "
            f"{error}",
            "make what cannot be pickled, such as connections and locks, in __init__ or where it is used; "
            "not in the class, nor beside it in a notebook or a program",
        ) from error
    return data


def _replaced(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_replaced(one, kind, change) for one in value]
    return change(value) if isinstance(value, kind) else value


def _sealed(secret: Secret) -> _Sealed:
    return _Sealed(secret._value)


def _opened(sealed: _Sealed) -> Secret:
    return Secret(sealed.text)


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

    def __init__(self, shipped: ReaderSpec, sleep: Callable[[float], None] = time.sleep) -> None:
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
        packing = RangeEncoder(self._converter)
        try:
            there = self._still_there(asked)
            if there.start > asked.start and self._shipped.fail_on_data_loss:
                raise FatalReadError(
                    f"offsets {asked.start} to {there.start - 1} of partition {asked.partition!r} are gone, "
                    f"and were not read yet. {_LOSS}"
                )
            if there.start < there.end:
                yield from self._messages(there, packing)
        except FatalReadError as said:
            raise self._failure(asked, str(said)) from None
        except (Exception, SystemExit) as error:
            remedy = None if isinstance(error, BadRowError) else _AGAIN
            raise self._failure(asked, explain(error, self._secrets, remedy)) from None
        samples = [mask(sample, self._secrets) for sample in packing.samples]
        yield packing.report(asked.number, there.start - asked.start, samples)

    def _still_there(self, asked: Range) -> Range:
        failures = 0
        while True:
            try:
                return asked.still_there(self._instance())
            except (Exception, SystemExit) as error:
                failures += 1
                self._pause_after(error, failures)

    def _messages(self, asked: Range, packing: RangeEncoder) -> Iterator[pa.RecordBatch]:
        pending = ItemBuffer(
            resumable=False,
            batch_rows=self._shipped.batch_rows,
            batch_bytes=TASK_BYTES,
            array_column=self._has_array_rows,
        )
        for parts in self._parts(asked, pending):
            yield from packing.pack(parts)
            pending.learn(packing.rows, packing.weight)

    def _parts(self, asked: Range, pending: ItemBuffer) -> Iterator[list[Any]]:
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
        if (
            isinstance(error, FatalReadError)
            or shipped.on_error != "restart"
            or failures > shipped.max_restarts
        ):
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
        return RuntimeError(mask(f"source '{self._shipped.source._name}', {asked}: {told}", self._secrets))
