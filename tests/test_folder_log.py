"""The example `folder_log.py`: files as partitions, with offsets that have gaps, through real queries."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from processes import ROOT
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from test_log import Checkpointed, Sink, by_partition

from headwater.testing import RunningStream

sys.path.append(str(ROOT / "examples"))

from folder_log import BLOCK, FolderLog

TEXT = "erste Zeile\n\nGrüße\n\n\nx\r\n   \nthe last line\n".encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def source(folder: Path) -> FolderLog:
    return FolderLog(folder=str(folder))


@pytest.fixture
def shipped(spark_session: SparkSession) -> None:
    """Workers have the module of the source."""
    spark_session.sparkContext.addPyFile(str(ROOT / "examples" / "folder_log.py"))


@pytest.fixture
def checkpoint(shipped: None, spark_session: SparkSession, tmp_path: Path) -> Checkpointed:
    return Checkpointed(spark_session, tmp_path / "checkpoint", Sink(comparable=by_partition))


def numbered(start: int, end: int) -> bytes:
    return b"".join(b"%d\n" % n for n in range(start, end))


def append(file: Path, data: bytes, piece: int | None = None) -> None:
    """At once, or in pieces of that size."""
    for start in range(0, len(data), piece or len(data)):
        with file.open("ab") as out:
            out.write(data[start : start + (piece or len(data))])


def rows_of(file: Path) -> list[tuple[str, int, str]]:
    """By other means than those of the source."""
    lines = file.read_bytes().split(b"\n")[:-1]
    positions = itertools.accumulate((len(line) + 1 for line in lines), initial=0)
    return [(file.name, position, line.decode()) for position, line in zip(positions, lines, strict=False)]


def all_of(folder: Path) -> dict[str, list[Any]]:
    return {file.name: rows for file in folder.glob("*.log") if (rows := rows_of(file))}


# Without Spark


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b"", 0),
        (b"no newline", 0),
        (b"\n", 1),
        (b"one\n", 4),
        (b"one\nhalf of tw", 4),
        (b"x" * BLOCK + b"\n", BLOCK + 1),
        (b"x\n" + b"y" * (2 * BLOCK), 2),
        (b"\n" * BLOCK + b"y" * (BLOCK - 1), BLOCK),
        (b"y" * (3 * BLOCK), 0),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else str(value),
)
def test_a_file_ends_behind_its_last_newline(text: bytes, end: int, folder: Path, source: FolderLog) -> None:
    (folder / "a.log").write_bytes(text)
    assert source.latest("a.log") == end


def test_each_line_is_in_one_range_wherever_that_is_cut(folder: Path, source: FolderLog) -> None:
    (folder / "a.log").write_bytes(TEXT + b"not there yet")
    expected = rows_of(folder / "a.log")
    assert len(expected) == 8
    for first, second in itertools.combinations_with_replacement(range(len(TEXT) + 1), 2):
        borders = [0, first, second, len(TEXT)]
        ranges = [source.read("a.log", start, end) for start, end in itertools.pairwise(borders)]
        assert list(itertools.chain(*ranges)) == expected


def test_so_many_rows_end_at_the_beginning_of_a_line(folder: Path, source: FolderLog) -> None:
    (folder / "a.log").write_bytes(TEXT + b"not there yet")
    for start, rows in itertools.product(range(len(TEXT)), range(1, 10)):
        there = list(source.read("a.log", start, len(TEXT)))
        end = source.after("a.log", start, rows)
        assert start < end <= len(TEXT)
        assert list(source.read("a.log", start, end)) == there[:rows]


def test_the_source_alone_gives_all_lines(folder: Path, source: FolderLog) -> None:
    (folder / "b.log").write_bytes(TEXT)
    (folder / "a.log").write_bytes(b"1\n2\n3")
    (folder / "empty.log").touch()
    (folder / "other.txt").write_bytes(TEXT)
    assert list(source) == [("a.log", 0, "1"), ("a.log", 2, "2"), *rows_of(folder / "b.log")]


# In a query


def test_each_line_comes_once_and_in_order_while_files_grow_and_new_ones_appear(
    folder: Path, source: FolderLog, checkpoint: Checkpointed
) -> None:
    """The query is stopped and started again on the way, with as many lines in a batch as it may have."""

    def produce() -> None:
        for start, name in zip(range(0, 300, 100), "bcd", strict=True):
            append(folder / "a.log", numbered(start, start + 100), piece=7)
            append(folder / f"{name}.log", numbered(0, 100), piece=5)

    append(folder / "a.log", b"0")  # of which the newline is not there yet
    producer = threading.Thread(target=produce)
    batches = checkpoint.sink.batches
    with checkpoint.running(source, max_rows_per_trigger=80) as query:
        producer.start()
        checkpoint.until(query, 160)
    producer.join()
    assert max(map(len, batches.values())) <= 80
    append(folder / "e.log", numbered(0, 50))
    with checkpoint.running(source, max_rows_per_trigger=150, min_partitions=3) as query:
        checkpoint.until(query, 300)
        append(folder / "f.log", numbered(0, 50))
        checkpoint.until(query, 700)
    assert by_partition(checkpoint.sink.rows) == all_of(folder)
    assert sum(map(len, all_of(folder).values())) == 700
    assert max(map(len, batches.values())) <= 150


@pytest.mark.parametrize("files", [1, 3])
def test_a_batch_has_as_many_lines_as_it_may_have(
    files: int, folder: Path, source: FolderLog, checkpoint: Checkpointed
) -> None:
    for number in range(files):
        append(folder / f"{number}.log", numbered(0, 300) * (number + 1))
    checkpoint.drain(source, max_rows_per_trigger=130)
    sizes = [len(batch) for batch in checkpoint.sink.batches.values()]
    assert by_partition(checkpoint.sink.rows) == all_of(folder)
    assert max(sizes) == 130
    assert files > 1 or sizes == [130, 130, 40]


def test_files_are_cut_anywhere_for_more_tasks(
    folder: Path, source: FolderLog, checkpoint: Checkpointed
) -> None:
    append(folder / "a.log", TEXT * 10)
    append(folder / "b.log", b"short\n")
    checkpoint.sink.columns = ["*", F.spark_partition_id()]
    checkpoint.drain(source, min_partitions=23)
    rows = checkpoint.sink.rows
    assert by_partition([row[:3] for row in rows]) == all_of(folder)
    assert len({task for *_, task in rows}) > 15


@pytest.mark.parametrize(
    ("start_from", "first"),
    [("earliest", 1), ("latest", 4), ({"a.log": 2}, 2), ({"a.log": 3}, 3), ({"a.log": 6}, 4)],
    ids=str,
)
def test_a_query_begins_where_it_is_told_to(
    start_from: Any, first: int, folder: Path, source: FolderLog, checkpoint: Checkpointed
) -> None:
    """Offsets may lie within a line: then with the next. A restart goes on, and a new file is read whole."""
    append(folder / "a.log", b"1\n2\n3\n")
    checkpoint.drain(source, start_from=start_from)
    append(folder / "a.log", b"4\n")
    append(folder / "new.log", b"1\n")
    checkpoint.drain(source, start_from="latest")
    read = [row[2] for row in checkpoint.sink.rows if row[0] == "a.log"]
    assert read == [str(n) for n in range(first, 5)]
    assert by_partition(checkpoint.sink.rows)["new.log"] == [("new.log", 0, "1")]


def test_a_query_cannot_begin_at_a_time_as_no_file_knows_one(
    source: FolderLog, checkpoint: Checkpointed
) -> None:
    with pytest.raises(Exception, match="cannot find the offset of a time: it has no method 'at'"):
        checkpoint.drain(source, start_from=datetime(2026, 1, 1, tzinfo=timezone.utc))


def test_a_query_cannot_begin_in_a_file_that_is_not_there(
    folder: Path, source: FolderLog, checkpoint: Checkpointed
) -> None:
    append(folder / "a.log", b"1\n")
    said = checkpoint.failure(source, start_from={"b.log": 0})
    assert "startFrom names partition 'b.log', which does not exist" in said


def delete(file: Path) -> None:
    file.unlink()


def cut_off(file: Path) -> None:
    file.write_bytes(b"1\n")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (delete, "partition 'a.log' is gone, at offset 6"),
        (cut_off, "partition 'a.log' went backwards: it ends at offset 2, and the query has read it up to 6"),
    ],
)
def test_a_file_that_is_harmed_fails_the_query_or_is_left_out(
    harm: Callable[[Path], None], said: str, folder: Path, source: FolderLog, checkpoint: Checkpointed
) -> None:
    append(folder / "a.log", b"1\n2\n3\n")
    append(folder / "b.log", b"1\n")
    with checkpoint.running(source) as query:
        checkpoint.until(query, 4)
        harm(folder / "a.log")
        with pytest.raises(Exception, match=said):
            query.awaitTermination(60)
    append(folder / "b.log", b"2\n")
    assert said in checkpoint.failure(source)
    checkpoint.drain(source, fail_on_data_loss=False)
    assert [row[2] for row in by_partition(checkpoint.sink.rows)["b.log"]] == ["1", "2"]
    assert len(checkpoint.sink.rows) == 5


@pytest.mark.usefixtures("shipped")
def test_a_line_that_is_no_text_is_a_bad_row(
    folder: Path, source: FolderLog, checkpoint: Checkpointed, stream: Callable[..., RunningStream]
) -> None:
    append(folder / "a.log", b"1\n\xff\n3\n")
    rows = stream(source, available_now=True, on_bad_row="null").done()
    assert [tuple(row) for row in rows] == [("a.log", 0, "1"), ("a.log", 2, None), ("a.log", 4, "3")]
    said = stream(source, available_now=True).failure()
    assert "source 'folder_log', read('a.log', 0, 6): " in said
    assert "row 1, field 'line'" in said


def test_another_folder_is_refused_by_a_checkpoint(
    folder: Path, source: FolderLog, checkpoint: Checkpointed
) -> None:
    append(folder / "a.log", b"1\n")
    checkpoint.drain(source)
    (folder / "other").mkdir()
    append(folder / "other" / "a.log", b"1\n2\n")
    assert "folder" in checkpoint.failure(FolderLog(folder=str(folder / "other")))
