"""The decoders `csv` and `msgpack`, and properties of decoders."""

from __future__ import annotations

import csv
import io
import sys
import types
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import headwater as hw
from headwater import references
from headwater.decode import decoder
from headwater.options import OptionError
from headwater.sources import sse

UTC = timezone.utc
TYPES = (
    "b BOOLEAN, i INT, l BIGINT, d DOUBLE, c DECIMAL(6, 2), s STRING, x BINARY, e DATE, t TIMESTAMP, "
    "n TIMESTAMP_NTZ"
)
ROW = (
    True,
    1,
    2,
    0.5,
    Decimal("9.90"),
    "a b",
    b"hi",
    date(2024, 5, 31),
    datetime(2024, 5, 31, 12, 30, tzinfo=UTC),
)


def rows(decode: str, schema: str, *records: bytes) -> list[Any]:
    """The rows as tuples, and BadRows."""
    decoded = decoder(decode, schema).rows(records)
    return decoded if isinstance(decoded, list) else [tuple(row.values()) for row in decoded.to_pylist()]


def reason(decode: str, schema: str, record: bytes) -> str:
    (row,) = rows(decode, schema, record)
    assert isinstance(row, hw.BadRow), row
    assert row.value == record
    return row.reason


# CSV


def test_a_line_is_a_row_with_the_types_of_the_schema() -> None:
    line = b"TRUE,1,2,0.5,9.90,a b,aGk=,2024-05-31,2024-05-31T12:30:00Z,2024-05-31 12:30:00\r\n"
    assert rows("csv", TYPES, line) == [(*ROW, datetime(2024, 5, 31, 12, 30))]


@pytest.mark.parametrize(
    ("decode", "record", "row"),
    [
        ("csv", b'"a,b","c ""d"""', ("a,b", 'c "d"')),
        ("csv", b" a ,b", (" a ", "b")),
        ("csv", b'"two\nlines",x', ("two\nlines", "x")),
        ("csv", b",x", (None, "x")),
        ("csv?sep=;", b"a,b;c", ("a,b", "c")),
        ("csv?sep=%09&quote='", b"'a\tb'\tc", ("a\tb", "c")),
        ("csv?escape=%5C", rb'"a\"b",c', ('a"b', "c")),
        ("csv?nullValue=NA", b"NA,", (None, "")),
        ("csv?NULLVALUE=-&sep=%26", b"-&x", (None, "x")),
    ],
)
def test_quotes_separators_and_nulls_are_as_the_properties_say(decode: str, record: bytes, row: Any) -> None:
    assert rows(decode, "s STRING, t STRING", record) == [row]


@pytest.mark.parametrize(
    ("schema", "record", "expected"),
    [
        ("i INT", b"x", "field 'i': INT accepts an integer from -2147483648 to 2147483647"),
        ("i INT", b"1.5", "field 'i': not an integer; INT accepts"),
        ("i INT", b"2147483648", "field 'i': out of range; INT accepts"),
        ("d DOUBLE", b"NaN", "field 'd': DOUBLE accepts a number"),
        ("b BOOLEAN", b"1", "field 'b': BOOLEAN accepts true or false"),
        ("t TIMESTAMP", b"2024-05-31T12:30:00", "field 't': TIMESTAMP accepts"),
        ("s STRING", b"a,b", "the line has 2 fields for 1 columns"),
        ("s STRING NOT NULL, t STRING", b",b", "field 's': null in a NOT NULL column"),
        ("s STRING", b'"a', "not valid CSV: unexpected end of data"),
        ("s STRING", b'"a"b', "not valid CSV: "),
        ("s STRING", b"a\nb", "not valid CSV: new-line character seen in unquoted field"),
        ("s STRING", b"\xff", "not valid UTF-8"),
        ("s STRING", b"x" * 131_073, "not valid CSV: field larger than field limit"),
    ],
)
def test_a_line_that_does_not_fit_is_bad(schema: str, record: bytes, expected: str) -> None:
    assert reason("csv", schema, record).startswith(expected)


def test_headers_and_blank_lines_are_no_rows_and_the_others_keep_their_metadata() -> None:
    lines = [b"id,name", b"1,a", b"", b"oops", b"id,name", b"2,b"]
    with_header = decoder("csv?header=true", "id INT, name STRING", beside="n INT")
    first, bad, last = with_header.rows(lines, n=[0, 1, 2, 3, 4, 5])
    assert (first, bad.value, bad.row, last) == ((1, "a", 1), b"oops", (None, None, 3), (2, "b", 5))
    assert isinstance(rows("csv", "id INT, name STRING", b"id,name")[0], hw.BadRow)


@pytest.mark.parametrize(
    ("decode", "schema", "message"),
    [
        ("csv?sepr=;", "i INT", r"decode='csv' has no option 'sepr'\. Did you mean 'sep'"),
        ("csv?sep=ab", "i INT", "property 'sep' of decode='csv' is 'ab', it must be one character"),
        ("csv?header=maybe", "i INT", "option 'header' of decode='csv' is 'maybe', it must be true or false"),
        ("csv?sep", "i INT", "decode='csv' has a part that is not NAME=VALUE"),
        ("csv", "a ARRAY<INT>", "column 'a' has type ARRAY<INT>, which CSV cannot represent"),
        ("csv", None, "decode='csv' needs a schema"),
        ("json?sep=;", "i INT", "decode='json' has no properties; found: sep"),
        ("msgpack?sep=;", "i INT", "decode='msgpack' has no option 'sep'"),
        ("xml", "i INT", "it must be text, binary, json, csv, msgpack, or a function"),
    ],
)
def test_a_wrong_property_is_said_when_the_decoder_is_made(
    decode: str, schema: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        decoder(decode, schema)


FIELDS = st.lists(
    st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]), min_size=1),
    min_size=3,
    max_size=3,
)


@given(FIELDS, st.sampled_from(",;\t|&"))
def test_what_pythons_writer_writes_is_read_back(fields: list[str], sep: str) -> None:
    line = io.StringIO()
    csv.writer(line, delimiter=sep).writerow(fields)
    decode = f"csv?sep=%{ord(sep):02X}"
    assert rows(decode, "a STRING, b STRING, c STRING", line.getvalue().encode()) == [tuple(fields)]


@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"1,a", b"2,b", b"", b"x,y"]), max_size=20))
def test_each_line_is_decoded_independently_of_the_others(records: list[bytes]) -> None:
    alone = [row for record in records for row in rows("csv", "i INT, s STRING", record)]
    assert rows("csv", "i INT, s STRING", *records) == alone


# MessagePack


def test_a_map_is_a_row_and_so_is_an_array() -> None:
    schema = "i INT, s STRING, x BINARY, t TIMESTAMP, a ARRAY<INT>, m MAP<STRING, INT>, "
    schema += "o STRUCT<p: INT, q: STRING>"
    at = datetime(2024, 5, 31, 12, 30, tzinfo=UTC)
    value = {
        "i": 1,
        "s": "a",
        "x": b"hi",
        "t": at,
        "a": [1, None],
        "m": {"k": 1},
        "o": {"p": 2, "z": 0},
        "z": 9,
    }
    expected = (1, "a", b"hi", at, [1, None], [("k", 1)], {"p": 2, "q": None})
    assert rows("msgpack", schema, msgpack.packb(value, datetime=True)) == [expected]
    array = [*list(value.values())[:6], {"p": 2}]
    assert rows("msgpack", schema, msgpack.packb(array, datetime=True)) == [expected]
    assert rows("msgpack", schema, msgpack.packb({})) == [(None,) * 7]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (msgpack.packb({"i": "x"}), "field 'i': str does not fit; INT accepts an int"),
        (msgpack.packb({"i": 2**31}), "field 'i': "),
        (msgpack.packb({"i": 1, "o": {"p": "x"}}), "field 'o.p': str does not fit"),
        (msgpack.packb([1]), "the array has 1 values for 2 columns"),
        (msgpack.packb(5), "valid MessagePack, but neither a map nor an array"),
        (b"", "not valid MessagePack"),
        (b"\xc1", "not valid MessagePack: FormatError"),
        (b"\x81\xa1i", "not valid MessagePack"),
        (msgpack.packb({"i": 1}) + b"\x00", "not valid MessagePack: ExtraData"),
        (b"\x81\xa1i\xa1\xff", "not valid MessagePack: UnicodeDecodeError"),
        (b"\x91" * 2000, "not valid MessagePack: StackError"),
        (b"\xdf\xff\xff\xff\xff", "not valid MessagePack"),
    ],
)
def test_a_record_that_is_not_messagepack_or_does_not_fit_is_bad(record: bytes, expected: str) -> None:
    assert reason("msgpack", "i INT, o STRUCT<p: INT>", record).startswith(expected)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from("isaoz"), VALUES, max_size=4).map(msgpack.packb)
        | st.binary(max_size=20)
    )
)
def test_each_messagepack_record_is_decoded_independently_of_the_others(records: list[bytes]) -> None:
    schema = "i INT, s STRING, a ARRAY<INT>, o STRUCT<p: INT NOT NULL>"
    alone = [row for record in records for row in rows("msgpack", schema, record)]
    assert repr(rows("msgpack", schema, *records)) == repr(alone)


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(hw.HeadwaterError) as raised:
        sse("https://example.org", decode="msgpack", schema="i INT")
    assert str(raised.value) == (
        "decode='msgpack' needs msgpack, which is not installed. Fix: pip install 'headwater[msgpack]'."
    )


# Properties as options


def words_of(record: bytes, sep: str = " ", least: int = 1) -> list[tuple[str]]:
    return [(word,) for word in record.decode().split(sep) if len(word) >= least]


@pytest.fixture
def parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "property_parsing", types.SimpleNamespace(words_of=words_of))  # type: ignore[arg-type]


@pytest.mark.usefixtures("parsing")
def test_a_function_gets_properties_as_arguments_of_their_types() -> None:
    assert rows("property_parsing:words_of", "w STRING", b"a bb") == [("a",), ("bb",)]
    assert rows("property_parsing:words_of?sep=-&least=2", "w STRING", b"a-bb") == [("bb",)]
    with pytest.raises(
        ValueError, match="'least' of decode='property_parsing:words_of' is 'x', it must be an integer"
    ):
        decoder("property_parsing:words_of?least=x", "w STRING")
    with pytest.raises(
        ValueError, match=r"has no option 'sepp'\. Did you mean 'sep'\? Its options are: [^.]*$"
    ):
        decoder("property_parsing:words_of?sepp=x", "w STRING")


class PropertyLines(hw.Source, name="property_lines"):
    def __init__(self, lines: list[str], decode: str = "csv", schema: str | None = None) -> None:
        self._lines = lines
        self._decoder = decoder(decode, schema)

    @property
    def schema(self) -> Any:
        return self._decoder.schema

    def read(self) -> Iterator[Any]:
        yield self._decoder.rows([line.encode() for line in self._lines])


def test_properties_are_options_of_the_source_and_parts_of_a_reference(spark_session: SparkSession) -> None:
    hw.attach(spark_session)
    reader = spark_session.readStream.format("property_lines").option("lines", '["1;a&b", "2;%"]')
    frame = reader.option("decode.sep", ";").option("decode.NullValue", "%").schema("i INT, s STRING").load()
    query = frame.writeStream.format("memory").queryName("properties").trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
        assert spark_session.table("properties").collect() == [(1, "a&b"), (2, None)]
    finally:
        query.stop()
    reference = "property_lines?lines=1|x&decode=csv&decode.sep=|&schema=i%20INT,%20s%20STRING"
    assert references.resolve(reference).configured()._bound["decode"] == "csv?sep=%7C"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("property_lines?lines=1&schema=i%20INT&decode.sepp=;", "has no option 'sepp'. Did you mean 'sep'"),
        (
            "property_lines?lines=1&schema=i%20INT&decode.sep=;&decode=csv?sep=,",
            "sets the option 'sep' twice",
        ),
        ("ref_none?x=1", "there is no source 'ref_none'"),
        ("random_alpha?len=1&decode.sep=;", "source 'random_alpha' has no option 'decode.sep'"),
    ],
)
def test_a_wrong_property_of_a_source_is_said(reference: str, message: str) -> None:
    with pytest.raises((OptionError, hw.HeadwaterError), match=message):
        references.resolve(reference).configured()
