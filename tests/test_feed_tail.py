"""The source `tail`: files that grow, are rotated and truncated, standard input and named pipes."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from killed_driver import KilledDriver

import headwater as hw
from headwater import trust
from headwater.sources import tail
from headwater.sources.tail_files import Lines  # private: bytes are cut where no file can be made to cut them
from headwater.testing import RunningStream

Stream = Callable[..., RunningStream]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "app.log"


def append(file: Path, *lines: object) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.writelines(f"{line}\n" for line in lines)


def rename(file: Path, generations: int = 1) -> None:
    """Rotates as logrotate does with `create`: app.log.1 becomes app.log.2, app.log becomes app.log.1."""
    for n in range(generations, 0, -1):
        older = Path(f"{file}.{n}")
        if older.exists():
            older.rename(f"{file}.{n + 1}")
    file.rename(f"{file}.1")
    file.touch()


def copy_and_truncate(file: Path, generations: int = 1) -> None:
    """Rotates as logrotate does with `copytruncate`."""
    for n in range(generations, 0, -1):
        older = Path(f"{file}.{n}")
        if older.exists():
            older.rename(f"{file}.{n + 1}")
    shutil.copy(file, f"{file}.1")
    os.truncate(file, 0)


def data(items: list[Any]) -> list[Any]:
    rows = [row for item in items for row in (item if isinstance(item, list) else item.to_pylist())]
    return [
        row if isinstance(row, hw.BadRow) else row["data"] if isinstance(row, dict) else row[0]
        for row in rows
    ]


class Reader:
    """Reads a source in this thread up to CAUGHT_UP, and goes on with its cursor, as after a restart."""

    def __init__(self, path: object, **options: Any) -> None:
        self._new = lambda: tail(str(path), **options)
        self._cursor: Any = None
        self._restart()

    def _restart(self) -> None:
        self._source = self._new()
        self._items = self._source.read(self._cursor)

    def caught_up(self) -> list[Any]:
        found = []
        for item in itertools.takewhile(lambda item: item is not hw.CAUGHT_UP, self._items):
            found.append(item.rows)
            self._cursor = item.cursor
        return data(found)

    def after_restart(self) -> list[Any]:
        self.close()
        self._restart()
        return self.caught_up()

    def next(self) -> list[Any]:
        """The rows of the next look at which there are some."""
        return self.caught_up()

    def close(self) -> None:
        self._source.close()
        self._items.close()


@pytest.fixture
def read(request: pytest.FixtureRequest) -> Callable[..., Reader]:
    def start(path: object, **options: Any) -> Reader:
        reader = Reader(path, **options)
        request.addfinalizer(reader.close)
        return reader

    return start


Read = Callable[..., Reader]
ROTATIONS = pytest.mark.parametrize("rotate", [rename, copy_and_truncate])


# Lines


@given(st.lists(st.binary(max_size=30), max_size=8), st.lists(st.integers(1, 20), min_size=1))
def test_lines_are_the_same_wherever_the_bytes_are_cut(parts: list[bytes], sizes: list[int]) -> None:
    whole = b"\n".join(parts)
    lines, found, rest = Lines("", 1000), [], whole
    for size in itertools.cycle(sizes):
        if not rest:
            break
        if lines.feed(rest[:size]):
            found += lines.complete
        rest = rest[size:]
    *complete, unfinished = whole.split(b"\n")
    assert found == [line.removesuffix(b"\r") for line in complete]
    assert lines.unfinished == len(unfinished)


def test_a_line_is_a_row_once_its_line_break_is_there(log: Path, read: Read) -> None:
    log.write_bytes(b"one\ntwo\r\n\nunfin")
    reader = read(log)
    assert reader.caught_up() == ["one", "two", ""]
    with log.open("ab") as out:
        out.write(b"ished\nmore")
    assert reader.next() == ["unfinished"]
    append(log, "")
    assert reader.after_restart() == ["more"]


def test_a_byte_order_mark_is_no_part_of_the_first_line(log: Path, read: Read) -> None:
    log.write_bytes(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    reader = read(log)
    assert reader.caught_up() == ["one", "\ufefftwo"]
    append(log, "three")
    assert reader.after_restart() == ["three"]


def test_lines_that_are_not_utf8_or_too_long_are_bad_rows(log: Path, read: Read) -> None:
    log.write_bytes(b"good\nb\xe4d\n" + b"x" * 300_000 + b"\ngood\n")
    rows = read(log, max_record_bytes=1000).caught_up()
    bad = [row for row in rows if isinstance(row, hw.BadRow)]
    assert [row for row in rows if not isinstance(row, hw.BadRow)] == ["good", "good"]
    assert [row.reason[:27] for row in bad] == ["not valid UTF-8: invalid co", "the line is longer than 100"]
    assert bad[1].value == b"x" * 200


def test_blank_lines_are_left_out_where_they_cannot_be_rows(log: Path, read: Read) -> None:
    log.write_bytes(b'{"data": 1}\n\n  \n{"data": 2}\n')
    assert read(log, decode="json", schema="data INT").caught_up() == [1, 2]
    assert read(log, decode="binary").caught_up() == [b'{"data": 1}', b"", b"  ", b'{"data": 2}']


# Rotation


@ROTATIONS
def test_a_file_is_followed_across_rotation(log: Path, read: Read, rotate: Callable[..., None]) -> None:
    append(log, *range(5))
    reader = read(log)
    found = reader.caught_up()
    for start in (5, 10, 15):
        append(log, *range(start, start + 3))
        if rotate is rename or start == 10:  # what a copy has is read there
            rotate(log, 3)
            append(log, *range(start + 3, start + 5))
        else:
            found += reader.next()
            append(log, *range(start + 3, start + 5))
        found += reader.next()
    assert found == [str(n) for n in range(20)]


@ROTATIONS
@pytest.mark.parametrize("rotations", [1, 2, 3])
def test_rotations_between_stop_and_start_lose_and_repeat_nothing(
    log: Path, read: Read, rotate: Callable[..., None], rotations: int
) -> None:
    append(Path(f"{log}.1"), "from before")
    append(log, *range(5))
    reader = read(log)
    found = reader.caught_up()
    for n in range(rotations):
        append(log, *range(5 + 10 * n, 10 + 10 * n))
        rotate(log, 4)
        append(log, *range(10 + 10 * n, 15 + 10 * n))
    found += reader.after_restart()
    append(log, "last")
    assert [*found, *reader.after_restart()] == [*(str(n) for n in range(5 + 10 * rotations)), "last"]
    assert reader.after_restart() == []


def test_a_renamed_file_is_read_on_while_its_writer_still_has_it_open(log: Path, read: Read) -> None:
    with log.open("a") as writer:
        print("one", file=writer, flush=True)
        reader = read(log)
        assert reader.caught_up() == ["one"]
        rename(log)
        append(log, "new")
        assert reader.next() == ["new"]
        print("two", file=writer, flush=True)
        assert reader.next() == ["two"]
        print("three", file=writer, flush=True)
    assert reader.after_restart() == ["three"]


def test_a_file_that_is_renamed_and_deleted_at_once_is_read_to_its_end(log: Path, read: Read) -> None:
    append(log, "one")
    reader = read(log)
    assert reader.caught_up() == ["one"]
    append(log, "two")
    log.unlink()
    append(log, "three")
    assert reader.next() == ["two", "three"]
    assert reader.after_restart() == []


@pytest.mark.parametrize("restart", [False, True])
def test_a_truncated_file_is_read_from_its_beginning_with_a_warning(
    log: Path, read: Read, restart: bool, caplog: pytest.LogCaptureFixture
) -> None:
    append(log, *range(10))
    reader = read(log)
    assert len(reader.caught_up()) == 10
    log.write_text("a\n")
    assert (reader.after_restart() if restart else reader.next()) == ["a"]
    assert "was truncated or is gone" in caplog.text
    log.write_text("another, and longer than before\n")  # in the same inode
    assert (reader.after_restart() if restart else reader.next()) == ["another, and longer than before"]


def test_files_that_only_look_like_rotated_ones_are_not_read(log: Path, read: Read) -> None:
    append(log, "one")
    reader = read(log)
    assert reader.caught_up() == ["one"]
    for name in ("app.log.1.gz", "app.logs", "app.log.d", "other.log.1"):
        append(log.with_name(name), "other")
    (log.with_name("app.log.9")).mkdir()
    os.mkfifo(log.with_name("app.log.8"))
    rename(log)
    append(log, "two")
    assert reader.after_restart() == ["two"]


def test_a_cursor_of_something_else_is_refused(log: Path) -> None:
    for cursor in (17, {"version": 2, "files": {}}, {"version": 1, "files": {"a": {}}}):
        with pytest.raises(ValueError, match="is not one of source 'tail'"):
            next(tail(str(log)).read(cursor))


# Several files


def test_each_row_of_a_pattern_says_which_file_it_came_from(log: Path, stream: Stream) -> None:
    append(log.with_name("a.log"), 1, 2)
    append(log.with_name("a.txt"), "no")
    query = stream(tail(str(log.parent / "*.log")), apply=lambda frame: frame.select("data", "file"))
    query.rows(2)
    (log.parent / "c.log").mkdir()
    append(log.with_name("b.log"), 3)
    append(log.with_name("a.log"), 4)
    rows = {tuple(row) for row in query.rows(4)}
    assert rows == {(str(n), str(log.with_name("b.log" if n == 3 else "a.log"))) for n in (1, 2, 3, 4)}


def test_a_file_that_is_renamed_to_a_name_that_matches_is_not_read_again(log: Path, read: Read) -> None:
    append(log, 1)
    append(Path(f"{log}.1"), 0)
    reader = read(f"{log}*")
    found = reader.caught_up()
    for n in (2, 3):
        append(log, f"{n}a")
        rename(log, 4)
        append(log, f"{n}b")
        found += reader.next() if n == 2 else reader.after_restart()
    assert sorted(found) == ["0", "1", "2a", "2b", "3a", "3b"]
    Path(f"{log}.3").unlink()
    append(log, 4)
    assert reader.next() == ["4"]


def test_more_than_a_hundred_files_are_read_and_more_than_a_thousand_refused(log: Path, read: Read) -> None:
    for n in range(120):
        append(log.with_name(f"{n}.log"), n)
    reader = read(log.parent / "*.log")
    assert sorted(map(int, reader.caught_up())) == list(range(120))
    rename(log.with_name("7.log"))
    append(log.with_name("7.log"), "seven")
    assert reader.next() == ["seven"]
    for n in range(120, 1001):
        log.with_name(f"{n}.log").touch()
    with pytest.raises(hw.HeadwaterError, match="matches 1001 files; 1000 are allowed"):
        reader.after_restart()


def test_feeds_side_by_side_share_the_files(log: Path, stream: Stream) -> None:
    for n in range(20):
        append(log.with_name(f"{n}.log"), n)
    query = stream(tail(str(log.parent / "*.log")), concurrency=2, available_now=True)
    assert sorted(int(row.data) for row in query.done()) == list(range(20))


# In a query


def test_a_growing_file_is_read_to_its_columns(log: Path, stream: Stream) -> None:
    source = tail(str(log), decode="json", schema="n LONG", metadata=True)
    query = stream(source)
    query.wait_for(lambda feeds: [feed.state for feed in feeds] == ["reconnecting"])
    assert f"{log} does not exist" in str(query.feeds[0].last_error)
    append(log, '{"n": 1}')
    (row,) = query.rows(1)
    assert row.asDict().keys() == {"n", "file", "arrived"}
    assert (row.n, row.file) == (1, str(log))
    append(log, '{"n": 2}')
    assert [row.n for row in query.rows(2)] == [1, 2]


@pytest.mark.parametrize(("on_bad_row", "rows"), [("drop", ["a", "b"]), ("null", ["a", None, "b"])])
def test_invalid_utf8_follows_on_bad_row(log: Path, stream: Stream, on_bad_row: str, rows: list[Any]) -> None:
    log.write_bytes(b"a\n\xff\nb\n")
    query = stream(tail(str(log)), on_bad_row=on_bad_row, available_now=True)
    assert [row.data for row in query.done()] == rows
    assert "not valid UTF-8" in stream(tail(str(log))).failure()


@ROTATIONS
def test_a_killed_query_loses_and_repeats_nothing_while_its_file_is_rotated(
    log: Path, tmp_path: Path, stream: Stream, rotate: Callable[..., None]
) -> None:
    append(log, *range(100))
    query = stream(tail(str(log)), checkpoint=tmp_path / "checkpoint", max_rows_per_trigger=40)
    for start in (100, 300, 500):
        query.rows(start - 50)
        query.kill()
        append(log, *range(start, start + 100))
        rotate(log, 4)
        append(log, *range(start + 100, start + 200))
        query.restart()
    assert [int(row.data) for row in query.rows(700)] == list(range(700))


@pytest.mark.process
@ROTATIONS
def test_a_driver_killed_with_sigkill_loses_and_repeats_nothing(
    log: Path, tmp_path: Path, rotate: Callable[..., None]
) -> None:
    """A writer writes all the time. The driver is killed wherever it is, and files are rotated meanwhile."""
    written = itertools.count()
    stop, pause = threading.Event(), threading.Lock()

    def write() -> None:
        while not stop.wait(0.02):
            with pause:
                append(log, *itertools.islice(written, 5))

    driver = KilledDriver(tmp_path, "tail", {"path": str(log)})
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for n in range(3):
            seen = len(driver.rows)
            driver.run_until(lambda rows, seen=seen: len(rows) > seen + 200, "more rows")  # type: ignore[misc]
            for _ in range(2):
                with pause:  # between the copy and the truncation a writer's lines are lost to anybody
                    rotate(log, 9)
                    append(log, *itertools.islice(written, 2 + n))
    finally:
        stop.set()
        writer.join()
    total = next(written)
    driver.run_until(lambda rows: len(rows) >= total, "all rows")
    assert [int(row["data"]) for row in driver.rows] == list(range(total))


def test_an_idle_file_is_looked_at_less_and_less_often(log: Path) -> None:
    class Pauses(threading.Event):
        def __init__(self) -> None:
            super().__init__()
            self.seconds: list[float] = []

        def wait(self, timeout: float | None = None) -> bool:
            self.seconds.append(timeout or 0)
            if len(self.seconds) == 8:
                append(log, "two")
            if len(self.seconds) == 16:
                self.set()
            return self.is_set()

    append(log, "one")
    source = tail(str(log))
    source._closed = pauses = Pauses()  # type: ignore[attr-defined]
    assert data([item.rows for item in source.read(None) if item is not hw.CAUGHT_UP]) == ["one", "two"]
    assert pauses.seconds == 2 * [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5]


# Standard input and named pipes


def test_standard_input_is_read_to_its_end() -> None:
    script = "from headwater.sources import tail; print([row['data'] for row in tail('-')])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=b"one\ntwo\nunfinished",
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == b"['one', 'two']\n"
    assert b"cannot be read a second time" in done.stderr
    assert b"ends within a line, which is dropped" in done.stderr


def test_a_named_pipe_is_read_from_one_writer_after_another(tmp_path: Path, stream: Stream) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    query = stream(tail(str(pipe)))
    for n in range(3):
        with pipe.open("w") as writer:  # waits for the reader
            writer.write(f"{2 * n}\n{2 * n + 1}\nrest")
        query.rows(2 * n + 2)
    assert [row.data for row in query.rows(6)] == [str(n) for n in range(6)]
    query.stop()  # does not wait for a writer


def test_a_pipe_that_nobody_writes_to_can_be_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    source = tail(str(tmp_path / "pipe"))
    reader = threading.Thread(target=lambda: list(source.read(None)))
    reader.start()
    source.close()
    reader.join(60)
    assert not reader.is_alive()


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ""}, "option 'path' is '', it must be a file, a pattern of files, or -"),
        ({"path": "a", "max_record_bytes": 0}, "option 'max_record_bytes' is 0, it must be 1 or more"),
        ({"path": "a", "decode": "xml"}, "decode='xml' is unknown"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tail(**options)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither a file nor a named pipe; a pattern is dir/"):
        next(tail(str(tmp_path)).read(None))


def test_only_files_in_trusted_folders_are_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, "one")
    log.with_name("b.log").symlink_to(__file__)
    monkeypatch.setattr(trust, "current", trust.Trust(folders=(str(log.parent),)))
    assert next(tail(str(log)).read(None)).rows.num_rows == 1
    with pytest.raises(ValueError, match="is not in a trusted folder"):
        tail(__file__)
    with pytest.raises(ValueError, match=r"b\.log.*is not in a trusted folder"):
        list(tail(str(log.parent / "*.log")).read(None))
