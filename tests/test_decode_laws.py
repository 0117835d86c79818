"""Laws of the JSON decoder: each record is decoded independently of the others."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import headwater as hw
from headwater.decode import decoder

SCHEMA = """i INT, l BIGINT, d DOUBLE, f FLOAT, s STRING, b BOOLEAN, t TIMESTAMP, e DATE, x BINARY,
    c DECIMAL(6, 2), a ARRAY<DOUBLE>, p ARRAY<STRUCT<e: DATE>>,
    o STRUCT<i: INT NOT NULL, t: TIMESTAMP, o: STRUCT<c: DECIMAL(6, 2)>>"""
NAMES = ["i", "l", "d", "f", "s", "b", "t", "e", "x", "c", "a", "o", "p", "z"]
FAST = decoder("json", SCHEMA)
SLOW = decoder("json", f"{SCHEMA}, m MAP<STRING, INT>")  # pyarrow cannot read maps, so Python reads all

NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-10_000, 10_000, places=2).map(str),
    st.sampled_from(
        [
            "-0",
            "-0.0",
            "1.0",
            "1e2",
            "1e-2",
            "1e999",
            "1e-999",
            "1e-999999999",
            "1234567.8",
            "12345.6",
            "NaN",
            "Inf",
            "-Infinity",
            "01",
            "1.",
        ]
    ),
    st.sampled_from(
        ["9" * 400, "9" * 30 + "e300", "2147483648", "9223372036854775808", "3.5e38", "1.0000000596046448"]
    ),
)
TEXTS = st.one_of(
    st.text(max_size=5),
    st.sampled_from(
        ["2024-05-31", "2024-02-30", "2024-05-31T12:30:00Z", "2024-05-31 12:30+0100", "2024-05-31T12:30"]
    ),
    st.sampled_from(["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59Z", "2024-05-31T12:30:00.1234567Z"]),
    st.sampled_from(
        ["aGk=", "aGk", "1.50", "+1", ".5", "1e3", "1e-999999999", "12345.6", " 1", ": NaN", "{", "}"]
    ),
)
STRINGS = st.one_of(
    st.builds(lambda text, plain: json.dumps(text, ensure_ascii=plain), TEXTS, st.booleans()),
    st.sampled_from([r'"\ud800"', r'"\udc00"', r'"\ud83d\ude00"', r'"\u0000"', '"a\nb"', '"open', r'"\x"']),
)
LEAVES = st.one_of(NUMBERS, STRINGS, st.sampled_from(["true", "false", "null", "nul", "[]", "{}"]))


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.tuples(st.sampled_from(NAMES), values).map(lambda field: f'"{field[0]}": {field[1]}')
    return st.lists(fields, max_size=4, unique_by=lambda field: field[:4]).map(
        lambda some: f"{{{', '.join(some)}}}"
    )


def nested(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return objects(values) | st.lists(values, max_size=3).map(lambda some: f"[{','.join(some)}]")


@st.composite
def mutilated(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> bytes:
    """A record with bytes inserted and removed."""
    record = draw(texts).encode("utf-8", "surrogatepass")
    place, rest = draw(st.integers(0, len(record))), draw(st.integers(0, 3))
    odd = [
        b"",
        b"{}",
        b"null",
        b"\0",
        b"\n",
        b"\xff",
        b"\xef\xbb\xbf",
        b"}",
        b"{",
        b",",
        b'"',
        b' "s": 1,',
        b"NaN",
    ]
    return record[:place] + draw(st.sampled_from(odd)) + record[place + rest :]


OBJECTS = objects(st.recursive(LEAVES, nested, max_leaves=5))
PLAIN = st.fixed_dictionaries(
    {},
    optional={
        "i": st.integers(-(2**31), 2**31 - 1),
        "d": st.floats(allow_nan=False, allow_infinity=False),
        "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "s": st.text(),
        "c": st.decimals(-9999, 9999, places=2).map(str),
        "t": st.datetimes().map(lambda time: f"{time.isoformat()}Z"),
        "e": st.dates().map(str),
        "x": st.sampled_from(["", "aGk="]),
        "a": st.lists(st.none() | st.integers(-5, 5)),
        "o": st.none() | st.fixed_dictionaries({"i": st.integers(0, 9)}, optional={"o": st.just({})}),
        "p": st.lists(st.none() | st.fixed_dictionaries({}, optional={"e": st.dates().map(str)})),
    },
).map(json.dumps)
GOOD = PLAIN.map(str.encode)
RECORDS = st.one_of(
    GOOD, OBJECTS.map(lambda text: text.encode("utf-8", "surrogatepass")), mutilated(PLAIN | OBJECTS)
)


def rows(decode: Any, records: list[bytes]) -> list[Any]:
    decoded = decode.rows(records)
    return [tuple(row.values()) for row in decoded.to_pylist()] if isinstance(decoded, pa.Table) else decoded


def row_reprs(decode: Any, records: list[bytes]) -> list[str]:
    """As strings, because 0.0 == -0.0."""
    return list(map(repr, rows(decode, records)))


@settings(max_examples=120, deadline=None)
@given(st.lists(RECORDS, max_size=5))
def test_a_record_is_decoded_the_same_alone_and_among_others(records: list[bytes]) -> None:
    alone = [row for record in records for row in row_reprs(FAST, [record])]
    assert row_reprs(FAST, records) == alone
    assert row_reprs(FAST, [*[b"{}"] * 40, *records, *[b"{}"] * 40])[40:-40] == alone


@settings(max_examples=120, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=5))
def test_pyarrow_and_python_decode_a_record_the_same(records: list[bytes]) -> None:
    for record in records:
        (slow,), (fast,) = rows(SLOW, [record]), rows(FAST, [record])
        is_bad = isinstance(slow, hw.BadRow)
        slow = hw.BadRow(slow.value, slow.reason, slow.row[:-1]) if is_bad else slow[:-1]
        assert repr(fast) == repr(slow)


@settings(max_examples=50, deadline=None)
@given(st.lists(GOOD, min_size=1, max_size=40))
def test_good_records_become_a_table(records: list[bytes]) -> None:
    table = FAST.rows(records)
    assert isinstance(table, pa.Table)
    assert table.num_rows == len(records)
    table.validate(full=True)
