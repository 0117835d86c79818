"""`hw.BadRow`, which a source yields for a malformed record, and what the `onBadRow` option does with it.

Where a query is not needed the tests use the private `Converter`, which applies the option.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import BadRowError, explain
from headwater.rows.converter import Converter
from headwater.schema import struct_type

if TYPE_CHECKING:
    from headwater.testing import RunningStream

    Stream = Any  # a fixture that starts one

SCHEMA = "id LONG NOT NULL, text STRING"
ROWS: list[Any] = [(0, "a"), hw.BadRow(b"{", "no JSON"), hw.BadRow("x", "half", (2, None)), (3, "d")]


def converted(rows: list[Any], policy: str, schema: str = SCHEMA) -> tuple[list[Any], list[str]]:
    batch, errors = Converter(struct_type(schema), policy).from_rows(rows, 10)
    return [tuple(row.values()) for row in batch.to_pylist()], list(map(str, errors))


def test_fail_raises_with_the_number_the_value_and_the_reason() -> None:
    with pytest.raises(BadRowError) as caught:
        converted(ROWS, "fail")
    assert str(caught.value) == "row 11: no JSON (found: b'{')"
    assert (caught.value.number, caught.value.field, caught.value.reason) == (11, None, "no JSON")


def test_a_long_value_is_abbreviated() -> None:
    with pytest.raises(BadRowError) as caught:
        converted([hw.BadRow(b"x" * 10_000, "too long")], "fail")
    assert len(str(caught.value)) < 150


HOSTILE = "\x1b]0;title\x07 \x9b31m \u202egnp \u2066 \ud800\x00!"
ESCAPED = r"\x1b]0;title\x07 \x9b31m \u202egnp \u2066 \ud800\x00!"


class Titled:
    def __repr__(self) -> str:
        return HOSTILE


@pytest.mark.parametrize("value", [HOSTILE, [HOSTILE], Titled()], ids=["text", "list", "repr"])
def test_a_bad_row_is_shown_without_control_characters(value: Any) -> None:
    """Which could change the title or the colours of a terminal, or the direction of its text."""
    rows = [hw.BadRow(value, f"because {HOSTILE}")]
    with pytest.raises(BadRowError) as raised:
        converted(rows, "fail")
    assert f"because {ESCAPED}" in str(raised.value)
    assert str(raised.value).count(ESCAPED) == 2
    assert str(raised.value).isprintable()


def test_the_error_of_a_source_is_shown_without_control_characters() -> None:
    message = explain(ValueError(f"first {HOSTILE}\nsecond\t{HOSTILE}"), [])
    assert message.startswith(f"ValueError: first {ESCAPED}")
    assert f"\nsecond\t{ESCAPED}" in message
    assert message.replace("\n", "").replace("\t", "").isprintable()


def test_drop_leaves_a_bad_row_out_even_if_it_has_a_row() -> None:
    rows, errors = converted(ROWS, "drop")
    assert rows == [(0, "a"), (3, "d")]
    assert errors == ["row 11: no JSON (found: b'{')", "row 12: half (found: 'x')"]


def test_null_uses_the_row_of_a_bad_row() -> None:
    rows, errors = converted(ROWS, "null")
    assert rows == [(0, "a"), (2, None), (3, "d")]
    assert len(errors) == 2


@pytest.mark.parametrize(
    ("row", "kept", "message"),
    [
        ((7, 5), [(7, None)], "field 'text'"),
        ((None, "a"), [], "field 'id'"),
        ((7,), [], "1 value for 2 columns"),
        ({"id": 7}, [(7, None)], ""),
        (hw.BadRow(1, "again"), [], "stands for a whole row"),
    ],
)
def test_the_row_of_a_bad_row_is_validated_like_any_other(row: Any, kept: list[Any], message: str) -> None:
    rows, errors = converted([hw.BadRow("v", "r", row)], "null")
    assert rows == kept
    assert errors[0] == "row 10: r (found: 'v')"
    assert message in errors[-1]
    assert {error.partition(",")[0].partition(":")[0] for error in errors} == {"row 10"}


def test_errors_of_bad_rows_and_of_invalid_rows_are_in_row_order() -> None:
    rows, errors = converted([("x", "a"), hw.BadRow(1, "one"), 5, (3, "d")], "drop")
    assert rows == [(3, "d")]
    assert [error.partition(" ")[2][:2] for error in errors] == ["10", "11", "12"]
    with pytest.raises(BadRowError, match="row 10, field 'id'"):
        converted([("x", "a"), hw.BadRow(1, "one")], "fail")


@pytest.mark.parametrize("schema", ["value STRING, reason STRING, row STRING", "value INT", "v ARRAY<INT>"])
def test_a_bad_row_is_never_used_as_a_row_itself(schema: str) -> None:
    with pytest.raises(BadRowError, match="row 10: why"):
        converted([hw.BadRow("a", "why", "c")], "fail", schema)


def test_a_bad_row_inside_a_row_is_an_error() -> None:
    with pytest.raises(BadRowError, match=r"field 's'.*stands for a whole row"):
        converted([(hw.BadRow("a", "b"),)], "fail", "s STRUCT<value: STRING, reason: STRING, row: STRING>")


def test_without_spark_a_bad_row_is_yielded_as_it_is() -> None:
    @hw.source(SCHEMA)
    def bad_rows_plain() -> Iterator[Any]:
        yield ROWS[1]
        yield ROWS[:2]

    assert list(bad_rows_plain()) == [ROWS[1], ROWS[0], ROWS[1]]


@hw.source(SCHEMA)
def bad_rows_many() -> Iterator[Any]:
    yield 0, "a"
    yield hw.BadRow(b"{", "no JSON")
    yield [(2, "c"), hw.BadRow("x", "half", (3, None)), (4, "e")]
    yield pa.table({"id": [5], "text": ["f"]})


@hw.source(SCHEMA)
def bad_rows_resumable(since: int | None = None) -> Iterator[hw.At]:
    if since is None:
        yield hw.At(1, hw.BadRow("a", "one"))
        yield hw.At(2, [(2, "b"), hw.BadRow("c", "two", (3, None))])
        raise OSError("cut off")
    yield hw.At(since + 1, (since, "end"))


def bad_row_status(query: RunningStream) -> tuple[int, tuple[str, ...]]:
    (feed,) = query.feeds
    return feed.bad_rows, feed.bad_row_samples


def test_a_query_fails_with_the_bad_row_after_the_rows_before_it(stream: Stream) -> None:
    query = stream(bad_rows_many())
    failure = query.failure()
    assert "BadRowError: row 1: no JSON (found: b'{')" in failure
    assert "Set the option onBadRow to drop, null or keep" in failure


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        ("drop", [(0, "a"), (2, "c"), (4, "e"), (5, "f")]),
        ("null", [(0, "a"), (2, "c"), (3, None), (4, "e"), (5, "f")]),
    ],
)
def test_a_query_continues_and_counts_bad_rows(stream: Stream, policy: str, rows: list[Any]) -> None:
    query = stream(bad_rows_many(), on_bad_row=policy)
    assert query.to_end() == rows
    assert bad_row_status(query) == (2, ("row 1: no JSON (found: b'{')", "row 3: half (found: 'x')"))


def test_the_cursor_advances_past_bad_rows(stream: Stream) -> None:
    query = stream(bad_rows_resumable(), on_bad_row="null", on_error="restart")
    assert query.to_end() == [(2, "b"), (3, None), (2, "end")]
    assert query.feeds[0].cursor == 3
