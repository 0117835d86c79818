"""What decodes records to rows: the protocol, and the decoders for text, for bytes and with a function."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from headwater import trust
from headwater.options import Signature
from headwater.rows.columns import invalid_positions
from headwater.rows.splitter import RowSplitter
from headwater.rows.values import InvalidValueError
from headwater.schema import arrow_schema, has_array_rows, struct_type
from headwater.source import BadRow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "BinaryDecoder",
    "CustomDecoder",
    "DecodedPart",
    "RecordDecoder",
    "Records",
    "TextDecoder",
    "assemble",
    "import_function",
    "not_utf8",
    "to_bytes",
]

Records: TypeAlias = Sequence[bytes] | pa.Array
"""Records as Python bytes, or as an Arrow array of binaries or of strings."""

DecodedPart: TypeAlias = pa.RecordBatch | BadRow | list[tuple[Any, ...]]
"""A batch with one row for each of several records, a single bad record, or all rows of a single record."""


class RecordDecoder(Protocol):
    """Decodes records to the columns of `schema`."""

    schema: StructType

    def decode(self, records: Records) -> Iterator[DecodedPart]:
        """The parts are in the order of the records. Each record is decoded independently of the others."""


class TextDecoder:
    """Each record is a string in UTF-8."""

    def __init__(self) -> None:
        self.schema = struct_type("data STRING")
        self._arrow_schema = arrow_schema(self.schema)

    def decode(self, records: Records) -> Iterator[DecodedPart]:
        try:
            strings = _to_array(records).cast(pa.string())
        except pa.ArrowInvalid:
            yield from map(self._decode_one, to_bytes(records))
        else:
            yield pa.RecordBatch.from_arrays([strings], schema=self._arrow_schema)

    def _decode_one(self, record: bytes) -> DecodedPart:
        try:
            return [(record.decode(),)]
        except UnicodeDecodeError as error:
            return BadRow(record, not_utf8(error), (None,))


class BinaryDecoder:
    """Each record is a row as it is."""

    def __init__(self) -> None:
        self.schema = struct_type("data BINARY")
        self._arrow_schema = arrow_schema(self.schema)

    def decode(self, records: Records) -> Iterator[DecodedPart]:
        yield pa.RecordBatch.from_arrays([_to_array(records).cast(pa.binary())], schema=self._arrow_schema)


class CustomDecoder:
    """A function gets each record and returns a row or a list of rows. If it raises, the record is bad."""

    def __init__(self, schema: StructType, function: Callable[[bytes], Any]) -> None:
        self.schema = schema
        self._function = function
        self._splitter = RowSplitter(schema.names, bare=True)
        self._has_array_rows = has_array_rows(schema)
        self._nulls = (None,) * len(schema.names)

    def decode(self, records: Records) -> Iterator[DecodedPart]:
        return map(self._decode_one, to_bytes(records))

    def _decode_one(self, record: bytes) -> DecodedPart:
        try:
            result = self._function(record)
            if isinstance(result, BadRow):
                row = self._nulls if result.row is None else self._splitter.split_row(result.row)
                return BadRow(result.value, result.reason, row)
            if result is None:
                raise InvalidValueError(
                    "the function returned None; it must return a row or a list of rows, which may be empty"
                )
            rows = result if isinstance(result, list) and not self._has_array_rows else [result]
            return [self._splitter.split_row(row) for row in rows]
        except MemoryError:
            raise
        except InvalidValueError as error:
            return BadRow(record, error.reason, self._nulls)
        except Exception as error:
            return BadRow(record, f"{type(error).__name__}: {error}", self._nulls)


def import_function(name: str, properties: dict[str, str]) -> Callable[[bytes], Any]:
    """The function `package.module:function`, which gets the properties as keyword arguments.

    ValueError if there is none, or if it has no such parameters. Their annotations are types of options.
    """
    module, _, path = name.partition(":")
    try:
        trust.current.check_module(module)
        function: Any = importlib.import_module(module)
        for attribute in path.split("."):
            function = getattr(function, attribute)
        trust.current.check_module(
            getattr(function, "__module__", None) or "builtins"
        )  # it may be imported there
    except Exception as error:
        raise ValueError(f"decode={name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ValueError(f"decode={name!r} has type {type(function).__name__}; it must be a function")
    if properties:
        record = next(iter(inspect.signature(function).parameters), "record")
        signature = Signature.of(function, owner=f"decode={name!r}", skip=(record,), reserved={})
        return partial(function, **signature.parse(properties))
    return function  # type: ignore[no-any-return]


def assemble(
    rows: Sequence[list[Any] | None],
    build: Callable[[Sequence[Any]], pa.RecordBatch],
    decode_one: Callable[[int], DecodedPart],
) -> Iterator[DecodedPart]:
    """Batches of the rows that `build` accepts, and `decode_one` for each position without such a row."""
    positions = [i for i, row in enumerate(rows) if row is not None]
    invalid = {positions[i] for i in invalid_positions(build, [rows[i] for i in positions])}
    start = 0
    for i, row in enumerate([*rows, None]):
        if row is None or i in invalid:
            if i > start:
                yield build(rows[start:i])
            if i < len(rows):
                yield decode_one(i)
            start = i + 1


def to_bytes(records: Records) -> Sequence[bytes]:
    if not isinstance(records, pa.Array):
        return records
    values: list[bytes] = records.cast(pa.binary()).to_pylist()
    return values


def _to_array(records: Records) -> pa.Array:
    return records if isinstance(records, pa.Array) else pa.array(records, pa.binary())


def not_utf8(error: UnicodeDecodeError) -> str:
    """Why a record that is not in UTF-8 is bad."""
    return f"not valid UTF-8: {error.reason} at byte {error.start}"
