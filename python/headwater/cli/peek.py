"""The first rows of a source, without Spark: read and checked as a feed does it, and put into texts."""

from __future__ import annotations

import base64
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa

from headwater.rows.converter import Converter
from headwater.runtime.batching import BatchEncoder, ItemBuffer
from headwater.source import Source, items_of, schema_of_source

__all__ = ["aligned", "columns", "first_rows"]

_WIDEST = 60


def columns(source: Source) -> list[str]:
    """The names of the columns; what is wrong with the schema is said with the name of the source."""
    return list(_schema(source).names)


def first_rows(source: Source, limit: int) -> Iterator[list[Any]]:
    """Up to `limit` rows as they come, as values that JSON has; the source is closed after the last.

    BadRowError, after the rows before it, for a row that does not fit the schema.
    """
    schema = _schema(source)
    packing = BatchEncoder(Converter(schema))
    pending = ItemBuffer.of(source, schema, batch_rows=1)
    with closing(items_of(source)) as items:  # type: ignore[type-var]
        for item in items:
            pending.add(item)
            batches, bad = packing.pack(pending.take().parts)
            for row in _rows(batches):
                yield row
                limit -= 1
                if limit == 0:
                    return
            if bad is not None:
                raise bad


def aligned(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """A table in lines: names, a rule, and the rows. Numbers stand on the right, long values are cut."""
    values = [list(row) for row in rows]
    cells = [[_cell(name) for name in names], *([_cell(value) for value in row] for row in values)]
    widths = [max(_width(row[i]) for row in cells) for i in range(len(names))]
    right = [all(_is_number(row[i]) for row in values) and bool(values) for i in range(len(names))]
    cells.insert(1, ["-" * width for width in widths])
    for row in cells:
        yield "  ".join(map(_padded, row, widths, right)).rstrip()


def _schema(source: Source) -> Any:
    try:
        return schema_of_source(source)
    except (TypeError, ValueError) as error:
        error.args = (f"the schema of {source!r}: {error}",)
        raise


def _rows(batches: list[pa.RecordBatch]) -> Iterator[list[Any]]:
    for batch in batches:
        for index in range(batch.num_rows):
            yield [_value(column[index]) for column in batch.columns]


def _value(scalar: Any) -> Any:
    """As JSON has it: exact, so a decimal is a text, as are times; bytes are in base64."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_map(kind):
        return {_key(_value(entry[0])): _value(entry[1]) for entry in scalar.values}
    if pa.types.is_struct(kind):
        return {kind[i].name: _value(scalar[i]) for i in range(kind.num_fields)}
    if pa.types.is_list(kind):
        return [_value(item) for item in scalar.values]
    try:
        return _leaf(scalar.as_py())
    except (ValueError, OverflowError):  # a time that Python does not have
        return str(scalar)


def _leaf(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cell(value: Any) -> str:
    """On one line, without what would move a terminal's cursor."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in _key(value))
    if _width(text) <= _WIDEST:
        return text
    while _width(text) >= _WIDEST:
        text = text[: max(_WIDEST - 1, 0)] if len(text) >= _WIDEST else text[:-1]
    return f"{text}…"


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(text))
    return f"{blanks}{text}" if right else f"{text}{blanks}"


def _width(text: str) -> int:
    """Columns of a terminal."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))
