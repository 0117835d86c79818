"""How Spark's tasks read partitions.

On the driver, `task_function` packs a source and its options into the function that Spark's Python workers
run. On an executor, that function reads one range of offsets after the other: `RangeReader` has the source,
`Range` says what to read, and `RangeEncoder` converts the rows. No other part of `headwater.runtime` runs
there.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater import trust
from headwater._version import __version__
from headwater.backoff import RESTARTS
from headwater.definition import instantiate, schema_of_source
from headwater.errors import HeadwaterError, explain, first_line, mask, retry_may_help
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
from headwater.rows.kept import KeepingConverter, converter
from headwater.runtime.batching import MAX_SAMPLES, ItemBuffer
from headwater.runtime.forks import exit_if_forked
from headwater.runtime.protocol import WatchRequest
from headwater.schema import has_array_rows
from headwater.source import At, PartitionedSource
from headwater.trust import Trust

__all__ = [
    "TASK_BYTES",
    "RangeReader",
    "ReaderSpec",
    "WorkerPython",
    "load_reader",
    "reader_message",
    "task_function",
]

_log = logging.getLogger("headwater.tasks")


# From the driver to the executors


_DEFAULT_RESTARTS = 3
"""Of a read in one task. Fewer than for a feed, because Spark runs a failed task again, too."""


@dataclass(frozen=True)
class _PackedSecret:
    """A secret on its way to an executor. Secret itself refuses to be pickled, to prevent accidents."""

    value: str


@dataclass(frozen=True)
class ReaderSpec:
    """What a task needs to read ranges. It is pickled on the driver and loaded on the executors."""

    source: type[PartitionedSource]
    options: dict[str, Any]
    shown: str
    schema: str
    fail_on_data_loss: bool
    on_error: str
    max_restarts: int
    on_bad_row: str
    batch_rows: int
    trust: Trust

    @classmethod
    def of(cls, source: PartitionedSource, request: WatchRequest) -> ReaderSpec:
        def pack(secret: Secret) -> _PackedSecret:
            return _PackedSecret(secret._value)

        return cls(
            source=type(source),
            options={name: _replace(value, Secret, pack) for name, value in source._bound.items()},
            shown=repr(source),
            schema=schema_of_source(source).json(),
            fail_on_data_loss=request.fail_on_data_loss,
            on_error=request.on_error,
            max_restarts=_DEFAULT_RESTARTS if request.max_restarts is None else request.max_restarts,
            on_bad_row=request.on_bad_row,
            batch_rows=request.batch_rows,
            trust=trust.current,
        )

    def make_source(self) -> PartitionedSource:
        """A new instance."""
        source: PartitionedSource = instantiate(self.source, self._unpacked_options(), self.shown)
        return source

    def secrets(self) -> list[str]:
        """The strings that no message may contain."""
        return strings_to_mask(self._unpacked_options())

    def _unpacked_options(self) -> dict[str, Any]:
        def unpack(packed: _PackedSecret) -> Secret:
            return Secret(packed.value)

        return {name: _replace(value, _PackedSecret, unpack) for name, value in self.options.items()}


def _replace(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The value, or each element of a list, changed if it is of that kind."""
    if isinstance(value, list):
        return [_replace(element, kind, change) for element in value]
    return change(value) if isinstance(value, kind) else value


def task_function(
    source: PartitionedSource, request: WatchRequest
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that Spark's Python workers run. HeadwaterError if the source cannot be sent there."""
    spec = _pickle(source, ReaderSpec.of(source, request))
    name, module, version = type(source)._name, type(source).__module__, __version__

    def read(tasks: Iterator[Any]) -> Iterator[Any]:
        """Pickled by value, because it also has to run where headwater is missing or has another version."""
        import sys

        try:
            from headwater import __version__ as worker_version
        except ImportError as error:
            raise RuntimeError(
                f"source '{name}' cannot be read here: {sys.executable}, the Python of Spark's workers, has "
                f"no headwater ({error}). Install headwater=={version} for it, or set PYSPARK_PYTHON to a "
                "Python that has it, before Spark is started"
            ) from None
        if worker_version != version:
            raise RuntimeError(
                f"source '{name}' cannot be read here: {sys.executable}, the Python of Spark's workers, has "
                f"headwater {worker_version}, and the driver has {version}. Install headwater=={version} for "
                "it"
            )
        from headwater.runtime.tasks import load_reader

        return load_reader(spec, name, module).read(tasks)

    return read


@dataclass(frozen=True)
class WorkerPython:
    """The Python that Spark's workers run, as PySpark tells it to the JVM with every function."""

    executable: str
    version: str
    includes: list[str]
    """Files that PySpark adds to the path of the workers, from `addPyFile`."""
    environment: dict[str, str]


def reader_message(function: Callable[..., Any], python: WorkerPython) -> dict[str, Any]:
    """The function for tasks as the JVM gets it: pickled as PySpark pickles functions of `mapInArrow`."""
    from pyspark import cloudpickle
    from pyspark.sql.types import BinaryType, StringType, StructType

    result = StructType().add("report", StringType()).add("rows", BinaryType())
    command: bytes = cloudpickle.dumps((function, result))  # type: ignore[no-untyped-call]
    return {
        "function": base64.b64encode(command).decode("ascii"),
        "executable": python.executable,
        "version": python.version,
        "includes": python.includes,
        "environment": python.environment,
    }


def _pickle(source: PartitionedSource, spec: ReaderSpec) -> bytes:
    from pyspark import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(spec)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise HeadwaterError(
            f"source '{type(source)._name}' cannot be sent to Spark's executors: {type(error).__name__}: "
            f"{error}",
            "create what cannot be pickled, such as connections and locks, in __init__ or where it is used; "
            "not in the class, nor beside it in a notebook or a program",
        ) from error
    return data


def load_reader(spec: bytes, name: str, module: str) -> RangeReader:
    """On an executor. RuntimeError where the source cannot be loaded there."""
    try:
        return RangeReader(pickle.loads(spec))  # noqa: S301
    except Exception as error:
        raise RuntimeError(
            f"source '{name}' cannot be read here: its module '{module}' cannot be loaded by "
            f"{sys.executable}, the Python of Spark's workers ({type(error).__name__}: {error}). "
            "Install it there, or send its file with spark-submit --py-files or sparkContext.addPyFile"
        ) from None


# On an executor


_RESTART = "Set the option onError to restart to read a range again after an error."
_DATA_LOSS = "Set the option failOnDataLoss to false to continue without them"


class FatalReadError(Exception):
    """An error of the source that reading again would not fix. Its message needs no traceback."""


@dataclass(frozen=True)
class Range:
    """Offsets start <= o < end of a partition. `number` is the JVM's number for it."""

    number: int
    partition: PartitionKey
    start: int
    end: int

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> Range:
        partition = parse_partition_key(fields["p"], fields["kind"])
        return cls(fields["i"], partition, fields["start"], fields["end"])

    def __str__(self) -> str:
        return f"read({self.partition!r}, {self.start}, {self.end})"

    def available(self, source: PartitionedSource) -> Range:
        """The part that can still be read; perhaps empty."""
        call = f"earliest({self.partition!r})"
        try:
            earliest = validate_offset(source.earliest(self.partition), call)
        except ValueError as error:
            raise FatalReadError(str(error)) from None
        return Range(self.number, self.partition, min(max(self.start, earliest), self.end), self.end)


class RangeReader:
    """Reads the ranges of one task, in order, on one instance of the source. Used by one thread."""

    def __init__(self, spec: ReaderSpec, sleep: Callable[[float], None] = time.sleep) -> None:
        from pyspark.sql.types import StructType

        trust.use(spec.trust)  # as on the driver; all tasks of a worker belong to one application
        schema = StructType.fromJson(json.loads(spec.schema))
        self._spec = spec
        self._sleep = sleep
        self._converter = converter(schema, spec.on_bad_row)
        self._has_array_rows = has_array_rows(schema)
        self._source: PartitionedSource | None = None
        self._secrets = spec.secrets()

    def read(self, tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows and a report for each range. `tasks` has one column of strings, each a JSON of ranges."""
        try:
            for batch in tasks:
                for task in batch.column(0).to_pylist():
                    for fields in json.loads(task)["ranges"]:
                        yield from self._read_range(Range.parse(fields))
        finally:
            self._close()

    def _read_range(self, requested: Range) -> Iterator[pa.RecordBatch]:
        encoder = RangeEncoder(self._converter)
        try:
            available = self._available(requested)
            if available.start > requested.start and self._spec.fail_on_data_loss:
                raise FatalReadError(
                    f"offsets {requested.start} to {available.start - 1} of partition "
                    f"{requested.partition!r} are gone, and were not read yet. {_DATA_LOSS}"
                )
            if available.start < available.end:
                yield from self._encoded(available, encoder)
        except FatalReadError as error:
            raise self._failure(requested, str(error)) from None
        except (Exception, SystemExit) as error:
            remedy = _RESTART if retry_may_help(error) else None  # a bad row has one of its own
            raise self._failure(requested, explain(error, self._secrets, remedy)) from None
        samples = [mask(sample, self._secrets) for sample in encoder.samples]
        yield encoder.report(requested.number, available.start - requested.start, samples)

    def _available(self, requested: Range) -> Range:
        failures = 0
        while True:
            try:
                return requested.available(self._instance())
            except (Exception, SystemExit) as error:
                failures += 1
                self._prepare_restart(error, failures)

    def _encoded(self, range_: Range, encoder: RangeEncoder) -> Iterator[pa.RecordBatch]:
        buffer = ItemBuffer(
            resumable=False,
            batch_rows=self._spec.batch_rows,
            batch_bytes=TASK_BYTES,
            array_column=self._has_array_rows,
        )
        for parts in self._parts(range_, buffer):
            yield from encoder.encode(parts)
            buffer.learn_row_size(encoder.rows, encoder.size)

    def _parts(self, range_: Range, buffer: ItemBuffer) -> Iterator[list[Any]]:
        """All rows, each once, however often the range has to be read."""
        rows = failures = 0
        while True:
            try:
                for parts in _read_parts(self._instance(), range_, buffer, skip=rows):
                    rows += sum(map(len, parts))
                    yield parts
                return
            except (Exception, SystemExit) as error:
                failures += 1
                self._prepare_restart(error, failures)

    def _prepare_restart(self, error: BaseException, failures: int) -> None:
        """Close the instance and wait; raise the error if there is to be no restart."""
        spec = self._spec
        if isinstance(error, FatalReadError) or spec.on_error != "restart" or failures > spec.max_restarts:
            raise error
        self._close()
        delay = RESTARTS.delay(failures)
        message = first_line(error, self._secrets)
        _log.warning("[%s] failed: %s. It is read again in %.1f s", spec.source._name, message, delay)
        self._sleep(delay)

    def _instance(self) -> PartitionedSource:
        if self._source is None:
            self._source = self._spec.make_source()
        return self._source

    def _close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            try:
                source.close()
            except Exception as error:
                _log.error("[%s] close failed: %s", source._name, explain(error, self._secrets, ""))

    def _failure(self, range_: Range, message: str) -> RuntimeError:
        return RuntimeError(mask(f"source '{self._spec.source._name}', {range_}: {message}", self._secrets))


def _read_parts(
    source: PartitionedSource, range_: Range, buffer: ItemBuffer, skip: int
) -> Iterator[list[Any]]:
    """Lists of rows, and tables, without the first `skip` rows, which were read before a failure.

    If the source raises an error, the rows before it come first. FatalReadError for more rows than there are
    offsets, and for fewer than `skip`.
    """
    rows, limit = 0, range_.end - range_.start
    for parts in _collect(read_range(source, range_.partition, range_.start, range_.end), buffer):
        rows_before = rows
        rows += sum(map(len, parts))
        if rows > limit:
            raise FatalReadError(
                f"{range_} yielded {limit + 1} rows or more; offsets increase, so there can be at most "
                f"{limit}"
            )
        yield _without_first(parts, max(0, skip - rows_before))
    if rows < skip:
        raise FatalReadError(
            f"{range_} yielded {rows} rows, and {skip} before it failed; the same range must yield the same "
            "rows each time"
        )


def _collect(items: Iterator[Any], buffer: ItemBuffer) -> Iterator[list[Any]]:
    """Parts that are large enough for a message."""
    process, failure = os.getpid(), None
    try:
        for item in items:
            if isinstance(item, At):
                raise FatalReadError(AT_IN_PARTITION)
            is_full = buffer.add(item)
            if not is_full and not buffer.one_by_one:
                is_full = buffer.add_many(items)
            exit_if_forked(process)
            if is_full:
                yield _drain(buffer)
    except (Exception, SystemExit) as error:
        failure = error
    finally:
        exit_if_forked(process)
        if hasattr(items, "close"):
            items.close()
    yield _drain(buffer)
    if failure is not None:
        raise failure


def _drain(buffer: ItemBuffer) -> list[Any]:
    drained = buffer.drain()
    if drained.error is not None:
        raise FatalReadError(AT_IN_PARTITION)
    return drained.parts


def _without_first(parts: list[Any], rows: int) -> list[Any]:
    remaining = []
    for part in parts:
        if rows == 0:
            remaining.append(part)
        elif rows < len(part):
            remaining.append(part.slice(rows) if hasattr(part, "slice") else part[rows:])  # Arrow, or others
        rows = max(0, rows - len(part))
    return remaining


# What tasks send to the JVM


TASK_BYTES = 400 << 10
"""The size of a message: a larger batch is cut, but a single row may be larger. Spark takes messages of this
size about twice as fast as those of a megabyte: they are arrays on its heap, and fit into caches."""

_RESULT = pa.schema([("report", pa.string()), ("rows", pa.binary())])
_NO_REPORT, _NO_ROWS = pa.nulls(1, pa.string()), pa.nulls(1, pa.binary())


class RangeEncoder:
    """Converts the rows of one range to Arrow messages. Rows are numbered from 0 in errors about them.

    Each result has one row with two columns, of which one is null: `rows`, an Arrow message, or `report`,
    which is JSON and follows the last rows of a range.
    """

    def __init__(self, converter: Converter | KeepingConverter) -> None:
        self._converter = converter
        self._numbered = 0
        self.rows = 0
        self.size = 0
        self.bad_rows = 0
        self.samples: list[str] = []

    def encode(self, parts: list[Any]) -> Iterator[pa.RecordBatch]:
        """One message after the other. With `onBadRow` `fail`, BadRowError for a bad row."""
        for batch in resize([self._convert(part) for part in parts], TASK_BYTES):
            self.rows += batch.num_rows
            self.size += batch.nbytes
            yield _message(batch)

    def report(self, number: int, lost: int, samples: list[str]) -> pa.RecordBatch:
        report = {"i": number, "rows": self.rows, "bad": self.bad_rows, "samples": samples, "lost": lost}
        columns = [pa.array([json.dumps(report)], pa.string()), _NO_ROWS]
        return pa.RecordBatch.from_arrays(columns, schema=_RESULT)

    def _convert(self, part: Any) -> pa.RecordBatch:
        convert = self._converter.from_rows if isinstance(part, list) else self._converter.from_arrow
        batch, bad = convert(part, self._numbered)
        self._numbered += len(part)
        self.bad_rows += len({error.number for error in bad})
        self.samples += [str(error) for error in bad[: MAX_SAMPLES - len(self.samples)]]
        return batch


def _message(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A result with an Arrow message. Its bytes, perhaps megabytes, become the value without a copy."""
    data = batch.serialize()
    ends = pa.array([0, data.size], pa.int32()).buffers()[1]
    rows = pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])
    return pa.RecordBatch.from_arrays([_NO_REPORT, rows], schema=_RESULT)
