"""Schemas: from DDL, a StructType or the class of the rows to Spark's types, and from those to Arrow's."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from headwater import ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructField, StructType

__all__ = ["arrow_schema", "has_array_rows", "row_type", "schema_of_row_type", "struct_type"]


def struct_type(schema: str | StructType) -> StructType:
    """A declared schema as Spark's type; TypeError or ValueError if it is not valid."""
    from pyspark.sql.types import StructType

    if isinstance(schema, str):
        return ddl.parse(schema)
    if not isinstance(schema, StructType):
        raise TypeError(
            f"the schema is of type {type(schema).__name__}; it must be a str such as 'id LONG, name STRING' "
            "or a pyspark.sql.types.StructType"
        )
    if not schema.fields:
        raise ValueError("the schema has no columns; a source needs at least one")
    _check_names(schema, "the schema")
    return schema


def _check_names(kind: DataType, where: str) -> None:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        _check_names(kind.elementType, where)
    elif isinstance(kind, MapType):
        _check_names(kind.keyType, where)
        _check_names(kind.valueType, where)
    elif isinstance(kind, StructType):
        seen: set[str] = set()
        for field in kind.fields:
            if field.name.lower() in seen:
                raise ValueError(f"{where} has two fields {field.name!r}; names must differ, ignoring case")
            seen.add(field.name.lower())
            _check_names(field.dataType, repr(field.name))


def has_array_rows(schema: StructType) -> bool:
    """Whether a list is one row: the value of the only column, an array. Otherwise a list is many rows."""
    return len(schema.fields) == 1 and schema.fields[0].dataType.typeName() == "array"


# The class of the rows

_COLUMN_TYPES = {
    str: "STRING",
    int: "LONG",
    float: "DOUBLE",
    bool: "BOOLEAN",
    bytes: "BINARY",
    Decimal: "DECIMAL(38, 18)",
    date: "DATE",
    datetime: "TIMESTAMP",
    timedelta: "INTERVAL DAY TO SECOND",
}
_ALLOWED_TYPES = (
    "str, int, float, bool, bytes, Decimal, date, datetime, timedelta, list[T], tuple[T, ...], dict[K, V], "
    "a dataclass, a NamedTuple, and T | None for any of these"
)
_ITERATORS = (Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator)


def row_type(annotation: object) -> type | None:
    """The class of the rows in a return annotation: `Iterator[Tick]` → `Tick`.

    None for any other annotation; such a source must declare its schema.
    """
    if typing.get_origin(annotation) not in _ITERATORS:
        return None
    row = typing.get_args(annotation)[0]
    if typing.get_origin(row) is list:
        (row,) = typing.get_args(row)
    return row if _is_row(row) else None


def schema_of_row_type(annotation: type) -> StructType:
    """The schema of a dataclass or a NamedTuple; fields annotated `T | None` are nullable."""
    if not _is_row(annotation):
        raise TypeError(
            f"{annotation!r} cannot be the class of the rows; it must be a dataclass or a NamedTuple"
        )
    schema = _struct(annotation, ())
    if not schema.fields:
        raise ValueError(f"{annotation.__qualname__} has no fields; a source needs at least one")
    _check_names(schema, annotation.__qualname__)
    return schema


def _is_row(kind: object) -> bool:
    if not isinstance(kind, type):
        return False
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _struct(row: type, outer: tuple[type, ...]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    if row in outer:
        raise TypeError(f"{row.__qualname__} contains itself; Spark has no type for that")
    names = _names(row)
    try:
        hints = typing.get_type_hints(row)
    except NameError as error:
        raise TypeError(f"the annotations of {row.__qualname__} cannot be evaluated: {error}") from error
    untyped = [name for name in names if name not in hints]
    if untyped:
        raise TypeError(f"{row.__qualname__} has no types for {', '.join(untyped)}; use typing.NamedTuple")
    fields = []
    for name in names:
        kind, nullable = _data_type(hints[name], f"{row.__qualname__}.{name}", (*outer, row))
        fields.append(StructField(name, kind, nullable))
    return StructType(fields)


def _names(row: type) -> list[str]:
    if dataclasses.is_dataclass(row):
        return [field.name for field in dataclasses.fields(row)]
    return list(getattr(row, "_fields", ()))


def _data_type(hint: object, where: str, outer: tuple[type, ...]) -> tuple[DataType, bool]:
    """Spark's type, and whether it is nullable."""
    from pyspark.sql.types import ArrayType, MapType

    hint_type, nullable = _without_none(hint)
    origin, arguments = typing.get_origin(hint_type), typing.get_args(hint_type)
    if isinstance(hint_type, type) and hint_type in _COLUMN_TYPES:
        return ddl.parse(f"column {_COLUMN_TYPES[hint_type]}").fields[0].dataType, nullable
    if _is_row(hint_type):
        return _struct(typing.cast("type", hint_type), outer), nullable
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        return ArrayType(*_data_type(arguments[0], where, outer)), nullable
    if origin is dict:
        key, null_key = _data_type(arguments[0], where, outer)
        if null_key:
            raise TypeError(
                f"{where} is of type {inspect.formatannotation(hint)}; the keys of a map cannot be None"
            )
        return MapType(key, *_data_type(arguments[1], where, outer)), nullable
    raise TypeError(
        f"{where} has the unsupported column type {inspect.formatannotation(hint)}; use {_ALLOWED_TYPES}"
    )


def _without_none(hint: object) -> tuple[object, bool]:
    """`T | None` → T and True. Other unions stay as they are: no column has such a type."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    rest = [part for part in typing.get_args(hint) if part is not type(None)]
    return (rest[0], True) if len(rest) == 1 and len(typing.get_args(hint)) == 2 else (hint, False)


# Arrow

_ALTERNATIVES = {
    "YearMonthIntervalType": "declare it INT, yield months, and use make_ym_interval(0, months) in the query",
    "CalendarIntervalType": "declare it INTERVAL DAY TO SECOND, and yield timedeltas",
    "StructType": "add a field to it, or remove it",
    "VariantType": "declare it STRING, yield JSON, and use parse_json in the query",
    "GeometryType": "declare it BINARY, yield WKB, and use st_geomfromwkb in the query",
    "GeographyType": "declare it BINARY, yield WKB, and use st_geogfromwkb in the query",
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema of the batches that go to the JVM; ValueError, with the column, if a type is not supported.

    Column metadata is left out. Spark 4.0 and 4.1 do not have it in Arrow schemas, and no value needs it.
    """
    import pyarrow as pa

    return pa.schema([_arrow_field(field, field.name) for field in schema.fields])


def _arrow_field(field: StructField, path: str) -> pa.Field:
    import pyarrow as pa

    return pa.field(field.name, _arrow_type(field.dataType, path), nullable=field.nullable)


def _arrow_type(kind: DataType, path: str) -> pa.DataType:
    """With Spark's own names for the children, which readers may look for."""
    import pyarrow as pa
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        element = _arrow_type(kind.elementType, f"{path}[]")
        return pa.list_(pa.field("element", element, nullable=kind.containsNull))
    if isinstance(kind, MapType):
        key, value = _arrow_type(kind.keyType, f"{path}.key"), _arrow_type(kind.valueType, f"{path}.value")
        return pa.map_(key, pa.field("value", value, nullable=kind.valueContainsNull))
    if isinstance(kind, StructType) and kind.fields:
        return pa.struct([_arrow_field(field, f"{path}.{field.name}") for field in kind.fields])
    return _simple_arrow_type(kind, path)


def _simple_arrow_type(kind: DataType, path: str) -> pa.DataType:
    import pyarrow as pa
    from pyspark.sql.types import DecimalType

    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    arrow_types = {
        "BooleanType": pa.bool_(),
        "ByteType": pa.int8(),
        "ShortType": pa.int16(),
        "IntegerType": pa.int32(),
        "LongType": pa.int64(),
        "FloatType": pa.float32(),
        "DoubleType": pa.float64(),
        "StringType": pa.string(),
        "CharType": pa.string(),
        "VarcharType": pa.string(),
        "BinaryType": pa.binary(),
        "DateType": pa.date32(),
        "TimestampType": pa.timestamp("us", tz="UTC"),
        "TimestampNTZType": pa.timestamp("us"),
        "TimeType": pa.time64("ns"),
        "DayTimeIntervalType": pa.duration("us"),
        "NullType": pa.null(),
    }
    name = type(kind).__name__
    if name not in arrow_types:
        remedy = _ALTERNATIVES.get(name, "declare it with another type")
        raise ValueError(
            f"column {path!r} has the type {ddl.type_to_ddl(kind)}, which a source cannot produce; {remedy}"
        )
    return arrow_types[name]
