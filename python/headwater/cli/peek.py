"""The first rows of a source without Spark: read and validated as a feed does it, as values that JSON has."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.definition import schema_of_source
from headwater.reading import items
from headwater.rows.converter import Converter
from headwater.runtime.batching import BatchEncoder, ItemBuffer
from headwater.source import Source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["binary_as_base64", "binary_as_text", "column_names", "first_rows"]

BinaryForm = Callable[[bytes], str]


def column_names(source: Source) -> list[str]:
    return list(_schema(source).names)


def binary_as_base64(value: bytes) -> str:
    """As Spark's `to_json` has it."""
    return base64.b64encode(value).decode("ascii")


def binary_as_text(value: bytes) -> str:
    """UTF-8 as text, and other bytes as a literal of Python."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return repr(value)


def first_rows(source: Source, limit: int, binary: BinaryForm) -> Iterator[list[Any]]:
    """Up to `limit` rows as they arrive, as values that JSON has. The source is closed after the last one.

    A row that does not match the schema raises BadRowError, after the rows before it.
    """
    schema = _schema(source)
    encoder = BatchEncoder(Converter(schema))
    buffer = ItemBuffer.for_source(source, schema, batch_rows=1)
    with closing(items(source)) as iterator:  # type: ignore[type-var]
        for item in iterator:
            buffer.add(item)
            batches, bad_row = encoder.encode(buffer.drain().parts)
            for row in _rows(batches, binary):
                yield row
                limit -= 1
                if limit == 0:
                    return
            if bad_row is not None:
                raise bad_row


def _schema(source: Source) -> StructType:
    try:
        return schema_of_source(source)
    except (TypeError, ValueError) as error:
        error.args = (f"the schema of {source!r}: {error}",)
        raise


def _rows(batches: list[pa.RecordBatch], binary: BinaryForm) -> Iterator[list[Any]]:
    for batch in batches:
        for index in range(batch.num_rows):
            yield [_to_json(column[index], binary) for column in batch.columns]


def _to_json(scalar: Any, binary: BinaryForm) -> Any:
    """Decimals and times become strings, and so do bytes."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_map(kind):
        return {_key(_to_json(entry[0], binary)): _to_json(entry[1], binary) for entry in scalar.values}
    if pa.types.is_struct(kind):
        return {kind[i].name: _to_json(scalar[i], binary) for i in range(kind.num_fields)}
    if pa.types.is_list(kind):
        return [_to_json(item, binary) for item in scalar.values]
    try:
        value = scalar.as_py()
        return binary(value) if isinstance(value, bytes) else _simple_value(value)
    except (ValueError, OverflowError):  # a time outside the range of Python's datetime
        return str(scalar)


def _simple_value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bool | int | float | str):
        return value
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
