"""Partitioned sources as authors write them, without Spark: what is checked, and which rows they yield.

Private modules are imported to validate keys, offsets and start positions without a session.
"""

from __future__ import annotations

import asyncio
import doctest
import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headwater as hw
from headwater import registry
from headwater.cli.peek import first_rows
from headwater.definition import schema_of_source
from headwater.reading import validate_offset, validate_partitions
from headwater.spark.stream import _encode_start


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test defines is gone after it, and no Spark hears of it."""
    monkeypatch.setattr(registry, "_sources", {})
    monkeypatch.setattr(registry, "_listeners", [])


def shelves() -> Any:
    class Shelves(hw.PartitionedSource, name="shelves", schema="shelf STRING, number LONG"):
        """Books by number."""

        closed = 0

        def __init__(self, prefix: str = "", token: hw.Secret | None = None) -> None:
            self.prefix = prefix

        def partitions(self) -> list[str]:
            return ["a", "b"]

        def earliest(self, p: str) -> int:
            return 1

        def latest(self, p: str) -> int:
            return {"a": 3, "b": 2}[p]

        def read(self, p: str, start: int, end: int) -> Iterator[Any]:
            for number in range(start, end):
                yield self.prefix + p, number

        def close(self) -> None:
            Shelves.closed += 1

    return Shelves


def body(**changed: Any) -> dict[str, Any]:
    """The methods of a source that is as it should be, but for those given."""
    methods = {
        "partitions": lambda self: ["a"],
        "earliest": lambda self, p: 0,
        "latest": lambda self, p: 2,
        "read": lambda self, p, start, end: iter(range(start, end)),
    }
    return {name: value for name, value in {**methods, **changed}.items() if value is not None}


def define(**changed: Any) -> Any:
    kind: Any = type(hw.PartitionedSource)
    return kind("Made", (hw.PartitionedSource,), body(**changed), name="made", schema="n LONG")


# Iterating


def test_all_partitions_are_read_one_after_the_other_from_earliest_to_latest() -> None:
    cls = shelves()
    assert list(cls()) == [("a", 1), ("a", 2), ("b", 1)]
    assert list(cls(prefix="x")) == [("xa", 1), ("xa", 2), ("xb", 1)]
    assert cls.closed == 2


def test_a_partitioned_source_is_a_source_and_a_value() -> None:
    cls = shelves()
    assert isinstance(cls(), hw.Source)
    assert cls(prefix="x") == cls("x") != cls()
    assert repr(cls("x", hw.Secret("hush"))) == "shelves(prefix='x', token=***)"
    (found,) = [found for found in hw.registered() if found.name == "shelves"]
    assert (found.partitioned, found.resumable, found.doc) == (True, False, "Books by number.")
    assert [option.name for option in found.options] == ["prefix", "token"]


def test_ends_are_fixed_at_the_start_and_an_empty_partition_is_not_read() -> None:
    ends = {"a": 2, "b": 3, "c": 5}

    class Growing(hw.PartitionedSource, name="growing", schema="n LONG"):
        def partitions(self) -> list[str]:
            return list(ends)

        def earliest(self, p: str) -> int:
            return 2

        def latest(self, p: str) -> int:
            return ends[p]

        def read(self, p: str, start: int, end: int) -> Iterator[int]:
            assert p != "a"
            ends.update(b=100, c=100)
            yield from range(start, end)

    assert list(Growing()) == [2, 2, 3, 4]


def test_rows_may_be_tables_lists_and_dataclasses_and_the_annotation_of_read_gives_the_schema() -> None:
    @dataclass
    class Book:
        title: str
        pages: int | None

    globals()["Book"] = Book  # where the annotation is looked for

    class Books(hw.PartitionedSource, name="books"):
        def partitions(self) -> tuple[int, ...]:
            return (0, 1, 2)

        def earliest(self, p: int) -> int:
            return 0

        def latest(self, p: int) -> int:
            return 2

        def read(self, p: int, start: int, end: int) -> Iterator[Book]:
            if p == 0:
                yield Book("x", 1)
            elif p == 1:
                yield pa.table({"title": ["y", "z"], "pages": [2, None]})  # type: ignore[misc]
            else:
                yield [("w", 3)]  # type: ignore[misc]

    assert schema_of_source(Books()).simpleString() == "struct<title:string,pages:bigint>"
    rows = [Book("x", 1), {"title": "y", "pages": 2}, {"title": "z", "pages": None}, ("w", 3)]
    assert list(Books()) == rows
    assert list(first_rows(Books(), 9, bytes.hex)) == [["x", 1], ["y", 2], ["z", None], ["w", 3]]


def test_async_code_can_iterate_a_partitioned_source() -> None:
    cls = shelves()

    async def rows() -> list[Any]:
        return [row async for row in cls()]

    assert asyncio.run(rows()) == [("a", 1), ("a", 2), ("b", 1)]


def test_a_row_with_a_cursor_is_an_error() -> None:
    made = define(read=lambda self, p, start, end: iter([hw.At(1, 1)]))
    with pytest.raises(TypeError, match=r"^a partitioned source yields rows, not hw\.At"):
        list(made())


def test_what_read_returns_must_be_rows() -> None:
    with pytest.raises(
        TypeError, match=r"^read of made\(\) returned 7 of type int, not rows: make it a generator"
    ):
        list(define(read=lambda self, p, start, end: 7)())


# Checks at definition


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("partitions", "partitions(self): it returns the keys of all partitions"),
        ("earliest", "earliest(self, p): it returns the first offset of a partition that can still be read"),
        ("latest", "latest(self, p): it returns one past the last offset of a partition"),
        (
            "read",
            "read(self, p, start, end): a generator that yields the rows of a partition with offsets "
            "start <= o < end",
        ),
    ],
)
def test_the_error_for_a_missing_method_names_it_and_its_purpose(missing: str, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        define(**{missing: None})
    assert str(caught.value) == f"partitioned source 'made' has no method {message}"


@pytest.mark.parametrize(
    ("wrong", "is_now", "called"),
    [
        ({"read": lambda self, since: 1}, "read(self, since)", "read(self, p, start, end)"),
        (
            {"read": lambda self, p, start, end, x: 1},
            "read(self, p, start, end, x)",
            "read(self, p, start, end)",
        ),
        ({"partitions": lambda self, x: 1}, "partitions(self, x)", "partitions(self)"),
        ({"latest": lambda self: 1}, "latest(self)", "latest(self, p)"),
        ({"at": lambda self, p: 1}, "at(self, p)", "at(self, p, timestamp)"),
        ({"after": lambda self, p: 1}, "after(self, p)", "after(self, p, start, rows)"),
    ],
)
def test_other_parameters_are_an_error(wrong: dict[str, Any], is_now: str, called: str) -> None:
    with pytest.raises(TypeError) as caught:
        define(**wrong)
    (name,) = wrong
    assert str(caught.value) == (
        f"{name} of partitioned source 'made' is defined as {is_now}; it is called as {called}, and options "
        "are parameters of __init__"
    )


def test_only_the_number_of_parameters_counts_not_their_names() -> None:
    define(
        read=lambda self, shard, first, stop, more=1: iter(()),
        latest=staticmethod(lambda p: 1),
        earliest=classmethod(lambda cls, p: 1),
        partitions=lambda *args: [],
    )


def test_async_methods_are_an_error() -> None:
    async def read(self: Any, p: Any, start: int, end: int) -> Any:
        yield 1

    async def latest(self: Any, p: Any) -> int:
        return 1

    for wrong in ({"read": read}, {"latest": latest}):
        (name,) = wrong
        with pytest.raises(TypeError, match=f"^{name} of partitioned source 'made' is async"):
            define(**wrong)


@pytest.mark.parametrize("hook", ["on_start", "on_failure", "on_stop", "ack"])
def test_a_method_that_only_feeds_call_is_an_error(hook: str) -> None:
    with pytest.raises(TypeError, match=f"has a method {hook}, which only a source with a feed can have"):
        define(**{hook: lambda self, *args: None})


def test_a_base_class_without_a_name_is_not_checked_and_cannot_be_instantiated() -> None:
    class Base(hw.PartitionedSource, schema="n LONG"):
        def partitions(self) -> list[int]:
            return [0]

    made: Any = Base
    with pytest.raises(TypeError, match="abstract"):
        made()

    class Whole(Base, name="whole"):
        def earliest(self, p: int) -> int:
            return 0

        def latest(self, p: int) -> int:
            return 1

        def read(self, p: int, start: int, end: int) -> Iterator[int]:
            yield 5

    assert list(Whole()) == [5]


def test_options_and_schema_are_checked_as_for_every_source() -> None:
    def init(self: Any, start_from: str) -> None: ...

    with pytest.raises(ValueError, match="has the reserved name startFrom"):
        define(__init__=init)
    kind: Any = type(hw.PartitionedSource)
    with pytest.raises(TypeError, match=r"^the schema of source 'made': there is none"):
        kind("Made", (hw.PartitionedSource,), body(), name="made")


# Keys and offsets


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ([], []),
        (["b", "a"], ["b", "a"]),
        ((3, 0), [3, 0]),
        ({"b", "a"}, ["a", "b"]),
        ([np.int32(2), 2**31 - 1], [2, 2**31 - 1]),
        ([np.str_("a"), "é" * 255], ["a", "é" * 255]),
        ([" "], [" "]),
    ],
)
def test_partition_keys_are_strings_or_integers(given: Any, taken: list[Any]) -> None:
    names = validate_partitions(given)
    assert names == taken
    assert {type(name) for name in names} <= {int, str}


@pytest.mark.parametrize(
    "given",
    [
        None,
        "abc",
        {"a": 1},
        iter(["a"]),
        ["a", 1],
        ["a", "a"],
        [1, np.int64(1)],
        [True],
        [-1],
        [2**31],
        [1.0],
        [""],
        ["x" * 256],
        ["\ud800"],
        [b"a"],
    ],
)
def test_other_partition_keys_are_an_error_that_says_what_is_allowed(given: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^partitions\(\) returned .*strings of 1 to 255 characters, or integers from 0"
    ):
        validate_partitions(given)


def test_offsets_are_64_bit_integers() -> None:
    for given in (0, 2**63 - 1, np.int64(5), np.uint8(5)):
        offset = validate_offset(given, "latest('a')")
        assert (offset, type(offset)) == (int(given), int)
    for wrong in (-1, 2**63, True, 1.0, "1", None):
        with pytest.raises(
            ValueError, match=r"^latest\('a'\) returned .*integer from 0 to 9223372036854775807"
        ):
            validate_offset(wrong, "latest('a')")


# The command and hw.stream


FILE = """
import headwater as hw

class Shelves(hw.PartitionedSource, name="shelves", schema="shelf STRING, number LONG"):
    "Books by number."
    def partitions(self): return ["a", "b"]
    def earliest(self, p): return 1
    def latest(self, p): return 3
    def read(self, p, start, end):
        for number in range(start, end):
            yield p, number
"""


def command(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headwater", *arguments], capture_output=True, text=True, cwd=cwd, check=True
    )
    return done.stdout


def test_the_command_lists_describes_and_peeks_a_partitioned_source(tmp_path: Path) -> None:
    (tmp_path / "books.py").write_text(FILE)
    listed = command("list", "books.py", cwd=tmp_path)
    (line,) = [line for line in listed.splitlines() if line.startswith("shelves ")]
    assert "  shelf STRING, number BIGINT  " in line
    assert line.endswith("  Books by number.")
    message = command("describe", "books.py:shelves", cwd=tmp_path)
    assert "resumable   yes, each partition resumes at its own offset\n" in message
    shown = command("peek", "books.py:shelves", "-n", "3", cwd=tmp_path)
    assert shown.splitlines()[2:] == ["a           1", "a           2", "b           1"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("latest", "latest"),
        ({"a": 1, 2: 3}, '{"a": 1, "2": 3}'),
        (datetime(2026, 1, 31, 12, tzinfo=timezone.utc), "2026-01-31T12:00:00+00:00"),
        (datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=-2))), "2026-01-31T12:00:00-02:00"),
    ],
)
def test_start_from_becomes_an_option_string(given: Any, text: str) -> None:
    assert _encode_start(given) == text


def test_a_start_time_needs_a_time_zone_and_other_types_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"has no time zone: add one, as in datetime\.now\(timezone\.utc\)$"):
        _encode_start(datetime(2026, 1, 31))
    with pytest.raises(
        TypeError, match=r"^start_from=7 is of type int; it must be a str, a datetime or a dict$"
    ):
        _encode_start(7)


@pytest.mark.parametrize("module", ["source", "reading"])
def test_the_examples_in_docstrings_run(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"headwater.{module}"))
    assert results.attempted > 0
    assert results.failed == 0
