"""Schemas: from DDL, a StructType or the class of the rows to Spark's types, and from those to Arrow's."""

from __future__ import annotations

import dataclasses
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

__all__ = ["arrow_schema", "of_row_type", "row_type", "struct_type"]

_INSTEAD = {
    "YearMonthIntervalType": "declare it INT, give months, and use make_ym_interval(0, months) in the query",
    "CalendarIntervalType": "declare it INTERVAL DAY TO SECOND, and give timedeltas",
    "StructType": "give it a field, or leave it out",
    "VariantType": "declare it STRING, give JSON, and use parse_json in the query",
    "GeometryType": "declare it BINARY, give WKB, and use st_geomfromwkb in the query",
    "GeographyType": "declare it BINARY, give WKB, and use st_geogfromwkb in the query",
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema in which a source's rows travel; a ValueError names the column that has no way to.

    Metadata stays behind: Spark 4.0 and 4.1 do not carry it in Arrow schemas, later ones do, and no value
    depends on it.
    """
    import pyarrow as pa

    return pa.schema([_field(field, field.name) for field in schema.fields])


def _field(field: StructField, path: str) -> pa.Field:
    import pyarrow as pa

    return pa.field(field.name, _type(field.dataType, path), nullable=field.nullable)


def _type(kind: DataType, path: str) -> pa.DataType:
    """The names of the children are those that Spark gives them; readers may look for them."""
    import pyarrow as pa
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        element = _type(kind.elementType, f"{path}[]")
        return pa.list_(pa.field("element", element, nullable=kind.containsNull))
    if isinstance(kind, MapType):
        key, value = _type(kind.keyType, f"{path}.key"), _type(kind.valueType, f"{path}.value")
        return pa.map_(key, pa.field("value", value, nullable=kind.valueContainsNull))
    if isinstance(kind, StructType) and kind.fields:
        return pa.struct([_field(field, f"{path}.{field.name}") for field in kind.fields])
    return _leaf(kind, path)


def _leaf(kind: DataType, path: str) -> pa.DataType:
    import pyarrow as pa
    from pyspark.sql.types import DecimalType

    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    plain = {
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
    if name not in plain:
        remedy = _INSTEAD.get(name, "declare it with another type")
        raise ValueError(
            f"column {path!r} is of type {kind.simpleString().upper()}, which a source cannot give; {remedy}"
        )
    return plain[name]


_PLAIN = {
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
_ALLOWED = (
    "str, int, float, bool, bytes, Decimal, date, datetime, timedelta, list[T], tuple[T, ...], dict[K, V], "
    "a dataclass, a NamedTuple, and T | None of these"
)
_STREAMS = (Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator)


def struct_type(schema: str | StructType) -> StructType:
    """The schema as Spark's type. What is wrong is said now, where the source is defined."""
    from pyspark.sql.types import StructType

    if isinstance(schema, str):
        return ddl.parse(schema)
    if not isinstance(schema, StructType):
        raise TypeError(
            f"the schema is of type {type(schema).__name__}; it must be a str, as 'id LONG, name STRING', "
            "or a pyspark.sql.types.StructType"
        )
    if not schema.fields:
        raise ValueError("the schema has no column; a source needs one at least")
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
                raise ValueError(f"{where} has {field.name!r} twice; names must differ, ignoring case")
            seen.add(field.name.lower())
            _check_names(field.dataType, repr(field.name))


def row_type(annotation: object) -> type | None:
    """The class of the rows, where a function is annotated to give such: `Iterator[Tick]` → `Tick`.

    None where the annotation says less, or something else; a source then needs a schema of its own.
    """
    if typing.get_origin(annotation) not in _STREAMS:
        return None
    row = typing.get_args(annotation)[0]
    if typing.get_origin(row) is list:
        (row,) = typing.get_args(row)
    return row if _is_row(row) else None


def of_row_type(annotation: type) -> StructType:
    """The schema of a dataclass or a NamedTuple; `T | None` is what may be null."""
    if not _is_row(annotation):
        raise TypeError(f"{annotation!r} is no class of rows; it must be a dataclass or a NamedTuple")
    schema = _struct(annotation, ())
    if not schema.fields:
        raise ValueError(f"{annotation.__qualname__} has no field; a source needs one at least")
    _check_names(schema, annotation.__qualname__)
    return schema


def _is_row(kind: object) -> bool:
    if not isinstance(kind, type):
        return False
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _struct(row: type, around: tuple[type, ...]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    if row in around:
        raise TypeError(f"{row.__qualname__} holds itself; Spark has no type for that")
    names = _names(row)
    try:
        hints = typing.get_type_hints(row)
    except NameError as error:
        raise TypeError(f"the annotations of {row.__qualname__} cannot be read here: {error}") from error
    untyped = [name for name in names if name not in hints]
    if untyped:
        raise TypeError(f"{row.__qualname__} has no types for {', '.join(untyped)}; use typing.NamedTuple")
    fields = []
    for name in names:
        kind, nullable = _data_type(hints[name], f"{row.__qualname__}.{name}", (*around, row))
        fields.append(StructField(name, kind, nullable))
    return StructType(fields)


def _names(row: type) -> list[str]:
    if dataclasses.is_dataclass(row):
        return [field.name for field in dataclasses.fields(row)]
    return list(getattr(row, "_fields", ()))


def _data_type(hint: object, where: str, around: tuple[type, ...]) -> tuple[DataType, bool]:
    """Spark's type, and whether a null may be there."""
    from pyspark.sql.types import ArrayType, MapType

    wanted, nullable = _without_none(hint)
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if isinstance(wanted, type) and wanted in _PLAIN:
        return ddl.parse(f"column {_PLAIN[wanted]}").fields[0].dataType, nullable
    if _is_row(wanted):
        return _struct(typing.cast("type", wanted), around), nullable
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        return ArrayType(*_data_type(arguments[0], where, around)), nullable
    if origin is dict:
        key, null_key = _data_type(arguments[0], where, around)
        if null_key:
            raise TypeError(f"{where} is of type {_name(hint)}; the keys of a map cannot be None")
        return MapType(key, *_data_type(arguments[1], where, around)), nullable
    raise TypeError(f"{where} is of type {_name(hint)}, for which there is no column; allowed are {_ALLOWED}")


def _without_none(hint: object) -> tuple[object, bool]:
    """`T | None` → T and True. Other unions stay as they are, and are refused."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    rest = [part for part in typing.get_args(hint) if part is not type(None)]
    return (rest[0], True) if len(rest) == 1 and len(typing.get_args(hint)) == 2 else (hint, False)


def _name(hint: object) -> str:
    plain = isinstance(hint, type) and typing.get_origin(hint) is None
    return getattr(hint, "__qualname__", "") if plain else str(hint).replace("typing.", "")
