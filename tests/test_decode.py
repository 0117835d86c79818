"""Decoders: the rows of each, and that each record is decoded independently of the others.

The tests of the path from a decoder to a batch use the private `Converter`, which every feed has.
"""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from growth import assert_linear

import headwater as hw
from headwater.decode import decoder
from headwater.errors import BadRowError
from headwater.rows.converter import Converter
from headwater.schema import struct_type

NOW = datetime(2024, 5, 31, 12, 30, tzinfo=timezone.utc)


def rows_of(decoded: Any) -> list[Any]:
    """Rows as tuples, and BadRows as they are."""
    return [tuple(row.values()) for row in decoded.to_pylist()] if isinstance(decoded, pa.Table) else decoded


def read(schema: str, record: str | bytes) -> Any:
    """The row of one record, or the BadRow."""
    data = record if isinstance(record, bytes) else record.encode("utf-8", "surrogatepass")
    (row,) = rows_of(decoder("json", schema).rows([data]))
    return row


# Creating a decoder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("xml",), "decode='xml' is unknown; it must be text, binary, json, csv, msgpack, or a function"),
        (("json",), "decode='json' needs a schema"),
        (("json:loads",), "decode='json:loads' needs a schema"),
        (("text", "a STRING"), "decode='text' takes no schema; its only column is 'data'"),
        (("binary", "a BINARY"), "decode='binary' takes no schema; its only column is 'data'"),
        (("json", "a INTT"), "schema: unknown type 'INTT'"),
        (("json", "a INT, A STRING"), "'A' appears twice"),
        (
            ("json", "a INTERVAL DAY TO SECOND"),
            "column 'a' has type INTERVAL DAY TO SECOND, which JSON cannot represent",
        ),
        (("json", "a STRUCT<b: ARRAY<VOID>>"), r"column 'a.b\[\]' has type VOID"),
        (
            ("json", "a MAP<INT, STRING>"),
            "column 'a' is a MAP with keys of type INT; JSON keys are STRING",
        ),
        (("json", "a VARIANT"), "VARIANT"),
        (("nowhere.at_all:f", "a INT"), "cannot be imported: ModuleNotFoundError"),
        (("json:nope", "a INT"), "cannot be imported: AttributeError"),
        (("json:decoder", "a INT"), "has type module; it must be a function"),
    ],
)
def test_invalid_arguments_fail_when_the_decoder_is_created(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decoder(*arguments)


def test_a_metadata_column_must_have_a_different_name() -> None:
    with pytest.raises(ValueError, match="duplicate column 'DATA'"):
        decoder("text", beside="DATA STRING")
    with pytest.raises(ValueError, match="beside: unknown type 'X'"):
        decoder("text", beside="a X")


def test_the_schema_has_the_decoded_columns_and_then_the_metadata_columns() -> None:
    decode = decoder("json", "a INT", beside="event STRING, arrived TIMESTAMP NOT NULL")
    assert decode.schema.simpleString() == "struct<a:int,event:string,arrived:timestamp>"
    assert not decode.schema["arrived"].nullable
    assert decoder("text").schema.simpleString() == "struct<data:string>"
    assert decoder("binary").schema.simpleString() == "struct<data:binary>"


# Text and binary


def test_text_is_utf_8_and_other_bytes_are_bad_rows() -> None:
    assert rows_of(decoder("text").rows(["é😀\0".encode(), b""])) == [("é😀\0",), ("",)]
    (good, bad) = decoder("text").rows([b"a", b"b\xff"])
    assert good == ("a",)
    assert bad == hw.BadRow(b"b\xff", "not valid UTF-8: invalid start byte at byte 1", (None,))
    assert decoder("text").rows(["\ud800".encode("utf-8", "surrogatepass")])[0].row == (None,)


def test_binary_accepts_every_byte() -> None:
    assert rows_of(decoder("binary").rows([b"\xff\0", b""])) == [(b"\xff\0",), (b"",)]


@pytest.mark.parametrize("decode", [decoder("text"), decoder("binary"), decoder("json", "a INT")])
def test_no_records_are_an_empty_table(decode: Any) -> None:
    table = decode.rows([])
    assert (table.num_rows, table.column_names) == (0, decode.schema.names)


# Metadata columns


def test_metadata_columns_are_a_list_or_one_value_for_all_records() -> None:
    decode = decoder(
        "json", "a INT", beside="id STRING, arrived TIMESTAMP NOT NULL, headers MAP<STRING, STRING>"
    )
    table = decode.rows([b'{"a": 1}', b"{}"], id=["x", None], arrived=NOW, headers={"k": "v"})
    assert isinstance(table, pa.Table)
    assert [row["id"] for row in table.to_pylist()] == ["x", None]
    assert table["arrived"].to_pylist() == [NOW, NOW]
    assert table["headers"].to_pylist() == [[("k", "v")]] * 2


def test_metadata_stays_with_its_record_when_other_records_are_bad() -> None:
    decode = decoder("json", "a INT", beside="id STRING, arrived TIMESTAMP")
    rows = decode.rows([b'{"a": 1}', b"[]", b'{"a": 3}'], id=["x", "y", "z"], arrived=NOW)
    assert rows == [
        (1, "x", NOW),
        hw.BadRow(b"[]", "valid JSON, but not an object", (None, "y", NOW)),
        (3, "z", NOW),
    ]


@pytest.mark.parametrize("records", [[b'{"a": 1}', b'{"a": 3}'], [b'{"a": 1}', b"[]"]])
@pytest.mark.parametrize(
    "arguments", [("text",), ("binary",), ("json", "a INT"), (f"{__name__}:as_dict", "word STRING")]
)
def test_records_and_metadata_columns_may_be_arrow_arrays(
    records: list[bytes], arguments: tuple[str, ...]
) -> None:
    decode = decoder(*arguments, beside="id STRING, arrived TIMESTAMP")
    expected = rows_of(decode.rows(records, id=["x", None], arrived=NOW))
    for kind in (pa.binary(), pa.string()):
        decoded = decode.rows(pa.array(records, kind), id=pa.array(["x", None]), arrived=pa.array([NOW, NOW]))
        assert rows_of(decoded) == expected


def test_an_arrow_array_of_bytes_need_not_be_valid_utf_8() -> None:
    records = [b"a", b"b\xff"]
    assert decoder("text").rows(pa.array(records)) == decoder("text").rows(records)
    assert rows_of(decoder("binary").rows(pa.array(records))) == [(b"a",), (b"b\xff",)]


def test_metadata_columns_are_required_and_validated() -> None:
    decode = decoder("text", beside="id INT NOT NULL")
    with pytest.raises(TypeError, match="expected metadata columns: id; got: none"):
        decode.rows([b"a"])
    with pytest.raises(TypeError, match="expected metadata columns: none; got: id"):
        decoder("text").rows([b"a"], id=1)
    with pytest.raises(ValueError, match="column 'id' has 2 values for 1 records"):
        decode.rows([b"a"], id=[1, 2])
    with pytest.raises(ValueError, match="column 'id' has 2 values for 1 records"):
        decode.rows([b"a"], id=pa.array([1, 2]))
    for wrong in ("x", None, ["x"], [None], pa.array(["x"]), pa.nulls(1)):
        with pytest.raises(ValueError, match="column 'id': "):
            decode.rows([b"a"], id=wrong)


# A custom function


def split_words(record: bytes) -> list[tuple[str, int]]:
    return [(word, len(word)) for word in record.decode().split()]


def as_dict(record: bytes) -> Any:
    return {"word": record.decode()} if record else None


def returns_bad_row(record: bytes) -> Any:
    return hw.BadRow("it", "I say so", ("x", 1) if record else None)


HERE = __name__


def test_a_function_returns_rows_or_raises() -> None:
    decode = decoder(f"{HERE}:split_words", "word STRING, length INT", beside="n INT")
    rows = decode.rows([b"a bc", b"", b"\xff"], n=[1, 2, 3])
    assert rows[:2] == [("a", 1, 1), ("bc", 2, 1)]
    assert rows[2].value == b"\xff"
    assert rows[2].reason.startswith("UnicodeDecodeError: ")
    assert rows[2].row == (None, None, 3)
    assert len(rows) == 3


def test_a_function_may_return_any_kind_of_row_and_bad_rows() -> None:
    decode = decoder(f"{HERE}:as_dict", "word STRING, length INT")
    assert decode.rows([b"a"]) == [("a", None)]
    assert "the function returned None" in decode.rows([b""])[0].reason
    (bad,) = decoder(f"{HERE}:as_dict", "length INT").rows([b"a"])
    assert "unknown: 'word'" in bad.reason
    decode = decoder(f"{HERE}:returns_bad_row", "word STRING, length INT", beside="n INT")
    assert decode.rows([b"", b"a"], n=5) == [
        hw.BadRow("it", "I say so", (None, None, 5)),
        hw.BadRow("it", "I say so", ("x", 1, 5)),
    ]


def test_a_list_is_a_value_where_the_only_column_is_an_array() -> None:
    assert decoder("json:loads", "a ARRAY<INT>").rows([b"[1, 2]"]) == [([1, 2],)]
    assert decoder("json:loads", "a INT").rows([b"[1, 2]"]) == [(1,), (2,)]


# JSON: types

GOOD: list[tuple[str, str, Any]] = [
    ("BOOLEAN", "true", True),
    ("TINYINT", "-128", -128),
    ("SMALLINT", "32767", 32767),
    ("INT", "-0", 0),
    ("BIGINT", "9223372036854775807", 2**63 - 1),
    ("DOUBLE", "5", 5.0),
    ("DOUBLE", "12345678901234567890", 12345678901234567890.0),
    ("DOUBLE", "1e-999", 0.0),
    ("FLOAT", "1.0000000596046448", 1.0),
    ("STRING", r'"\u00e9\ud83d\ude00\/\u0000"', "é😀/\0"),
    ("DECIMAL(5, 2)", "123.45", Decimal("123.45")),
    ("DECIMAL(5, 2)", '"123.450"', Decimal("123.45")),
    ("DECIMAL(5, 2)", "1.2345e2", Decimal("123.45")),
    ("DECIMAL(38, 0)", "9" * 38, Decimal("9" * 38)),
    ("DATE", '"2024-05-31"', date(2024, 5, 31)),
    ("TIMESTAMP", '"2024-05-31T12:30:00Z"', NOW),
    ("TIMESTAMP", '"2024-05-31 14:30+02:00"', NOW),
    ("TIMESTAMP", '"2024-05-31T11:30:00.000000-0100"', NOW),
    ("TIMESTAMP_NTZ", '"2024-05-31T12:30:00.5"', datetime(2024, 5, 31, 12, 30, 0, 500000)),
    ("BINARY", '"aGk="', b"hi"),
    ("ARRAY<INT>", "[1, null]", [1, None]),
    ("STRUCT<b: DATE, c: INT>", '{"b": "2024-05-31", "z": []}', {"b": date(2024, 5, 31), "c": None}),
    (
        "ARRAY<STRUCT<b: TIMESTAMP>>",
        '[{"b": "2024-05-31T12:30Z"}, null, {}]',
        [{"b": NOW}, None, {"b": None}],
    ),
]
BAD: list[tuple[str, str, str]] = [
    ("BOOLEAN", "1", "BOOLEAN accepts true or false"),
    ("BOOLEAN", '"true"', "BOOLEAN accepts true or false"),
    ("INT", '"5"', "INT accepts an integer from -2147483648 to 2147483647"),
    ("INT", "5.0", "not an integer; INT accepts"),
    ("INT", "true", "INT accepts"),
    ("INT", "2147483648", "out of range; INT accepts"),
    ("BIGINT", "9" * 5000, "out of range; BIGINT accepts"),
    ("DOUBLE", '"1.5"', "DOUBLE accepts a number"),
    ("DOUBLE", "1e999", "too large; DOUBLE accepts a number"),
    ("DOUBLE", "9" * 400, "too large; DOUBLE accepts a number"),
    ("FLOAT", "1e39", "FLOAT accepts a number"),
    ("STRING", "5", "STRING accepts a string"),
    ("STRING", r'"\ud800"', "STRING accepts a string without lone surrogates"),
    ("DECIMAL(5, 2)", "1234.5", "out of range; DECIMAL(5,2) accepts"),
    ("DECIMAL(5, 2)", "1.234", "more than 2 digits after the point"),
    ("DECIMAL(5, 2)", "1e999999999", "out of range"),
    ("DECIMAL(5, 2)", "1e-999999999", "more than 2 digits after the point"),
    ("DECIMAL(5, 2)", '"NaN"', "not a number"),
    ("DATE", '"2024-02-30"', "DATE accepts a date such as '2024-05-31'"),
    ("DATE", '"2024-05-31T00:00:00"', "DATE accepts"),
    ("DATE", "19874", "DATE accepts"),
    ("TIMESTAMP", '"2024-05-31T12:30:00"', "TIMESTAMP accepts a date and time with a time zone"),
    ("TIMESTAMP", '"2024-05-31"', "TIMESTAMP accepts"),
    ("TIMESTAMP", '"2024-05-31T12:30:00.1234567Z"', "with microseconds at most"),
    ("TIMESTAMP", '"0001-01-01T00:00:00+01:00"', "outside the years 1 to 9999"),
    ("TIMESTAMP", '"2024-05-31T23:59:60Z"', "TIMESTAMP accepts"),
    ("TIMESTAMP", "1717158600", "TIMESTAMP accepts"),
    ("TIMESTAMP_NTZ", '"2024-05-31T12:30:00Z"', "TIMESTAMP_NTZ accepts a date and time without a time zone"),
    ("BINARY", '"a"', "BINARY accepts a base64 string"),
    ("ARRAY<INT>", "{}", "ARRAY accepts a JSON array"),
    ("STRUCT<b: INT>", "[]", "STRUCT accepts a JSON object"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), GOOD)
def test_a_json_value_is_decoded_exactly(kind: str, value: str, expected: Any) -> None:
    assert repr(read(f"a {kind}", f'{{"a": {value}}}')) == repr((expected,)).replace(
        "datetime.timezone.utc", "zoneinfo.ZoneInfo(key='UTC')"
    )
    with_map = rows_of(decoder("json", f"a {kind}, m MAP<STRING, INT>").rows([f'{{"a": {value}}}'.encode()]))
    assert with_map == [(expected, None)]


@pytest.mark.parametrize(("kind", "value", "message"), BAD)
def test_an_invalid_json_value_is_a_bad_row_with_its_path(kind: str, value: str, message: str) -> None:
    bad = read(f"k INT, a {kind}", f'{{"k": 1, "a": {value}}}')
    assert isinstance(bad, hw.BadRow)
    assert bad.reason.startswith("field 'a': ")
    assert message in bad.reason
    assert bad.row == (1, None)
    deep = read(f"k INT, o STRUCT<p: ARRAY<{kind}>>", f'{{"k": 1, "o": {{"p": [null, {value}]}}}}')
    assert "field 'o.p[1]': " in deep.reason
    assert deep.row == (1, None)


def test_a_map_accepts_a_json_object() -> None:
    assert read("a MAP<STRING, DATE>", '{"a": {"x": "2024-05-31", "": null}}') == (
        [("x", date(2024, 5, 31)), ("", None)],
    )
    for value, message in [
        ("[]", "field 'a': MAP accepts a JSON object"),
        ('{"x": 1}', "field 'a['x']': DATE accepts".replace("'a['x']'", repr("a['x']"))),
        ('{"x": null, "x": null}', "the key 'x' occurs more than once"),
        (r'{"\ud800": null}', "STRING accepts"),
    ]:
        assert message in read("a MAP<STRING, DATE>", f'{{"a": {value}}}').reason
    rows = decoder("json", "a MAP<STRING, STRUCT<m: MAP<STRING, INT>>>").rows(
        [b'{"a": {"k": {"m": {"x": 1}}}}', b""]
    )
    assert rows[0] == ({"k": {"m": {"x": 1}}},)


def test_a_missing_field_is_null_and_an_unknown_field_is_ignored() -> None:
    assert read("a INT, b STRUCT<c: INT>", '{"z": [{}], "b": {"y": 1}}') == (None, {"c": None})
    assert read("a INT", '{"A": 1}') == (None,)


def test_null_in_a_not_null_field_is_a_bad_row() -> None:
    schema = "k INT, a INT NOT NULL, o STRUCT<b: INT NOT NULL>"
    assert read(schema, '{"a": 1}') == (None, 1, None)
    assert "field 'a': null in a NOT NULL column" in read(schema, '{"k": 5}').reason
    bad = read(schema, '{"k": 5, "a": 1, "o": {}}')
    assert "field 'o.b': null" in bad.reason
    assert bad.row == (5, 1, None)


def test_the_row_of_a_bad_record_has_nulls_for_its_invalid_fields_only() -> None:
    bad = read("a INT, b STRING, c DATE", '{"a": "x", "b": "kept", "c": 1}')
    assert bad.row == (None, "kept", None)
    assert "field 'a': " in bad.reason
    assert "field 'c': " in bad.reason


# JSON: records

NO_OBJECT: list[tuple[bytes, str]] = [
    (b"", "the record is blank"),
    (b" \r\n", "the record is blank"),
    (b"null", "valid JSON, but not an object"),
    (b"5", "not an object"),
    (b'[{"a": 1}]', "not an object"),
    (b'{"a": 1}{"a": 2}', "not valid JSON: Extra data at character 8"),
    (b'{"a": 1}\n{"a": 2}', "not valid JSON"),
    (b'{"a": 1},{"a": 2}', "not valid JSON"),
    (b'{"a": 1} null {"a": 2}', "not valid JSON"),
    (b'{"a": 1', "not valid JSON"),
    (b'{"a": 1}}', "not valid JSON"),
    (b'{"a": {"a": 1}', "not valid JSON"),
    (b'{"a": 1,}', "not valid JSON"),
    (b'{"a": 01}', "not valid JSON"),
    (b'{"z": NaN}', "not valid JSON: NaN is not a number"),
    (b'{"z": [-Infinity]}', "not valid JSON: -Infinity is not a number"),
    (b'{"z": Inf}', "not valid JSON"),
    (b'{"z": [1,-NaN]}', "not valid JSON"),
    (b'{"a": 1}\0}', "not valid JSON"),
    (b'{"a": 1}{}\0}', "not valid JSON"),
    (b'\xef\xbb\xbf{"a": 1}', "the record begins with a byte order mark"),
    (b'{"z": "\xff"}', "not valid UTF-8: invalid start byte at byte 7"),
    (b'{"z": "\xed\xa0\x80"}', "not valid UTF-8"),
    (b'{"z": "a\nb"}', "not valid JSON: Invalid control character"),
    (b'{"z": "}', "not valid JSON: Unterminated string"),
    (b'{"z": ' + b"[" * 500 + b"]" * 500 + b"}", "nested more than 500 levels deep"),
    (b'{"z": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested more than 500 levels deep"),
    (b'{"a": 1, "a": 1}', "field 'a': the field occurs more than once"),
]
ONE_OBJECT = [
    b'{"a": 1}',
    b' {"a":\r\n 1}\t\n',
    b'{"z": 1, "z": 2, "a": 1}',
    b'{"z": "NaN, Inf: Infinity, \\ud800", "a": 1}',
    b'{"z": ":NaN", "a": 1}',
    b'{"z": ' + b"[" * 499 + b"]" * 499 + b', "a": 1}',
    b'{"z": "' + b"[" * 2000 + b'", "a": 1}',
    b'{"z": ' + b"9" * 5000 + b', "a": 1}',
    b'{"z": 1e99999, "a": 1}',
    b'{"\\u0061": 1}',
]


@pytest.mark.parametrize(("record", "message"), NO_OBJECT)
def test_a_record_that_is_not_one_json_object_is_a_bad_row(record: bytes, message: str) -> None:
    bad = read("a INT", record)
    assert message in bad.reason
    assert bad.row == (None,)


@pytest.mark.parametrize("record", ONE_OBJECT)
def test_a_record_that_is_one_json_object_is_decoded(record: bytes) -> None:
    assert read("a INT", record) == (1,)


def test_records_that_are_valid_json_only_together_are_bad_rows() -> None:
    pairs = [(b'{"a": "}', b'{"b": "}'), (b'{"a": {"b": 1}', b'{"c": 1}}'), (b'{"a": [{}', b"{}]}")]
    pairs += [(b'{"a": 1}{"a": 2}', b" "), (b'{"a":1}{"a":2}\0}', b'{"a": 3}'), (b'{"a": 1', b"}")]
    for pair in pairs:
        assert any(isinstance(row, hw.BadRow) for row in decoder("json", "a INT").rows(pair))
        alone = [read("a INT", record) for record in pair]
        assert rows_of(decoder("json", "a INT").rows(pair)) == alone


def test_bad_records_among_thousands_do_not_affect_the_others() -> None:
    records = [b'{"a": %d}' % n for n in range(10_000)]
    wrong = {0: b"", 17: b"null", 4999: b'{"a": "x"}', 5000: b"{}{}", 9999: b'{"a": 1'}
    for place, record in wrong.items():
        records[place] = record
    rows = decoder("json", "a INT").rows(records)
    assert [place for place, row in enumerate(rows) if isinstance(row, hw.BadRow)] == list(wrong)
    assert all(row == (n,) for n, row in enumerate(rows) if n not in wrong)


def test_more_records_than_one_pyarrow_call_reads_become_one_table() -> None:
    records = [b'{"a": %d}' % n for n in range(120_000)]
    table = decoder("json", "a INT").rows(records)
    assert table["a"].to_pylist() == list(range(120_000))


def test_records_of_many_megabytes_are_decoded() -> None:
    long = "x" * (20 << 20)
    table = decoder("json", "a STRING").rows([json.dumps({"a": long}).encode()] * 3)
    assert [len(text) for text in table["a"].to_pylist()] == [len(long)] * 3


@pytest.mark.parametrize("sizes", [[33], [33, 1, 33], [1, 33, 1], [40, 40, 40]])
def test_a_record_of_more_than_32_megabytes_is_decoded_once(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a byte for each kilobyte: the limit of one pyarrow call is set to 32 KB."""
    monkeypatch.setattr("headwater.decode.json._GROUP_BYTES", 32 << 10)
    values = ["x" * (size << 10) for size in sizes]
    table = decoder("json", "s STRING").rows([json.dumps({"s": value}).encode() for value in values])
    assert table.column("s").to_pylist() == values


HOSTILE: dict[str, Any] = {
    "an unclosed string of escaped quotes": lambda n: b'{"s": "' + b"[" * 600 + b'\\"' * n,
    "an unclosed string of escaped brackets": lambda n: b'{"s": "' + b'\\"[{' * n,
    "a string that ends with a backslash": lambda n: b'{"s": "' + b"[{" * n + b"\\",
    "quotes": lambda n: b"{" + b'"' * n + b"[" * 600,
    "open brackets": lambda n: b"[" * n,
    "open objects": lambda n: b'{"s":' * n + b"}",
    "brackets in a string": lambda n: b'{"s": "' + b"[{" * n + b'"}',
    "duplicate names": lambda n: b"{" + b",".join(b'"%d":1' % (i // 2) for i in range(n)) + b"}",
    "a decimal that does not end": lambda n: b'{"d": "' + b"1" * n + b'x"}',
    "a decimal with many points": lambda n: b'{"d": "' + b"1." * n + b'"}',
    "a number of many digits": lambda n: b'{"f": ' + b"1" * n + b".5e-7}",
    "exponents": lambda n: b'{"z": "' + b":1e" * n + b'"}',
    "a time that does not end": lambda n: b'{"t": "' + b"2024-05-31T" * n + b'"}',
    "escaped surrogates": lambda n: b'{"s": "' + rb"\ud800" * n + b'"}',
}


@pytest.mark.parametrize("record", HOSTILE)
@pytest.mark.parametrize(
    "schema", ["s STRING, f DOUBLE", "s STRING, d DECIMAL(8, 2), t TIMESTAMP, m MAP<STRING, INT>"]
)
def test_a_record_takes_time_that_grows_with_its_size(record: str, schema: str) -> None:
    records = decoder("json", schema)
    assert_linear(lambda size: records.rows([HOSTILE[record](size)]), 5_000)


@pytest.mark.parametrize(
    ("levels", "in_string", "is_deep"),
    [(500, "", False), (501, "", True), (499, r"\\[\"[{", False), (501, r"\\", True)],
)
def test_brackets_count_as_levels_only_outside_of_strings(levels: int, in_string: str, is_deep: bool) -> None:
    strings = f'"{in_string}",' * 600
    text = f'{{"a": [{strings} "[[[["], "n": 7, "z": {"[" * (levels - 1)}{"]" * (levels - 1)}}}'
    (row,) = _rows(decoder("json", "n INT").rows([text.encode()]))
    assert isinstance(row, hw.BadRow) is is_deep
    assert not is_deep or "nested more than 500 levels deep" in row.reason


def _rows(rows: Any) -> list[Any]:
    return rows if isinstance(rows, list) else list(rows.to_pylist())


def test_input_that_crashes_pyarrow_does_not_reach_it() -> None:
    """pyarrow crashes on the first of these, and reads another number in the last."""
    decode = decoder("json", "a DECIMAL(38, 38), b DECIMAL(5, 2)")
    for record in [
        b"null",
        b'null {"b": 1}',
        b'{"b": 1e-999999999}',
        b'{"b": "0e-999999999"}',
        rb'{"b": "1\u0065-999999999"}',
        b'{"a": 2147483648}',
    ]:
        for records in ([record], [record, b"{}"], [b"{}", record]):
            assert any(isinstance(row, hw.BadRow) for row in decode.rows(records)) is (b'"0e' not in record)


# From a decoder to a batch

NESTED = "t TIMESTAMP, a ARRAY<STRUCT<b: INT>>, m MAP<STRING, STRING>"
NESTED_RECORD = b'{"t": "2024-05-31T12:30:00Z", "a": [{"b": 1}, null], "m": {"k": "v"}}'


def addresses(array: pa.Array) -> list[int | None]:
    return [None if buffer is None else buffer.address for buffer in array.buffers()]


@pytest.mark.parametrize("beside", [None, "id STRING NOT NULL, headers MAP<STRING, STRING>"])
@pytest.mark.parametrize(
    "arguments", [("text",), ("binary",), ("json", "t TIMESTAMP, a ARRAY<STRUCT<b: INT>>"), ("json", NESTED)]
)
def test_a_table_of_a_decoder_becomes_a_batch_without_a_copy(
    arguments: tuple[str, ...], beside: str | None
) -> None:
    decode = decoder(*arguments, beside=beside)
    metadata = {} if beside is None else {"id": ["x", "y"], "headers": {"k": "v"}}
    table = decode.rows([NESTED_RECORD, b"{}"], **metadata)
    converter = Converter(decoder(*arguments, beside=beside).schema)  # equal, but another object
    batch, bad = converter.from_arrow(table, 0)
    assert (batch.schema, bad) == (converter.arrow_schema, [])
    batch.validate(full=True)
    assert batch.to_pylist() == table.to_pylist()
    for before, after in zip(table.columns, batch.columns, strict=True):
        assert addresses(before.chunk(0)) == addresses(after)


def test_a_table_of_no_records_and_one_of_several_chunks_become_a_batch() -> None:
    decode = decoder("json", "a INT")
    converter = Converter(decode.schema)
    assert converter.from_arrow(decode.rows([]), 0)[0].num_rows == 0
    table = decode.rows([b'{"a": %d}' % n for n in range(20_000)])
    assert table["a"].num_chunks > 1
    assert converter.from_arrow(table, 0)[0].column(0).to_pylist() == list(range(20_000))


def test_a_table_that_an_author_derives_from_that_of_a_decoder_is_validated() -> None:
    decode = decoder("json", "t TIMESTAMP")
    converter = Converter(decode.schema)
    table = decode.rows([b"{}"])
    out_of_range = pa.array([2**60], pa.timestamp("us", "UTC"))
    derived = table.set_column(0, table.schema.field(0), out_of_range)
    assert derived.schema == table.schema
    with pytest.raises(BadRowError, match="in the years 1 to 9999 of UTC"):
        converter.from_arrow(derived, 0)


def test_a_table_of_a_decoder_is_validated_against_another_schema() -> None:
    table = decoder("json", "a INT, t TIMESTAMP").rows([b'{"a": 300}'])
    for schema, message in [
        ("a BYTE, t TIMESTAMP", "TINYINT accepts an int from -128 to 127"),
        ("a INT, t TIMESTAMP NOT NULL", "null in a NOT NULL column"),
        ("a INT", "unknown: 't'"),
    ]:
        with pytest.raises(BadRowError, match=message):
            Converter(struct_type(schema)).from_arrow(table, 0)


def test_spark_types_with_the_same_arrow_type_are_different_schemas() -> None:
    table = decoder("text", beside="d INTERVAL DAY TO SECOND").rows([b"a"], d=timedelta(hours=1))
    converter = Converter(struct_type("data STRING, d INTERVAL DAY"))
    assert table.schema == converter.arrow_schema
    with pytest.raises(BadRowError, match="finer than the column"):
        converter.from_arrow(table, 0)
