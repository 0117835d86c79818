"""Schemas from what an author writes, and the Arrow schemas of batches; both are internal to headwater."""

import datetime as dt
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, Optional

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from headwater.ddl import parse
from headwater.schema import arrow_schema, row_type, schema_of_row_type, struct_type


@dataclass
class Point:
    x: float
    y: float | None


class Tick(NamedTuple):
    name: str
    count: int
    ok: bool
    raw: bytes
    price: Decimal
    day: dt.date
    at: dt.datetime
    took: dt.timedelta | None
    tags: list[str]
    maybe: tuple[int | None, ...]
    sizes: dict[str, Optional[int]]  # noqa: UP045
    where: Point
    route: list[Point | None]


def test_the_class_of_the_rows_defines_their_schema() -> None:
    point = T.StructType(
        [T.StructField("x", T.DoubleType(), False), T.StructField("y", T.DoubleType(), True)]
    )
    assert schema_of_row_type(Tick) == T.StructType(
        [
            T.StructField("name", T.StringType(), False),
            T.StructField("count", T.LongType(), False),
            T.StructField("ok", T.BooleanType(), False),
            T.StructField("raw", T.BinaryType(), False),
            T.StructField("price", T.DecimalType(38, 18), False),
            T.StructField("day", T.DateType(), False),
            T.StructField("at", T.TimestampType(), False),
            T.StructField("took", T.DayTimeIntervalType(), True),
            T.StructField("tags", T.ArrayType(T.StringType(), False), False),
            T.StructField("maybe", T.ArrayType(T.LongType(), True), False),
            T.StructField("sizes", T.MapType(T.StringType(), T.LongType(), True), False),
            T.StructField("where", point, False),
            T.StructField("route", T.ArrayType(point, True), False),
        ]
    )


@dataclass
class Twice:
    a: int
    A: int


@dataclass
class Nothing:
    pass


class Wrong(NamedTuple):
    field: "int | str"


class NullKeys(NamedTuple):
    field: dict[str | None, int]


class Pair(NamedTuple):
    field: tuple[int, str]


@dataclass
class Tree:
    children: "list[Tree]"


@dataclass
class Unreadable:
    field: "Missing"  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            Wrong,
            r"Wrong.field has the unsupported column type int \| str; use str, int, float",
        ),
        (Pair, r"Pair.field has the unsupported column type tuple\[int, str\]; use "),
        (NullKeys, "the keys of a map cannot be None"),
        (Tree, "Tree contains itself"),
        (Unreadable, "the annotations of Unreadable cannot be evaluated: name 'Missing'"),
        (int, "<class 'int'> cannot be the class of the rows; it must be a dataclass or a NamedTuple"),
    ],
)
def test_a_class_with_an_unsupported_type_is_an_error_that_names_it(kind: type, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        schema_of_row_type(kind)


def test_the_class_of_the_rows_needs_fields_with_different_names() -> None:
    with pytest.raises(ValueError, match="Nothing has no fields"):
        schema_of_row_type(Nothing)
    with pytest.raises(ValueError, match="Twice has two fields 'A'; names must differ, ignoring case"):
        schema_of_row_type(Twice)


@pytest.mark.parametrize(
    "annotation",
    [
        Iterator[Tick],
        Iterable[Tick],
        Generator[Tick, None, None],
        AsyncIterator[Tick],
        AsyncGenerator[Tick, None],
        Iterator[list[Tick]],
    ],
)
def test_the_class_of_the_rows_is_found_in_the_annotation(annotation: Any) -> None:
    assert row_type(annotation) is Tick


@pytest.mark.parametrize(
    "annotation", [None, Tick, Iterator, Iterator[int], list[Tick], Iterator[Tick | int], "x"]
)
def test_other_annotations_do_not_define_the_class_of_the_rows(annotation: Any) -> None:
    assert row_type(annotation) is None


def test_a_schema_is_ddl_or_a_struct_type() -> None:
    schema = parse("a INT, b STRING")
    assert struct_type("a INT, b STRING") == schema
    assert struct_type(schema) is schema


def test_any_other_schema_is_an_error() -> None:
    with pytest.raises(TypeError, match="the schema is of type list; it must be a str such as 'id LONG"):
        struct_type(["a"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no columns"):
        struct_type(T.StructType([]))
    double = T.StructType([T.StructField("a", T.IntegerType()), T.StructField("A", T.IntegerType())])
    with pytest.raises(ValueError, match="the schema has two fields 'A'"):
        struct_type(double)
    with pytest.raises(ValueError, match="'s' has two fields 'A'"):
        struct_type(T.StructType([T.StructField("s", T.ArrayType(double))]))


def test_arrow_types_are_those_of_sparks_arrow_utils() -> None:
    schema = parse(
        "a boolean, b byte, c short, d int, e long, f float, g double, h decimal(10, 2), i string, "
        "j char(3), k varchar(3), l binary, m date, n timestamp NOT NULL, o timestamp_ntz, p interval day, "
        "q void, r array<int>, s map<string, int>, t struct<x: int NOT NULL, y: array<string>>"
    )
    inner = [pa.field("x", pa.int32(), nullable=False)]
    inner.append(pa.field("y", pa.list_(pa.field("element", pa.string()))))
    assert arrow_schema(schema) == pa.schema(
        [
            ("a", pa.bool_()),
            ("b", pa.int8()),
            ("c", pa.int16()),
            ("d", pa.int32()),
            ("e", pa.int64()),
            ("f", pa.float32()),
            ("g", pa.float64()),
            ("h", pa.decimal128(10, 2)),
            ("i", pa.string()),
            ("j", pa.string()),
            ("k", pa.string()),
            ("l", pa.binary()),
            ("m", pa.date32()),
            pa.field("n", pa.timestamp("us", tz="UTC"), nullable=False),
            ("o", pa.timestamp("us")),
            ("p", pa.duration("us")),
            ("q", pa.null()),
            ("r", pa.list_(pa.field("element", pa.int32()))),
            ("s", pa.map_(pa.string(), pa.field("value", pa.int32()))),
            ("t", pa.struct(inner)),
        ]
    )


def test_parts_that_are_never_null_are_not_nullable() -> None:
    kind = T.MapType(T.StringType(), T.ArrayType(T.LongType(), False), False)
    (field,) = arrow_schema(T.StructType([T.StructField("m", kind)]))
    assert (field.type.key_field.name, field.type.key_field.nullable) == ("key", False)
    assert (field.type.item_field.name, field.type.item_field.nullable) == ("value", False)
    assert field.type.item_type.value_field == pa.field("element", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("text", "path", "remedy"),
    [
        ("a interval year", "a", "declare it INT"),
        ("a array<interval month>", "a[]", "INTERVAL MONTH"),
        ("a interval", "a", "INTERVAL DAY TO SECOND"),
        ("a struct<v: variant>", "a.v", "declare it STRING"),
        ("a map<int, struct<>>", "a.value", "add a field to it"),
    ],
)
def test_an_unsupported_column_type_is_an_error_with_the_column_and_a_remedy(
    text: str, path: str, remedy: str
) -> None:
    with pytest.raises(ValueError, match="which a source cannot produce") as caught:
        arrow_schema(parse(text))
    assert f"column {path!r} has the type" in str(caught.value)
    assert remedy in str(caught.value)
