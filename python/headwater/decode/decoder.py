"""Decoders: bytes to rows."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.decode.json import (
    Given,
    JsonDecoder,
    Piece,
    RecordDecoder,
    one_by_one,
    python_rows,
    python_value,
)
from headwater.rows.bad_values import Refused
from headwater.rows.columns import Column, column, fits
from headwater.rows.records import Records
from headwater.schema import arrow_schema, has_array_rows, struct_type
from headwater.source import BadRow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "BinaryDecoder",
    "CustomDecoder",
    "Decoder",
    "MetadataColumns",
    "TextDecoder",
    "decoder",
    "function_named",
]

_EACH = list | pa.Array  # has a value for each record


class MetadataColumns:
    """The columns of one schema. Their values come with the records: a list or an array, or one for all."""

    def __init__(self, schema: StructType) -> None:
        self.names = list(schema.names)
        arrow = arrow_schema(schema).types
        self._columns = {
            field.name: column(field.dataType, arrow[i], field.nullable)
            for i, field in enumerate(schema.fields)
        }

    def check(self, given: dict[str, Any], records: int) -> None:
        """TypeError or ValueError where that is not what the columns need."""
        if set(given) != set(self.names):
            said = ", ".join(given) or "none"
            raise TypeError(f"the columns beside are {', '.join(self.names) or 'none'}; given are {said}")
        for name, values in given.items():
            if isinstance(values, _EACH) and len(values) != records:
                raise ValueError(f"column {name!r} has {len(values)} values for {records} records")

    def arrays(self, given: dict[str, Any], records: int) -> list[pa.Array]:
        return [_array(name, kind, given[name], records) for name, kind in self._columns.items()]

    def values(self, given: dict[str, Any], place: int) -> tuple[Any, ...]:
        """Those of one record. Not for arrays."""
        found = (given[name] for name in self.names)
        return tuple(values[place] if isinstance(values, list) else values for values in found)

    def in_python(self, given: dict[str, Any]) -> dict[str, Any]:
        """The same with lists for arrays."""
        return {name: _listed(v) if isinstance(v, pa.Array) else v for name, v in given.items()}


def _array(name: str, kind: Column, values: Any, records: int) -> pa.Array:
    if isinstance(values, pa.Array):
        if fits(kind.cast, values):
            return kind.cast(values)
        values = _listed(values)
    several = values if isinstance(values, list) else [values]
    try:
        array = kind.build(several)
    except Exception:
        blame = next(kind.explain(value) for value in several if not fits(kind.build, [value]))
        raise ValueError(f"column {name!r}: {blame.reason} (found: {blame.value!r})") from None
    return array if isinstance(values, list) else pa.repeat(array[0], records)


def _listed(array: pa.Array) -> list[Any]:
    return [python_value(value) for value in array]


_NO_ROW = "the function returned None; it returns a row or a list of rows, which may be empty"


class CustomDecoder:
    """The function gets a record and returns a row or a list of rows; what it raises makes the record bad."""

    def __init__(self, schema: StructType, function: Callable[[bytes], Any]) -> None:
        self.schema = schema
        self._function = function
        self._records = Records(schema.names, bare=True)
        self._array_rows = has_array_rows(schema)

    def pieces(self, records: Given) -> Iterator[Piece]:
        return map(self._one, one_by_one(records))

    def _one(self, record: bytes) -> Piece:
        try:
            found = self._function(record)
            if isinstance(found, BadRow):
                row = self._nulls() if found.row is None else self._row(found.row)
                return BadRow(found.value, found.reason, row)
            if found is None:
                raise Refused(_NO_ROW)
            many = isinstance(found, list) and not self._array_rows
            return [self._row(row) for row in (found if many else [found])]
        except MemoryError:
            raise
        except Exception as error:
            why = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
            return BadRow(record, why, self._nulls())

    def _nulls(self) -> tuple[Any, ...]:
        return (None,) * len(self._records.names)

    def _row(self, row: Any) -> tuple[Any, ...]:
        return tuple(column[0] for column in self._records.split([row]))


def function_named(name: str) -> Callable[[bytes], Any]:
    """ValueError where there is none of that name."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ValueError(f"decode={name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ValueError(f"decode={name!r} is of type {type(found).__name__}; it must be a function")
    return found  # type: ignore[no-any-return]


class BinaryDecoder:
    """Records as they are."""

    def __init__(self) -> None:
        self.schema = struct_type("data BINARY")
        self._arrow = arrow_schema(self.schema)

    def pieces(self, records: Given) -> Iterator[Piece]:
        yield pa.RecordBatch.from_arrays([_column(records).cast(pa.binary())], schema=self._arrow)


class TextDecoder:
    """Records in UTF-8."""

    def __init__(self) -> None:
        self.schema = struct_type("data STRING")
        self._arrow = arrow_schema(self.schema)

    def pieces(self, records: Given) -> Iterator[Piece]:
        try:
            texts = _column(records).cast(pa.string())
        except pa.ArrowInvalid:
            for record in one_by_one(records):
                yield self._one(record)
        else:
            yield pa.RecordBatch.from_arrays([texts], schema=self._arrow)

    def _one(self, record: bytes) -> Piece:
        try:
            return [(record.decode(),)]
        except UnicodeDecodeError as error:
            why = f"it is not in UTF-8: {error.reason} at byte {error.start}"
            return BadRow(record, why, (None,))


def _column(records: Given) -> pa.Array:
    return records if isinstance(records, pa.Array) else pa.array(records, pa.binary())


class Decoder:
    """Makes rows of records. `decoder` makes one.

    >>> ids = decoder("json", "id INT", beside="event STRING")
    >>> good, bad = ids.rows([b'{"id": 1}', b'{"id": "x"}'], event="new")
    >>> print(good, bad.reason)
    (1, 'new') field 'id': INT takes a whole number from -2147483648 to 2147483647
    """

    schema: StructType
    """Its columns, and after them those beside."""

    def __init__(self, way: RecordDecoder, beside: StructType) -> None:
        from pyspark.sql.types import StructType

        self.schema = StructType([*way.schema.fields, *beside.fields])
        self._arrow = arrow_schema(self.schema)
        self._own_arrow = pa.schema(list(self._arrow)[: len(way.schema.fields)])
        self._way = way
        self._beside = MetadataColumns(beside)

    def rows(self, records: Given, **columns: Any) -> Any:
        """What may be yielded, also under one `hw.At`: an Arrow table, or a list of rows and of `hw.BadRow`s.

        `columns` are the values of the columns beside: a list with one for each record, or one for all.
        Records, and columns beside, may also be Arrow arrays. What a record becomes does not depend on those
        that it comes with.
        """
        self._beside.check(columns, len(records))
        pieces = list(self._way.pieces(records))
        tables = [piece for piece in pieces if isinstance(piece, pa.RecordBatch)]
        if len(tables) < len(pieces):
            return self._listed(pieces, columns)
        own = tables[0] if len(tables) == 1 else pa.Table.from_batches(tables, self._own_arrow)
        more = self._beside.arrays(columns, len(records))
        return pa.table([*own.columns, *more], schema=self._arrow)

    def _listed(self, pieces: list[Piece], columns: dict[str, Any]) -> list[Any]:
        rows: list[Any] = []
        columns = self._beside.in_python(columns)
        place = 0
        for piece in pieces:
            if isinstance(piece, pa.RecordBatch):
                for row in python_rows(piece):
                    rows.append((*row, *self._beside.values(columns, place)))
                    place += 1
                continue
            more = self._beside.values(columns, place)
            place += 1
            if isinstance(piece, BadRow):
                rows.append(BadRow(piece.value, piece.reason, (*piece.row, *more)))
            else:
                rows += [(*row, *more) for row in piece]
        return rows


def decoder(
    name: str, schema: str | StructType | None = None, *, beside: str | StructType | None = None
) -> Decoder:
    """The decoder of that name: `text`, `binary`, `json`, or a function as `package.module:function`.

    `json` and a function need a schema, DDL or a StructType; the others have one. `beside` are columns after
    those, whose values the source gives with the records. ValueError where something of it cannot be.

    >>> print(decoder("text").schema.simpleString())
    struct<data:string>
    >>> print(decoder("json", "id INT, name STRING").rows([b'{"id": 1, "name": "one"}']).to_pylist())
    [{'id': 1, 'name': 'one'}]
    """
    from pyspark.sql.types import StructType

    way = _way(name, schema)
    more = _struct_type(beside, "beside") if beside else StructType([])
    seen: set[str] = set()
    for name in [*way.schema.names, *more.names]:
        if name.lower() in seen:
            raise ValueError(f"the column {name!r} is there twice; names must differ, ignoring case")
        seen.add(name.lower())
    return Decoder(way, more)


def _way(name: str, schema: str | StructType | None) -> RecordDecoder:
    if name in ("text", "binary"):
        way: RecordDecoder = TextDecoder() if name == "text" else BinaryDecoder()
        if schema is not None:
            raise ValueError(f"decode={name!r} gives the column {way.schema.names[0]!r}, and takes no schema")
        return way
    if name != "json" and ":" not in name:
        raise ValueError(
            f"decode={name!r} is unknown; it must be text, binary, json, or a function of yours as "
            "package.module:function"
        )
    if schema is None:
        raise ValueError(f"decode={name!r} needs a schema, such as 'id LONG, name STRING'")
    columns = _struct_type(schema, "schema")
    return JsonDecoder(columns) if name == "json" else CustomDecoder(columns, function_named(name))


def _struct_type(schema: str | StructType, what: str) -> StructType:
    try:
        found = struct_type(schema)
        arrow_schema(found)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    return found
