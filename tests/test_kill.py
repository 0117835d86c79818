"""`kill` and `restart` of the testing kit: a source that resumes passes, one that does not fails."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import wait_until
from pyspark.sql import DataFrame

import headwater as hw
from headwater.testing import END, ListSource, RunningStream
from headwater.testing.crash import BatchSink, copy_checkpoint  # private: no query can be killed in between

Stream = Callable[..., RunningStream]

READY: dict[str, threading.Event] = {}
"""By the name of a test: set when the second half of the upstream's rows is there."""

ACKED: dict[str, list[int]] = {}


class Halves(hw.Source, name="kill_halves", schema="n LONG"):
    """Rows 0 to 9, and 10 to 19 when they are ready. `bug` is one that an author may make."""

    def __init__(self, test: str, bug: str = "none") -> None:
        self.test, self.bug = test, bug
        self.closed = threading.Event()

    def read(self, since: int | None) -> Iterator[Any]:
        first = 0 if since is None or self.bug == "ignores since" else since + 1
        for n in range(first, 20):
            while n >= 10 and not READY[self.test].wait(0.01):
                if self.closed.is_set():
                    return
            yield hw.At(n + 1 if self.bug == "skips" else n - 1 if self.bug == "repeats" else n, n)

    def ack(self, cursor: int) -> None:
        ACKED[self.test].append(cursor)

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def halves(request: pytest.FixtureRequest) -> Callable[..., Halves]:
    test = request.node.name
    READY[test], ACKED[test] = threading.Event(), []
    return lambda **options: Halves(test=test, **options)


def numbers(*values: int) -> list[Any]:
    return [(n,) for n in values]


@hw.source("n LONG")
def kill_numbers(count: int, step: int = 1, *, since: int | None = None) -> Iterator[Any]:
    for first in range(0 if since is None else since, count, step):
        yield hw.At(first + step, list(range(first, min(first + step, count))))


def test_nothing_is_lost_or_repeated(stream: Stream, tmp_path: Path) -> None:
    query = stream(kill_numbers(count=500), checkpoint=tmp_path, max_rows_per_trigger=50)
    assert query.rows(100) <= query.kill().restart().to_end() == [(n,) for n in range(500)]


def test_a_source_that_resumes_is_read_once_over_a_kill(
    stream: Stream, tmp_path: Path, halves: Callable[..., Halves]
) -> None:
    source = halves()
    query = stream(source, checkpoint=tmp_path)
    assert query.rows(10) == numbers(*range(10))
    query.kill()
    READY[source.test].set()
    assert query.restart().to_end() == numbers(*range(20))


@pytest.mark.parametrize(
    ("bug", "rows"),
    [
        ("ignores since", [*range(10), *range(20)]),
        ("skips", [*range(10), *range(11, 20)]),
        ("repeats", [*range(10), *range(9, 20)]),
    ],
)
def test_a_source_that_does_not_resume_is_found_out(
    stream: Stream, tmp_path: Path, halves: Callable[..., Halves], bug: str, rows: list[int]
) -> None:
    source = halves(bug=bug)
    query = stream(source, checkpoint=tmp_path)
    query.rows(10)
    query.kill()
    READY[source.test].set()
    assert query.restart().to_end() == numbers(*rows)


@pytest.mark.parametrize("seed", range(3))
def test_kills_at_random_moments_lose_and_repeat_nothing(stream: Stream, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    source = kill_numbers(count=3000, step=7)
    query = stream(source, checkpoint=tmp_path, max_rows_per_trigger=100, log_retain_batches=0)
    for _ in range(6):
        query.rows(min(3000, len(query.until(lambda rows: True)) + chance.randrange(300)))
        query.kill()
        query.restart()
    assert query.to_end() == numbers(*range(3000))


def batches(checkpoint: Path, log: str) -> set[int]:
    return {int(file.name) for file in (checkpoint / log).iterdir() if file.name.isdigit()}


def test_a_batch_that_runs_at_the_kill_is_run_again(stream: Stream, tmp_path: Path) -> None:
    go_on = tmp_path / "go_on"

    def held_back(parts: Iterator[Any]) -> Iterator[Any]:
        """In a worker: the rows below 10 pass, and the others once the file exists."""
        for part in parts:
            while part.n.max() >= 10 and not go_on.exists():
                time.sleep(0.05)
            yield part

    def waiting(frame: DataFrame) -> DataFrame:
        return frame.mapInPandas(held_back, "n LONG")

    source = kill_numbers(count=40, step=10)  # ten rows arrive together, so no batch has only a part of them
    query = stream(source, checkpoint=tmp_path, max_rows_per_trigger=10, apply=waiting)
    assert query.rows(10) == numbers(*range(10))
    wait_until(lambda: 1 in batches(tmp_path, "offsets"), lambda: query.query.status)
    query.kill()
    assert (batches(tmp_path, "offsets"), batches(tmp_path, "commits")) == ({0, 1}, {0})
    assert query.until(lambda rows: True) == numbers(*range(10))
    go_on.touch()
    assert query.restart().to_end() == numbers(*range(40))


class Frame:
    """Where it is collected, the query is killed."""

    def __init__(self, sink: BatchSink) -> None:
        self._sink = sink

    def collect(self) -> list[Any]:
        assert self._sink.hold() is None
        return numbers(1, 2)


def test_a_batch_can_be_in_the_sink_and_not_be_committed() -> None:
    sink = BatchSink({})
    call = threading.Thread(target=sink, args=(Frame(sink), 0), daemon=True)
    call.start()
    wait_until(lambda: sink.rows == numbers(1, 2), lambda: sink.rows)
    assert call.is_alive()  # Spark would commit the batch if it returned
    sink.freeze()
    sink.release()
    call.join(60)
    assert not call.is_alive()


@pytest.mark.parametrize("change", ["commit", "delete"])
def test_a_copy_of_a_checkpoint_that_changed_meanwhile_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    checkpoint = tmp_path / "checkpoint"
    for name in ("offsets/0", "offsets/1", "commits/0", "sources/0/a.segment"):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(name)
    assert copy_checkpoint(checkpoint, tmp_path / "copy")
    assert (tmp_path / "copy" / "sources/0/a.segment").read_text() == "sources/0/a.segment"

    def copytree(folder: Path, copy: Path) -> None:
        if change == "delete":
            raise FileNotFoundError(folder)
        (checkpoint / "commits" / "1").touch()

    monkeypatch.setattr("headwater.testing.crash.shutil.copytree", copytree)
    assert not copy_checkpoint(checkpoint, tmp_path / "copy")


def test_nothing_is_acknowledged_that_the_next_start_does_not_find(
    stream: Stream, tmp_path: Path, halves: Callable[..., Halves], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log goes on after the checkpoint was copied, and before the query has ended."""
    source = halves()
    query = stream(source, checkpoint=tmp_path)
    query.rows(10)
    wait_until(lambda: 9 in ACKED[source.test], lambda: ACKED)
    before = batches(tmp_path, "offsets")

    def copy_and_go_on(checkpoint: Path, copy: Path) -> bool:
        is_copied = copy_checkpoint(checkpoint, copy)
        READY[source.test].set()
        wait_until(
            lambda: bool(query.feeds[0].waiting) or batches(tmp_path, "offsets") != before,
            lambda: query.feeds,
        )
        return is_copied

    monkeypatch.setattr("headwater.testing.running.copy_checkpoint", copy_and_go_on)
    query.kill()
    assert max(ACKED[source.test]) == 9
    assert query.restart().to_end() == numbers(*range(20))
    wait_until(lambda: 19 in ACKED[source.test], lambda: ACKED)


def test_the_files_of_the_test_in_the_same_folder_stay(stream: Stream, tmp_path: Path) -> None:
    (tmp_path / "upstream.txt").write_text("as it was")
    query = stream(kill_numbers(count=10), checkpoint=tmp_path)
    query.rows(10)
    (tmp_path / "upstream.txt").write_text("as it is")
    query.kill()
    assert (tmp_path / "upstream.txt").read_text() == "as it is"


def test_a_query_can_be_stopped_and_restarted(stream: Stream, tmp_path: Path) -> None:
    query = stream(kill_numbers(count=200), checkpoint=tmp_path, max_rows_per_trigger=10)
    query.rows(50)
    query.stop()
    assert query.restart().to_end() == numbers(*range(200))
    assert query.restart().to_end() == numbers(*range(200))


def test_a_killed_query_gives_no_more_rows(stream: Stream, tmp_path: Path) -> None:
    query = stream(kill_numbers(count=10), checkpoint=tmp_path)
    assert query.kill().kill().until(lambda rows: True) == []
    with pytest.raises(AssertionError, match="the query terminated before 1 rows"):
        query.rows(1)
    assert query.restart().to_end() == numbers(*range(10))


def test_counts_survive_a_kill(stream: Stream, tmp_path: Path) -> None:
    """The state of an aggregation is in the checkpoint too."""

    def count(frame: DataFrame) -> DataFrame:
        return frame.dropDuplicates(["n"])

    query = stream(
        kill_numbers(count=300), checkpoint=tmp_path, max_rows_per_trigger=50, apply=count, timeout=120
    )
    query.rows(60)
    rows = query.kill().restart().to_end()
    assert sorted(rows) == numbers(*range(300))


def test_a_kill_that_fails_leaves_a_query_that_can_be_stopped(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.testing.running.copy_checkpoint", lambda checkpoint, copy: False)
    query = stream(kill_numbers(count=1000), checkpoint=tmp_path, max_rows_per_trigger=10, timeout=1)
    with pytest.raises(AssertionError, match="timed out after 1 s waiting for a copy of the checkpoint"):
        query.kill()
    query.stop()


def test_a_kill_needs_a_checkpoint(stream: Stream) -> None:
    query = stream(ListSource([1, END]))
    for method in (query.kill, query.restart):
        with pytest.raises(hw.HeadwaterError, match=r"has no checkpoint.*add checkpoint=tmp_path"):
            method()
