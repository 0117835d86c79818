"""`onBadRow` = `keep`: what could not become a row is in the column `_bad_row`.

Where a query is not needed the tests use the private converter, which applies the option.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import headwater as hw
from headwater.decode import decoder
from headwater.rows.converter import Converter
from headwater.rows.kept import KeepingConverter, schema_with_bad_rows
from headwater.runtime import batching
from headwater.runtime.batching import BatchEncoder
from headwater.schema import struct_type

SCHEMA = "id LONG NOT NULL, text STRING"
ACCEPTS = f"BIGINT accepts an int from {-(2**63)} to {2**63 - 1}"
RECORDS = [b'{"id": 1, "text": "a"}', b"{oops", b'{"id": "x"}', b'{"text": "no id"}', b'{"id": 5}']


def kept(items: Any, first: int = 0, schema: str = SCHEMA) -> list[dict[str, Any]]:
    """The rows of what a source yields, a list or a table, numbered from `first`."""
    converter = KeepingConverter(struct_type(schema))
    convert = converter.from_rows if isinstance(items, list) else converter.from_arrow
    return convert(items, first)[0].to_pylist()


def bad(reason: str, position: int, data: bytes | None, **columns: None) -> dict[str, Any]:
    columns = columns or {"id": None, "text": None}
    return {**columns, "_bad_row": {"reason": reason, "position": position, "bytes": data}}


def good(id: int, text: str | None = None) -> dict[str, Any]:
    return {"id": id, "text": text, "_bad_row": None}


def test_a_record_that_does_not_decode_is_kept_as_it_came() -> None:
    first, oops, wrong, missing, last = kept(decoder("json", SCHEMA).rows(RECORDS), first=10)
    assert (first, last) == (good(1, "a"), good(5))
    for row, position, record in ((oops, 11, RECORDS[1]), (wrong, 12, RECORDS[2]), (missing, 13, RECORDS[3])):
        assert row == bad(row["_bad_row"]["reason"], position, record)
    assert oops["_bad_row"]["reason"].startswith("not valid JSON: ")
    assert wrong["_bad_row"]["reason"].startswith("field 'id': BIGINT accepts an integer from ")
    assert missing["_bad_row"]["reason"].startswith("field 'id': null in a NOT NULL column")


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("row", "reason", "data"),
    [
        (hw.BadRow("grüß", "r"), "r", "grüß".encode()),
        (hw.BadRow(bytearray(b"\xff"), "r"), "r", b"\xff"),
        (hw.BadRow({"a": 1}, "r", (7, "used by null only")), "r", b"{'a': 1}"),
        (hw.BadRow("\ud800", "\ud800"), r"\ud800", rb"\ud800"),
        (hw.BadRow(Unprintable(), "r"), "r", None),
        ((1,), "the row has 1 value for 2 columns: id, text", b"(1,)"),
        (
            (1, b"x"),
            "field 'text': bytes does not fit; STRING accepts a str without lone surrogates",
            b"(1, b'x')",
        ),
        ((None, "x"), f"field 'id': null in a NOT NULL column; {ACCEPTS}", b"(None, 'x')"),
        ({"id": 1, "other": 2}, "unknown: 'other', for 2 columns: id, text", b"{'id': 1, 'other': 2}"),
    ],
)
def test_the_bytes_of_a_row_are_its_text(row: Any, reason: str, data: bytes | None) -> None:
    assert kept([(0, "a"), row, (2, "c")]) == [good(0, "a"), bad(reason, 1, data), good(2, "c")]


def test_rows_of_tables_are_kept_too() -> None:
    table = pa.table({"id": [1, None, 3], "text": ["a", "b", None]})
    reason = f"field 'id': null in a NOT NULL column; {ACCEPTS}"
    assert kept(table) == [good(1, "a"), bad(reason, 1, b"{'id': None, 'text': 'b'}"), good(3)]
    frame = pandas.DataFrame({"id": [1, 2], "text": ["a", 5]})
    first, second = kept(frame)
    assert first == good(1, "a")
    assert second["_bad_row"]["bytes"] == b"{'id': 2, 'text': 5}"
    wrong = kept(pa.table({"id": [1], "wrong": [2]}))
    assert wrong == [bad("unknown: 'wrong', for 2 columns: id, text", 0, b"{'id': 1, 'wrong': 2}")]


def test_arrow_data_that_is_not_valid_is_not_read() -> None:
    damaged = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xff")]
    )
    (row,) = kept(pa.table({"id": [1], "text": damaged}))
    assert "is not valid" in row["_bad_row"]["reason"]
    assert (row["id"], row["text"], row["_bad_row"]["bytes"]) == (None, None, None)


def test_a_long_record_is_cut_and_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.rows.kept._MAX_BYTES", 4)
    (row,) = kept([hw.BadRow(b"123456", "r")])
    assert row["_bad_row"] == {
        "reason": "r; the first 4 of its 6 bytes are kept",
        "position": 0,
        "bytes": b"1234",
    }


def test_a_row_over_the_limit_is_kept_in_its_place_without_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "MAX_ROW_BYTES", 1000)
    encoder = BatchEncoder(KeepingConverter(struct_type(SCHEMA)))
    batches, error = encoder.encode([[(0, "a"), (1, "b" * 2000), (2, "c")]])
    assert error is None
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == [0, None, 2]
    assert rows[1]["_bad_row"]["position"] == 1
    assert rows[1]["_bad_row"]["bytes"] is None
    assert "the limit is 1,000" in rows[1]["_bad_row"]["reason"]
    assert encoder.bad_rows == 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(), st.text() | st.none()),
            st.builds(hw.BadRow, st.binary() | st.text(), st.text(), st.none() | st.just((1, "x"))),
            st.just((1, 2, 3)),
            st.just((None, "x")),
            st.dictionaries(st.sampled_from(["id", "text", "other"]), st.integers()),
        )
    ),
    st.integers(0, 1 << 40),
)
def test_as_many_rows_come_out_as_went_in_and_the_good_ones_are_those_of_drop(
    rows: list[Any], first: int
) -> None:
    batch, errors = KeepingConverter(struct_type(SCHEMA)).from_rows(rows, first)
    dropped, same_errors = Converter(struct_type(SCHEMA), "drop").from_rows(rows, first)
    batch.validate(full=True)
    out = batch.to_pylist()
    assert len(out) == len(rows)
    assert [
        {"id": row["id"], "text": row["text"]} for row in out if row["_bad_row"] is None
    ] == dropped.to_pylist()
    positions = [row["_bad_row"]["position"] for row in out if row["_bad_row"] is not None]
    assert positions == sorted({error.number for error in errors})
    assert list(map(str, errors)) == list(map(str, same_errors))


def test_every_column_is_nullable_and_the_name_must_be_free() -> None:
    schema = schema_with_bad_rows(
        struct_type("a INT NOT NULL COMMENT 'c', b STRUCT<x: INT NOT NULL>"), "keep"
    )
    assert schema["a"].nullable
    assert schema["a"].metadata == {"comment": "c"}
    assert schema["_bad_row"].dataType == struct_type("reason STRING, position LONG, bytes BINARY")
    with pytest.raises(
        ValueError, match=r"onBadRow=keep adds a column '_bad_row', and the source has .*'_Bad_Row'"
    ):
        schema_with_bad_rows(struct_type("_Bad_Row INT"), "keep")


# In queries


class Letters(hw.Source, name="dead_letters"):
    """Records of a decoder, and then the end."""

    def __init__(self, count: int = 5) -> None:
        self._decoder = decoder("json", SCHEMA)
        self._count = count

    @property
    def schema(self) -> Any:
        return self._decoder.schema

    def read(self, since: int | None) -> Iterator[Any]:
        for n in range(since or 0, self._count):
            yield hw.At(n + 1, self._decoder.rows([RECORDS[n % 5]]))


def test_a_query_routes_good_and_bad_rows(stream: Any) -> None:
    running = stream(Letters(), on_bad_row="keep")
    rows = running.rows(5)
    assert [row.id for row in rows] == [1, None, None, None, 5]
    assert [row._bad_row and bytes(row._bad_row.bytes) for row in rows] == [None, *RECORDS[1:4], None]
    assert [row._bad_row and row._bad_row.position for row in rows] == [None, 1, 2, 3, None]
    (feed,) = hw.feeds()
    assert feed.bad_rows == 3


def test_a_checkpoint_may_begin_to_keep_bad_rows_and_may_not_stop(stream: Any, tmp_path: Path) -> None:
    first = stream(Letters(1), checkpoint=tmp_path / "c")
    assert len(first.rows(1)) == 1
    first.stop()
    second = stream(Letters(3), checkpoint=tmp_path / "c", on_bad_row="keep")
    rows = second.until(lambda rows: sum(row._bad_row is not None for row in rows) == 2, "two bad rows")
    assert [row.id for row in rows if row._bad_row is None] in ([], [1])  # of the log, if it comes again
    second.stop()
    third = stream(Letters(6), checkpoint=tmp_path / "c", on_bad_row="drop")
    with pytest.raises(Exception, match="the column '_bad_row' is gone"):
        third.rows(1)


class Shelf(hw.PartitionedSource, name="dead_letter_shelf", schema=SCHEMA):
    def partitions(self) -> list[str]:
        return ["a"]

    def earliest(self, p: str) -> int:
        return 0

    def latest(self, p: str) -> int:
        return 3

    def read(self, p: str, start: int, end: int) -> Iterator[Any]:
        for n in range(start, end):
            yield hw.BadRow(b"x", "odd") if n % 2 else (n, p)


@pytest.mark.usefixtures("by_value")
def test_a_partitioned_source_keeps_bad_rows(stream: Any) -> None:
    rows = stream(Shelf(), on_bad_row="keep").rows(3)
    assert [(row.id, row._bad_row and bytes(row._bad_row.bytes)) for row in rows] == [
        (0, None),
        (None, b"x"),
        (2, None),
    ]


@hw.source("n INT, _bad_row STRING")
def has_bad_row() -> Iterator[Any]:
    yield 1, "x"


def test_a_source_with_a_column_of_that_name_is_refused(spark_session: SparkSession) -> None:
    with pytest.raises(Exception, match="source 'has_bad_row': onBadRow=keep adds a column '_bad_row'"):
        hw.stream(spark_session, has_bad_row(), on_bad_row="keep")
    assert hw.stream(spark_session, has_bad_row()).columns == ["n", "_bad_row"]


def test_dates_that_python_cannot_represent_are_kept() -> None:
    table = pa.table({"d": pa.array([10**7, 0], pa.int32()).cast(pa.date32())})
    first, second = kept(table, schema="d DATE")
    assert first["_bad_row"]["bytes"] is not None
    assert second == {"d": date(1970, 1, 1), "_bad_row": None}
