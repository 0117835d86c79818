"""Rows and tables become Arrow batches exactly, or a BadRowError names the row and the field.

These tests use the private `Converter` and `resize`: a query would take seconds for each of these cases.
"""

import datetime as dt
import enum
import math
import pickle
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as T  # noqa: N812

from headwater.ddl import parse
from headwater.errors import BadRowError
from headwater.rows.batches import resize
from headwater.rows.converter import Converter

UTC = dt.timezone.utc
ZONED = pa.timestamp("s", "UTC")
BERLIN = ZoneInfo("Europe/Berlin")
TOKYO = dt.timezone(dt.timedelta(hours=9))
FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
NAN = float("nan")


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class NoOffset(dt.tzinfo):
    """Has no UTC offset: Python treats such a datetime as one without a time zone."""

    def utcoffset(self, when: dt.datetime | None) -> None:
        return None


def one(ddl: str, value: object) -> Any:
    """The value of the only column, read from the batch."""
    batch, bad = Converter(parse(f"c {ddl}")).from_rows([(value,)], 0)
    assert not bad
    return batch.column(0).to_pylist(maps_as_pydicts="strict")[0]


def bad_row_error(action: Callable[[], object]) -> BadRowError:
    with pytest.raises(BadRowError) as caught:
        action()
    return caught.value


# DDL, a Python value, and another Arrow type that can hold it.
VALID = [
    ("BOOLEAN", True, pa.bool_()),
    ("BYTE", -128, pa.int64()),
    ("SHORT", 32767, pa.int32()),
    ("INT", 2**31 - 1, pa.uint32()),
    ("LONG", -(2**63), pa.int64()),
    ("LONG", 5, pa.int8()),
    ("FLOAT", 1.5, pa.float64()),
    ("FLOAT", 2**24, pa.int64()),
    ("DOUBLE", math.inf, pa.float64()),
    ("DOUBLE", 0.1, pa.float64()),
    ("DOUBLE", 2**53, pa.int64()),
    ("DECIMAL(10, 2)", Decimal("99999999.99"), pa.decimal128(20, 4)),
    ("DECIMAL(10, 2)", Decimal("1.500"), pa.decimal128(10, 3)),
    ("DECIMAL(10, 2)", 5, pa.int64()),
    ("DECIMAL(38, 18)", Decimal("-12345678901234567890.123456789012345678"), pa.decimal256(50, 18)),
    ("STRING", "aä€😀\0", pa.large_string()),
    ("STRING", "", pa.string_view()),
    ("STRING", "x", pa.dictionary(pa.int32(), pa.string())),
    ("CHAR(2)", "longer", pa.string()),
    ("VARCHAR(2)", "longer", pa.string()),
    ("BINARY", b"\0\xff", pa.large_binary()),
    ("BINARY", b"ab", pa.binary(2)),
    ("DATE", dt.date.min, pa.date32()),
    ("DATE", dt.date.max, pa.date64()),
    ("TIMESTAMP", FIRST.replace(tzinfo=UTC), pa.timestamp("us", "UTC")),
    ("TIMESTAMP", LAST.replace(tzinfo=UTC), pa.timestamp("us", "UTC")),
    ("TIMESTAMP", dt.datetime(2024, 7, 1, tzinfo=BERLIN), pa.timestamp("ns", "Europe/Berlin")),
    ("TIMESTAMP", dt.datetime(2024, 7, 1, tzinfo=TOKYO), pa.timestamp("s", "+09:00")),
    ("TIMESTAMP_NTZ", FIRST, pa.timestamp("us")),
    ("TIMESTAMP_NTZ", dt.datetime(2024, 7, 1, 1, 2, 3, 4), pa.timestamp("ns")),
    ("INTERVAL DAY TO SECOND", dt.timedelta(days=-1, microseconds=1), pa.duration("ns")),
    ("INTERVAL DAY", dt.timedelta(days=3), pa.duration("s")),
    ("VOID", None, pa.null()),
    ("ARRAY<INT>", [1, None, 3], pa.large_list(pa.int64())),
    ("ARRAY<ARRAY<STRING>>", [["a"], None, []], pa.list_(pa.list_(pa.string()))),
    ("ARRAY<INT>", [1, 2], pa.list_(pa.int64(), 2)),
    ("MAP<STRING, INT>", {"a": 1, "b": None}, pa.map_(pa.string(), pa.int64())),
    (
        "STRUCT<x: INT NOT NULL, y: STRUCT<z: STRING>>",
        {"x": 1, "y": {"z": None}},
        pa.struct({"y": pa.struct({"z": pa.string()}), "x": pa.int64()}),
    ),
    ("STRUCT<x: INT, y: STRING>", {"x": 1, "y": None}, pa.struct({"x": pa.int8(), "y": pa.null()})),
]


@pytest.mark.parametrize(("ddl", "value", "arrow"), VALID)
def test_valid_values_are_converted_exactly_from_rows_and_from_arrow(
    ddl: str, value: object, arrow: pa.DataType
) -> None:
    assert one(ddl, value) == value
    table = pa.table({"c": pa.array([value, None], arrow)})
    converter = Converter(parse(f"c {ddl}"))
    batch, _ = converter.from_arrow(table, 0)
    assert batch.schema == converter.arrow_schema
    assert batch.column(0).to_pylist(maps_as_pydicts="strict") == [value, None]
    batch.validate(full=True)


# DDL, a Python value, a part of the message, and the value in Arrow, if Arrow can hold it.
INVALID: list[tuple[str, object, str, pa.Array | None]] = [
    ("INT NOT NULL", None, "null in a NOT NULL column", pa.array([None], pa.int32())),
    ("INT NOT NULL", None, "null in a NOT NULL", pa.nulls(1)),
    ("LONG", NAN, "float does not fit; BIGINT accepts an int", pa.array([NAN])),
    ("LONG", 1.0, "float does not fit", pa.array([1.0])),
    ("LONG", True, "bool does not fit", pa.array([True])),
    ("LONG", "1", "str does not fit", pa.array(["1"])),
    ("LONG", Decimal(1), "Decimal does not fit", pa.array([Decimal(1)])),
    ("LONG", 2**63, "accepts an int from -9223372036854775808 to 92233", pa.array([2**63], pa.uint64())),
    ("BYTE", 128, "accepts an int from -128 to 127", pa.array([128])),
    ("BYTE", np.int64(128), "accepts an int from -128 to 127", None),
    ("LONG", np.True_, "does not fit", None),
    ("BOOLEAN", 1, "int does not fit; BOOLEAN accepts a bool", pa.array([1])),
    ("BOOLEAN", "true", "str does not fit", pa.array(["true"])),
    ("DOUBLE", True, "bool does not fit", pa.array([True])),
    ("DOUBLE", 2**53 + 1, "an int from -2**53 to 2**53", pa.array([2**53 + 1])),
    ("DOUBLE", Decimal("1.5"), "Decimal does not fit", pa.array([Decimal("1.5")])),
    ("DOUBLE", "1.5", "str does not fit", pa.array(["1.5"])),
    ("FLOAT", 1e39, "too large", pa.array([1e39])),
    ("FLOAT", 2**24 + 1, "an int from -2**24 to 2**24", pa.array([2**24 + 1])),
    ("DECIMAL(10, 2)", Decimal("100000000"), "at most 8 digits before the point", pa.array([Decimal(10**8)])),
    ("DECIMAL(10, 2)", Decimal("1.234"), "and 2 after it", pa.array([Decimal("1.234")])),
    ("DECIMAL(10, 2)", 10**8, "at most 8 digits", pa.array([10**8])),
    ("DECIMAL(10, 2)", 1.5, "float does not fit", pa.array([1.5])),
    ("DECIMAL(10, 2)", True, "bool does not fit", pa.array([True])),
    ("DECIMAL(10, 2)", Decimal("NaN"), "accepts a Decimal or int", None),
    ("DECIMAL(10, 2)", Decimal("Infinity"), "accepts a Decimal or int", None),
    ("STRING", b"x", "bytes does not fit; STRING accepts a str", pa.array([b"x"])),
    ("STRING", 1, "int does not fit", pa.array([1])),
    ("STRING", NAN, "float does not fit", pa.array([NAN])),
    ("BINARY", "x", "str does not fit; BINARY accepts bytes", pa.array(["x"])),
    ("DATE", dt.datetime(2024, 1, 1), "datetime does not fit; DATE accepts", pa.array([FIRST])),
    ("DATE", 19000, "int does not fit", pa.array([19000])),
    ("DATE", "2024-01-01", "str does not fit", pa.array(["2024-01-01"])),
    ("TIMESTAMP", dt.datetime(2024, 1, 1), "datetime.now(timezone.utc)", pa.array([dt.datetime(2024, 1, 1)])),
    ("TIMESTAMP", dt.datetime(2024, 1, 1), "TIMESTAMP_NTZ", pa.array([1], pa.timestamp("ns"))),
    ("TIMESTAMP", dt.datetime(2024, 1, 1, tzinfo=NoOffset()), "the datetime has no time zone", None),
    ("TIMESTAMP", dt.date(2024, 1, 1), "date does not fit", pa.array([dt.date(2024, 1, 1)])),
    ("TIMESTAMP", 1.0, "float does not fit", pa.array([1.0])),
    ("TIMESTAMP", np.datetime64("2024-01-01"), "datetime64 does not fit", None),
    ("TIMESTAMP", FIRST.replace(tzinfo=dt.timezone(dt.timedelta(hours=1))), "years 1 to 9999", None),
    ("TIMESTAMP", pd.Timestamp(1, tz="UTC"), "nanoseconds", pa.array([1], pa.timestamp("ns", "UTC"))),
    ("TIMESTAMP", pd.NaT, "does not fit", None),
    ("TIMESTAMP_NTZ", dt.datetime(2024, 1, 1, tzinfo=UTC), "has a time zone", pa.array([1], ZONED)),
    ("TIMESTAMP_NTZ", dt.date(2024, 1, 1), "date does not fit", pa.array([dt.date(2024, 1, 1)])),
    ("INTERVAL DAY TO SECOND", dt.timedelta.max, "up to 106751991 days", pa.array([2**62], pa.duration("s"))),
    ("INTERVAL DAY TO SECOND", 5, "int does not fit", pa.array([5])),
    ("INTERVAL DAY", dt.timedelta(hours=1), "finer than the column", pa.array([dt.timedelta(hours=1)])),
    ("VOID", 1, "accepts only None", pa.array([1])),
    ("ARRAY<INT>", "abc", "str does not fit; an ARRAY accepts a list or a tuple", None),
    ("ARRAY<INT>", {1, 2}, "set does not fit", None),
    ("MAP<STRING, INT>", [("a", 1)], "list does not fit; a MAP accepts a dict", None),
    ("STRUCT<x: INT>", [1], "list is not a row", None),
    ("STRUCT<x: INT>", (1, 2), "the row has 2 values for 1 column: x", None),
    ("STRUCT<x: INT>", {"y": 2}, "unknown: 'y', for 1 column: x", pa.array([{"y": 2}])),
]  # fmt: skip


@pytest.mark.parametrize(("ddl", "value", "message", "array"), INVALID)
def test_invalid_values_are_bad_rows_from_rows_and_from_arrow(
    ddl: str, value: object, message: str, array: pa.Array | None
) -> None:
    converter = Converter(parse(f"c {ddl}"))
    error = bad_row_error(lambda: converter.from_rows([(value,)], 1234))
    assert (error.number, error.field) == (1234, "c")
    assert message in error.reason
    assert str(error).startswith("row 1234, field 'c': ")
    if array is not None:
        same = bad_row_error(lambda: converter.from_arrow(pa.table({"c": array}), 1234))
        assert (same.number, same.field) == (1234, "c")
        batch, bad = Converter(parse(f"c {ddl}"), "drop").from_arrow(pa.table({"c": array}), 7)
        assert ([error.number for error in bad], batch.num_rows) == ([7], 0)


@pytest.mark.parametrize(
    ("ddl", "array"),
    [
        ("TIMESTAMP", pa.array([2**60], pa.timestamp("us", "UTC"))),
        ("TIMESTAMP_NTZ", pa.array([-(2**60)], pa.timestamp("us"))),
        ("DATE", pa.array([2**30], pa.int32()).view(pa.date32())),
    ],
)
def test_arrow_times_outside_the_years_1_to_9999_are_bad_rows(ddl: str, array: pa.Array) -> None:
    error = bad_row_error(lambda: Converter(parse(f"c {ddl}")).from_arrow(pa.table({"c": array}), 0))
    assert "years 1 to 9999" in error.reason


@pytest.mark.parametrize(
    ("ddl", "value", "field", "reason"),
    [
        ("STRUCT<x: INT NOT NULL>", {"x": None}, "c.x", "NOT NULL"),
        ("STRUCT<x: INT NOT NULL>", {}, "c.x", "NOT NULL"),
        ("STRUCT<x: STRUCT<y: ARRAY<INT>>>", ((([1, "2"],),)), "c.x.y[1]", "str does not fit; INT accepts"),
        ("MAP<STRING, INT>", {"a": 1, "b": 2.5}, "c['b']", "float does not fit"),
        ("MAP<STRING, INT>", {1: 1}, "c.key", "int does not fit"),
        ("MAP<STRING, INT>", {None: 1}, "c.key", "null in a NOT NULL"),
        ("ARRAY<STRUCT<x: INT>>", [(1,), (1, 2)], "c[1]", "the row has 2 values for 1 column"),
        (
            "ARRAY<TIMESTAMP>",
            [dt.datetime(2024, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 1)],
            "c[1]",
            "no time zone",
        ),
    ],
)
def test_an_error_names_the_path_of_an_invalid_nested_value(
    ddl: str, value: object, field: str, reason: str
) -> None:
    error = bad_row_error(lambda: Converter(parse(f"c {ddl}")).from_rows([(value,)], 0))
    assert error.field == field
    assert reason in error.reason


def test_nested_arrow_nulls_are_bad_rows_unless_they_are_outside_the_slice() -> None:
    kind = T.StructType([T.StructField("c", T.ArrayType(T.LongType(), False))])
    array = pa.array([[None], [1], None, [2, 3]], pa.list_(pa.int64()))
    batch, _ = Converter(kind).from_arrow(pa.table({"c": array.slice(1)}), 0)
    assert batch.column(0).to_pylist() == [[1], None, [2, 3]]
    assert bad_row_error(lambda: Converter(kind).from_arrow(pa.table({"c": array}), 0)).field == "c[0]"
    maps = pa.array([[("a", None)], [("b", 1)], None], pa.map_(pa.string(), pa.int64()))
    kind = T.StructType([T.StructField("c", T.MapType(T.StringType(), T.LongType(), False))])
    batch, _ = Converter(kind).from_arrow(pa.table({"c": maps.slice(1)}), 0)
    assert batch.column(0).to_pylist() == [[("b", 1)], None]
    assert bad_row_error(lambda: Converter(kind).from_arrow(pa.table({"c": maps}), 0)).field == "c['a']"
    structs = pa.array([{"x": None}, None, {"x": 1}])
    strict = Converter(parse("c STRUCT<x: LONG NOT NULL>"))
    assert strict.from_arrow(pa.table({"c": structs.slice(1)}), 0)[0].num_rows == 2
    assert bad_row_error(lambda: strict.from_arrow(pa.table({"c": structs}), 0)).field == "c.x"


@pytest.mark.parametrize(
    ("ddl", "value", "expected"),
    [
        ("LONG", Level.HIGH, 3),
        ("STRING", Colour.RED, "red"),
        ("INT", np.int64(5), 5),
        ("DOUBLE", np.float32(1.5), 1.5),
        ("DOUBLE", np.int8(5), 5.0),
        ("BOOLEAN", np.True_, True),
        ("STRING", np.str_("x"), "x"),
        ("BINARY", bytearray(b"x"), b"x"),
        ("FLOAT", 0.1, float(np.float32(0.1))),
        ("TIMESTAMP", pd.Timestamp("2024-01-01", tz="UTC"), dt.datetime(2024, 1, 1, tzinfo=UTC)),
        ("TIMESTAMP", dt.datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC")), dt.datetime(2024, 1, 1, tzinfo=UTC)),
        ("INTERVAL DAY TO SECOND", pd.Timedelta(days=1), dt.timedelta(days=1)),
        ("ARRAY<INT>", (1, 2), [1, 2]),
        ("STRUCT<x: INT, y: STRING>", (1, "a"), {"x": 1, "y": "a"}),
        ("STRUCT<x: INT, y: STRING>", {"y": "a"}, {"x": None, "y": "a"}),
    ],
)
def test_subclasses_and_numpy_scalars_are_converted(ddl: str, value: object, expected: object) -> None:
    assert one(ddl, value) == expected


def test_nan_and_negative_zero_are_preserved() -> None:
    assert math.isnan(one("DOUBLE", NAN))
    assert math.isnan(one("FLOAT", NAN))
    assert math.copysign(1, one("DOUBLE", -0.0)) == -1
    batch, _ = Converter(parse("c DOUBLE")).from_arrow(pd.DataFrame({"c": [NAN, 1.0]}), 0)
    assert math.isnan(batch.column(0)[0].as_py())


@pytest.mark.skipif(not hasattr(T, "TimeType"), reason="Spark 4.0 has no TIME")
def test_a_time_keeps_all_its_digits_or_is_a_bad_row() -> None:
    assert one("TIME", dt.time(1, 2, 3, 4)) == dt.time(1, 2, 3, 4)
    for value in (dt.time(1, 2, 3, 4), dt.time(1, tzinfo=UTC)):
        assert (
            bad_row_error(lambda value=value: Converter(parse("c TIME(3)")).from_rows([(value,)], 0)).field
            == "c"
        )


@dataclass
class Pair:
    b: str
    a: int


@dataclass
class Other:
    a: int
    c: str


Named = namedtuple("Named", "b a")
AB = parse("a INT, b STRING")


@pytest.mark.parametrize(
    "row",
    [
        (1, "x"),
        {"b": "x", "a": 1},
        Pair("x", 1),
        Named("x", 1),
        Row(b="x", a=1),
        Row("b", "a")("x", 1),
        Row(1, "x"),
    ],
)
def test_a_row_may_be_a_tuple_dict_dataclass_namedtuple_or_spark_row(row: object) -> None:
    for rows in ([row], [row] * 3, [row, (1, "x")], [{"a": 1, "b": "x"}, row, Pair("x", 1)]):
        assert Converter(AB).from_rows(rows, 0)[0].to_pylist() == [{"a": 1, "b": "x"}] * len(rows)
    nested = Converter(parse("s STRUCT<a: INT, b: STRING>, i INT")).from_rows([(row, 1), (None, 2)], 0)[0]
    assert nested.to_pylist() == [{"s": {"a": 1, "b": "x"}, "i": 1}, {"s": None, "i": 2}]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((1,), "the row has 1 value for 2 columns: a, b"),
        ((), "the row has 0 values for 2 columns: a, b"),
        ((1, 2, 3), "the row has 3 values for 2 columns: a, b"),
        ({"a": 1, "x": 1, "y": 2}, "unknown: 'x', 'y', for 2 columns: a, b"),
        ({"a": 1, 5: 1}, "unknown: 5, for 2 columns: a, b"),
        (Other(1, "x"), "the row has the fields a, c, for 2 columns: a, b"),
        (Row(a=1, c=2), "the row has the fields a, c, for 2 columns: a, b"),
        (Row(1), "the row has 1 value for 2 columns: a, b"),
        (
            "ab",
            "str is not a row; a row is a tuple, a dict, a dataclass, a namedtuple or a Row, with 2 columns",
        ),
        (None, "NoneType is not a row"),
        ([1, "x"], "list is not a row"),
        (Broken(), "Broken is not a row"),
    ],
)
def test_a_row_with_the_wrong_columns_is_a_bad_row(row: object, reason: str) -> None:
    error = bad_row_error(lambda: Converter(AB).from_rows([(1, "x"), row], 10))
    assert (error.number, error.field) == (11, None)
    assert reason in error.reason
    batch, bad = Converter(AB, "null").from_rows([(1, "x"), row, (2, "y")], 10)
    assert batch.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert [(entry.number, entry.reason) for entry in bad] == [(11, error.reason)]


def test_a_missing_key_is_null() -> None:
    assert Converter(AB).from_rows([{"a": 1}, {"b": "x"}, {}], 0)[0].to_pylist() == [
        {"a": 1, "b": None},
        {"a": None, "b": "x"},
        {"a": None, "b": None},
    ]
    assert (
        bad_row_error(lambda: Converter(parse("a INT NOT NULL, b INT")).from_rows([{"b": 1}], 0)).field == "a"
    )


def test_a_row_of_one_column_may_be_the_bare_value() -> None:
    assert Converter(parse("c STRING")).from_rows(["a", None, ("b",), {"c": "d"}], 0)[0].column(
        0
    ).to_pylist() == [
        "a",
        None,
        "b",
        "d",
    ]
    assert Converter(parse("c ARRAY<INT>")).from_rows([[1, 2], ([3],)], 0)[0].column(0).to_pylist() == [
        [1, 2],
        [3],
    ]
    assert "list does not fit" in bad_row_error(lambda: Converter(parse("c INT")).from_rows([[1]], 0)).reason


def test_an_empty_list_of_rows_is_an_empty_batch() -> None:
    for converter in (Converter(AB), Converter(parse("c MAP<INT, STRUCT<x: ARRAY<TIMESTAMP>>>"))):
        batch, bad = converter.from_rows([], 0)
        assert (batch.num_rows, batch.schema, bad) == (0, converter.arrow_schema, [])
        batch, bad = converter.from_arrow(batch, 0)
        assert (batch.num_rows, batch.schema, bad) == (0, converter.arrow_schema, [])


ROWS: list[object] = [(1, "x"), ("bad", "y"), (3, 4), (5,), ("bad", 6), (7, "z")]


def test_fail_raises_for_the_first_bad_row() -> None:
    for start, number, field in ((0, 1, "a"), (2, 2, "b"), (3, 3, None), (4, 4, "a")):
        error = bad_row_error(lambda start=start: Converter(AB).from_rows(ROWS[start:], start))
        assert (error.number, error.field) == (number, field)


def test_drop_leaves_bad_rows_out_and_reports_each_once() -> None:
    batch, bad = Converter(AB, "drop").from_rows(ROWS, 100)
    assert batch.to_pylist() == [{"a": 1, "b": "x"}, {"a": 7, "b": "z"}]
    assert [(error.number, error.field) for error in bad] == [(101, "a"), (102, "b"), (103, None), (104, "a")]


def test_null_replaces_only_the_invalid_fields() -> None:
    batch, bad = Converter(AB, "null").from_rows(ROWS, 100)
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        (1, "x"),
        (None, "y"),
        (3, None),
        (None, None),
        (7, "z"),
    ]
    fields = [(error.number, error.field) for error in bad]
    assert fields == [(101, "a"), (102, "b"), (103, None), (104, "a"), (104, "b")]


def test_null_drops_a_row_whose_invalid_field_is_not_null() -> None:
    schema = parse("a INT, b STRING NOT NULL, c STRUCT<x: INT NOT NULL>")
    rows: list[object] = [("bad", 1, None), ("bad", "b", {"x": None}), (1, "c", (1,))]
    batch, bad = Converter(schema, "null").from_rows(rows, 0)
    assert batch.to_pylist() == [{"a": None, "b": "b", "c": None}, {"a": 1, "b": "c", "c": {"x": 1}}]
    assert [(error.number, error.field) for error in bad] == [(0, "b"), (1, "a"), (1, "c.x")]


@pytest.mark.parametrize("policy", ["drop", "null"])
def test_invalid_values_in_tables_are_handled_as_in_rows(policy: str) -> None:
    values = {"a": [1, 300, None, -129], "b": ["x", None, "y", "z"]}
    by_rows = Converter(parse("a BYTE, b STRING NOT NULL"), policy).from_rows(
        list(zip(*values.values(), strict=True)), 5
    )
    for table in (pa.table(values), pa.RecordBatch.from_pydict(values)):
        batch, bad = Converter(parse("a BYTE, b STRING NOT NULL"), policy).from_arrow(table, 5)
        assert batch == by_rows[0]
        assert [str(error) for error in bad] == [str(error) for error in by_rows[1]]


def strings(offsets: list[int], data: bytes) -> pa.Array:
    """A string array of foreign memory: pyarrow looks at the first and the last offset only."""
    buffers = [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


NOT_VALID = {
    "bytes that are not UTF-8": strings([0, 1, 3, 4], b"a\xff\xfeb"),
    "an offset beyond the data": strings([0, 1, 10**9, 2], b"ab"),
    "a negative offset": strings([0, 1, -(2**31), 2], b"ab"),
    "offsets that go backwards": strings([0, 2, 1, 2], b"ab"),
}


@pytest.mark.parametrize("fault", NOT_VALID)  # not the arrays: to show one would crash
@pytest.mark.parametrize("kind", ["batch", "table", "chunks", "list", "struct"])
def test_arrow_data_that_is_not_valid_is_a_bad_row(fault: str, kind: str) -> None:
    column = NOT_VALID[fault]
    ids = pa.array([0, 1, 2], pa.int32())
    ddl = {"list": "ARRAY<STRING>", "struct": "STRUCT<x: STRING>"}.get(kind, "STRING")
    if kind == "list":
        column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), column)
    if kind == "struct":
        column = pa.StructArray.from_arrays([column], ["x"])
    table: Any = pa.RecordBatch.from_arrays([ids, column], ["i", "c"])
    if kind != "batch":
        table = pa.Table.from_batches([table])
    if kind == "chunks":
        table = pa.concat_tables([table, pa.table({"i": pa.array([3], pa.int32()), "c": ["z"]})])
    schema = parse(f"i INT, c {ddl}")
    error = bad_row_error(lambda: Converter(schema).from_arrow(table, 10))
    assert error.field == "c"
    assert "the Arrow data is not valid: " in error.reason
    batch, bad = Converter(schema, "drop").from_arrow(table, 10)
    numbers = {error.number for error in bad}
    assert len(numbers) in (
        (3,) if kind in ("list", "struct") else (1, 2)
    )  # of parts only the whole is checked
    assert batch.column("i").to_pylist() == [i for i in range(len(table)) if 10 + i not in numbers]
    batch.validate(full=True)
    batch, bad = Converter(schema, "null").from_arrow(table, 10)
    assert batch.column("i").to_pylist() == list(range(len(table)))
    assert [10 + i for i, value in enumerate(batch.column("c").to_pylist()) if value is None] == sorted(
        numbers
    )


def test_dictionary_and_list_offsets_that_lead_nowhere_are_bad_rows() -> None:
    indices = pa.array([0, 7], pa.int8())
    words = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)
    numbers = pa.Array.from_buffers(
        pa.list_(pa.int32()),
        2,
        [None, pa.array([0, 2, 1], pa.int32()).buffers()[1]],
        children=[pa.array([1, 2], pa.int32())],
    )
    for ddl, column in (("STRING", words), ("ARRAY<INT>", numbers)):
        batch, bad = Converter(parse(f"c {ddl}"), "drop").from_arrow(pa.table({"c": column}), 0)
        assert batch.num_rows == 1
        assert [error.number for error in bad] == [1]


def test_an_unknown_policy_is_an_error() -> None:
    with pytest.raises(ValueError, match="on_bad_row='skip' must be one of fail, drop, null"):
        Converter(AB, "skip")


def test_the_columns_of_a_table_are_matched_by_name() -> None:
    table = pa.table({"b": ["x"], "a": [1]})
    assert Converter(AB).from_arrow(table, 0)[0].to_pylist() == [{"a": 1, "b": "x"}]
    assert Converter(AB).from_arrow(table.drop_columns(["b"]), 0)[0].to_pylist() == [{"a": 1, "b": None}]
    assert (
        bad_row_error(
            lambda: Converter(parse("a INT, b STRING NOT NULL")).from_arrow(table.select(["a"]), 0)
        ).field
        == "b"
    )
    for wrong, reason in (
        (pa.table({"a": [1], "B": ["x"]}), "unknown: 'B', for 2 columns: a, b"),
        (pa.table([[1], [2]], names=["a", "a"]), "duplicate column: a, a"),
        (pd.DataFrame({"a": [1], 7: [2]}), "unknown: 7, for 2 columns: a, b"),
    ):
        error = bad_row_error(lambda wrong=wrong: Converter(AB).from_arrow(wrong, 3))
        assert (error.number, error.field) == (3, None)
        assert reason in error.reason
        batch, bad = Converter(AB, "drop").from_arrow(wrong, 3)
        assert (batch.num_rows, batch.schema, len(bad)) == (0, Converter(AB).arrow_schema, 1)


def test_a_batch_of_the_same_schema_is_not_copied() -> None:
    converter = Converter(parse("t TIMESTAMP, s STRING, l ARRAY<LONG>, d STRUCT<x: DOUBLE>"))
    batch, _ = converter.from_rows([(dt.datetime(2024, 1, 1, tzinfo=UTC), "abc", [1], (1.5,))] * 10, 0)
    again, _ = converter.from_arrow(batch, 0)
    assert again == batch
    for before, after in zip(batch.columns, again.columns, strict=True):
        assert before.buffers()[-1].address == after.buffers()[-1].address


def test_a_table_of_several_chunks_becomes_one_batch() -> None:
    table = pa.concat_tables([pa.table({"a": [1], "b": ["x"]}), pa.table({"a": [2], "b": ["y"]})])
    assert Converter(AB).from_arrow(table, 0)[0].to_pylist() == table.to_pylist()
    assert Converter(AB).from_arrow(table.slice(1), 0)[0].to_pylist() == [{"a": 2, "b": "y"}]


def test_dataframes_are_tables() -> None:
    frame = pd.DataFrame(
        {
            "s": ["x", None, NAN],
            "i": pd.array([1, None, 3], "Int64"),
            "t": pd.to_datetime(["2024-01-01", None, "2024-01-02"]).tz_localize("Europe/Berlin"),
            "c": pd.Categorical(["a", "b", "a"]),
        },
        index=[7, 8, 9],
    )
    batch, _ = Converter(parse("s STRING, i INT, t TIMESTAMP, c STRING")).from_arrow(frame, 0)
    assert batch.column("s").to_pylist() == ["x", None, None]
    assert batch.column("i").to_pylist() == [1, None, 3]
    assert batch.column("t").to_pylist()[:2] == [dt.datetime(2023, 12, 31, 23, tzinfo=UTC), None]
    assert batch.column("c").to_pylist() == ["a", "b", "a"]
    error = bad_row_error(lambda: Converter(parse("n INT")).from_arrow(pd.DataFrame({"n": [1, None]}), 0))
    assert "float does not fit" in error.reason


def test_is_table_is_true_for_arrow_and_pandas_tables_only() -> None:
    assert Converter.is_table(pa.table({"a": [1]}))
    assert Converter.is_table(pa.RecordBatch.from_pydict({"a": [1]}))
    assert Converter.is_table(pd.DataFrame())
    assert not any(map(Converter.is_table, [(1,), [1], {"a": 1}, None, "x", pd.Series([1])]))


def test_an_error_shows_a_short_value_even_if_its_repr_fails() -> None:
    for value in ("x" * 10**6, 10**5000, list(range(10**5)), Broken(), {"k": Broken()}):
        error = bad_row_error(lambda value=value: Converter(parse("c DATE")).from_rows([(value,)], 0))
        assert 0 < len(error.value) <= 80
    assert "Broken" in bad_row_error(lambda: Converter(parse("c DATE")).from_rows([(Broken(),)], 0)).value
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.number, again.field) == (str(error), error.number, error.field)


def test_an_exception_of_a_tzinfo_is_in_the_error() -> None:
    class Raises(dt.tzinfo):
        def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
            raise LookupError("no such zone")

    error = bad_row_error(
        lambda: Converter(parse("c TIMESTAMP")).from_rows([(dt.datetime(2024, 1, 1, tzinfo=Raises()),)], 0)
    )
    assert "LookupError: no such zone" in error.reason


def test_time_zones_may_be_mixed_in_one_column() -> None:
    zones = [UTC, BERLIN, dt.timezone(dt.timedelta(hours=-5, seconds=7)), ZoneInfo("UTC")]
    times = [
        dt.datetime(2024, 3, 31, 2, 30, 0, i, tzinfo=zone, fold=i % 2) for i in range(40) for zone in zones
    ]
    for shift in range(4):
        moved = times[shift:]
        batch, _ = Converter(parse("c TIMESTAMP")).from_rows([(time,) for time in moved], 0)
        assert batch.column(0).to_pylist() == [time.astimezone(UTC) for time in moved]


FULL = parse(
    "b BOOLEAN, i8 BYTE, i16 SHORT, i32 INT, i64 LONG NOT NULL, f FLOAT, d DOUBLE, dec DECIMAL(20, 5), "
    "s STRING, bin BINARY, day DATE, t TIMESTAMP, n TIMESTAMP_NTZ, span INTERVAL DAY TO SECOND, v VOID, "
    "a ARRAY<ARRAY<INT>>, m MAP<STRING, DOUBLE>, st STRUCT<x: LONG NOT NULL, y: ARRAY<STRUCT<z: STRING>>>"
)


def _ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_DECIMALS = st.decimals(-(10**14), 10**14, places=5)
_SPANS = st.timedeltas(dt.timedelta(days=-106751991), dt.timedelta(days=106751991))
_ZONED = st.datetimes(
    dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.sampled_from([UTC, BERLIN])
)
_NONE = st.none()
FULL_ROWS = st.tuples(
    st.booleans() | _NONE,
    _ints(8) | _NONE,
    _ints(16) | _NONE,
    _ints(32) | _NONE,
    _ints(64),
    st.floats(width=32, allow_nan=False) | _NONE,
    st.floats(allow_nan=False) | _NONE,
    _DECIMALS | _NONE,
    _TEXT | _NONE,
    st.binary(max_size=6) | _NONE,
    st.dates() | _NONE,
    _ZONED | _NONE,
    st.datetimes() | _NONE,
    _SPANS | _NONE,
    _NONE,
    st.lists(st.lists(_ints(32) | _NONE, max_size=3) | _NONE, max_size=3) | _NONE,
    st.dictionaries(_TEXT, st.floats(allow_nan=False) | _NONE, max_size=3) | _NONE,
    st.fixed_dictionaries(
        {
            "x": _ints(64),
            "y": st.lists(st.fixed_dictionaries({"z": _TEXT | _NONE}) | _NONE, max_size=2) | _NONE,
        }
    )
    | _NONE,
)


def _in_utc(value: object) -> object:
    """Python compares a time that daylight saving repeats as unequal to any in another time zone."""
    return value.astimezone(UTC) if isinstance(value, dt.datetime) and value.tzinfo else value


@settings(deadline=None)
@given(st.lists(FULL_ROWS, max_size=8))
def test_valid_rows_are_unchanged_from_rows_and_from_arrow(rows: list[Any]) -> None:
    converter = Converter(FULL)
    batch, bad = converter.from_rows(rows, 0)
    assert not bad
    batch.validate(full=True)
    back = [tuple(row.values()) for row in batch.to_pylist(maps_as_pydicts="strict")]
    assert back == [tuple(map(_in_utc, row)) for row in rows]
    assert converter.from_arrow(batch, 0)[0] == batch
    assert converter.from_arrow(pa.Table.from_batches([batch, batch]).slice(len(rows)), 0)[0] == batch


@settings(deadline=None)
@given(
    st.lists(st.tuples(_ints(9) | _TEXT | _NONE, _ints(9) | _NONE), max_size=12),
    st.sampled_from(["drop", "null"]),
)
def test_a_batch_has_the_valid_rows_and_every_other_row_has_an_error(rows: list[Any], policy: str) -> None:
    """Compares with a model that applies the policy to each row alone."""
    expected, wrong = [], []
    for number, (a, b) in enumerate(rows):
        fine = [value is None or (isinstance(value, int) and -128 <= value < 128) for value in (a, b)]
        if b is None or not fine[1] or (policy == "drop" and not fine[0]):
            wrong.append(number)
        else:
            wrong += [] if fine[0] else [number]
            expected.append((a if fine[0] else None, b))
    batch, bad = Converter(parse("a BYTE, b BYTE NOT NULL"), policy).from_rows(rows, 0)
    assert [tuple(row.values()) for row in batch.to_pylist()] == expected
    assert [error.number for error in bad] == wrong


def test_a_row_of_64_mb_is_converted() -> None:
    (batch, bad) = Converter(AB).from_rows([(1, "x" * 2**26)], 0)
    assert not bad
    assert len(batch.column(1)[0].as_py()) == 2**26


# The size of batches


def batch_of(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


def test_small_batches_are_joined_and_those_of_a_good_size_are_not_copied() -> None:
    large = batch_of(*range(100))
    small = batch_of(1), batch_of(2), batch_of(3)
    assert [batch is large for batch in resize([large, large], large.nbytes)] == [True, True]
    assert list(resize([*small, large, *small], large.nbytes)) == [
        batch_of(1, 2, 3),
        large,
        batch_of(1, 2, 3),
    ]
    assert list(resize(small, 16)) == [batch_of(1, 2), batch_of(3)]
    assert list(resize([], 16)) == []


def test_slices_of_a_large_batch_are_joined_by_their_own_size() -> None:
    large = batch_of(*range(1000))
    assert list(resize([large.slice(0, 2), large.slice(2, 3)], 100)) == [batch_of(*range(5))]


@given(
    st.lists(st.lists(st.text(max_size=20), max_size=10), max_size=10), st.integers(1, 200), st.integers(0, 3)
)
def test_resizing_keeps_all_rows_in_order_and_limits_the_size(
    columns: list[list[str]], max_bytes: int, start: int
) -> None:
    batches = [pa.record_batch({"s": pa.array(column, pa.string())}).slice(start) for column in columns]
    resized = list(resize(batches, max_bytes))
    assert [s for batch in resized for s in batch["s"].to_pylist()] == [
        s for column in columns for s in column[start:]
    ]
    assert all(batch.nbytes <= max_bytes or batch.num_rows == 1 for batch in resized)
