"""Rows in the durable log: what a restart finds again, where a source goes on, and what is refused."""

import itertools
import json
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import log_writer
import pytest
from processes import wait_until as wait_until_told
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import headwater as hw

SINCE: list[Any] = []


def wait_until(true: Callable[[], Any], what: str) -> None:
    wait_until_told(lambda: bool(true()), lambda: what)


@hw.source("n LONG, word STRING")
def log_counted(count: int = 1000, step: int = 3, *, since: Any = None) -> Iterator[Any]:
    """`step` rows under each cursor; the cursor is the last of them."""
    SINCE.append(since)
    for first in range(0 if since is None else since["last"] + 1, count, step):
        rows = [(n, f"w{n}") for n in range(first, min(first + step, count))]
        yield hw.At({"last": rows[-1][0]}, rows)


@hw.source("n LONG")
def log_live(count: int = 1000) -> Iterator[int]:
    yield from range(count)


@hw.source("n LONG")
def log_sharded() -> Iterator[int]:
    yield hw.shard().index


@dataclass
class Sink:
    """Keeps each batch by its id. One that is run again must be the same."""

    batches: dict[int, list[Any]] = field(default_factory=dict)
    after: Callable[[int], None] = lambda batch: None
    columns: list[str] = field(default_factory=lambda: ["*"])
    comparable: Callable[[list[Any]], Any] = list

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = [tuple(row) for row in frame.select(*self.columns).collect()]
        before = self.batches.setdefault(batch, rows)
        assert self.comparable(before) == self.comparable(rows), f"batch {batch} is another one now"
        self.after(batch)

    @property
    def rows(self) -> list[Any]:
        return list(itertools.chain.from_iterable(self.batches[n] for n in sorted(self.batches)))


def by_partition(rows: list[Any]) -> dict[str, list[Any]]:
    """In the order in which they came; their first column is the partition."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(tuple(row))
    return found


class Checkpointed:
    """Queries on one checkpoint, one after the other."""

    def __init__(self, spark: SparkSession, folder: Path, sink: Sink | None = None) -> None:
        self.spark = spark
        self.folder = folder
        self.sink = sink or Sink()

    def running(self, source: Any, **options: Any) -> AbstractContextManager[Any]:
        return self.reading(hw.stream(self.spark, source, **options))

    @contextmanager
    def reading(self, frame: DataFrame) -> Iterator[Any]:
        writer = frame.writeStream.foreachBatch(self.sink)
        query = writer.option("checkpointLocation", str(self.folder)).start()
        try:
            yield query
        finally:
            query.stop()

    def drain(self, source: Any, **options: Any) -> list[Any]:
        """All that is available, in one run."""
        writer = hw.stream(self.spark, source, **options).writeStream.foreachBatch(self.sink)
        query = writer.option("checkpointLocation", str(self.folder)).trigger(availableNow=True).start()
        assert query.awaitTermination(60), query.status
        return self.sink.rows

    def failure(self, source: Any, **options: Any) -> str:
        with self.running(source, **options) as query, pytest.raises(StreamingQueryException) as raised:
            query.awaitTermination(60)
        return str(raised.value)

    def until(self, query: Any, rows: int) -> None:
        def enough() -> bool:
            if (error := query.exception()) is not None:
                raise error
            return len(self.sink.rows) >= rows

        wait_until(enough, f"{rows} rows")

    def segments(self) -> list[Path]:
        return sorted((self.folder / "sources" / "0").glob("*.segment"))


@pytest.fixture
def checkpoint(spark_session: SparkSession, tmp_path: Path) -> Checkpointed:
    SINCE.clear()
    return Checkpointed(spark_session, tmp_path / "checkpoint")


def counted(count: int) -> list[Any]:
    return [(n, f"w{n}") for n in range(count)]


def test_a_resumable_source_goes_on_after_its_last_durable_cursor(checkpoint: Checkpointed) -> None:
    assert checkpoint.drain(log_counted(count=300)) == counted(300)
    assert checkpoint.drain(log_counted(count=1000)) == counted(1000)
    assert SINCE == [None, {"last": 299}]


def test_rows_that_no_batch_had_taken_wait_in_the_log(checkpoint: Checkpointed) -> None:
    with checkpoint.running(log_live(count=1000), max_rows_per_trigger=10) as query:
        wait_until(lambda: query.lastProgress and int(rows_read(query)) == 1000, "all rows in the log")
    taken = len(checkpoint.sink.rows)
    assert taken < 1000
    assert checkpoint.drain(log_live(count=0)) == [(n,) for n in range(1000)]


def rows_read(query: Any) -> str:
    return str(query.lastProgress["sources"][0]["metrics"]["rowsRead"])


def test_a_batch_that_failed_is_run_again_with_the_same_rows(checkpoint: Checkpointed) -> None:
    def fail(batch: int) -> None:
        if batch == 2:
            raise RuntimeError("the sink is broken")

    checkpoint.sink.after = fail
    assert "the sink is broken" in checkpoint.failure(log_counted(), max_rows_per_trigger=100)
    checkpoint.sink.after = lambda batch: None
    assert checkpoint.drain(log_counted(), max_rows_per_trigger=7) == counted(1000)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_compression_may_change_from_one_run_to_the_next(checkpoint: Checkpointed, compression: str) -> None:
    assert checkpoint.drain(log_counted(count=200), log_compression="zstd") == counted(200)
    assert checkpoint.drain(log_counted(count=400), log_compression=compression) == counted(400)


def test_all_rows_under_one_cursor_are_in_the_log_or_none(checkpoint: Checkpointed) -> None:
    """They are so heavy that they travel in many messages, and the feed dies between two cursors."""

    @hw.source("n LONG, filler STRING")
    def log_heavy(fail: bool = True, *, since: Any = None) -> Iterator[Any]:
        start = 0 if since is None else since
        yield hw.At(start + 50, [(n, "x" * 100_000) for n in range(start, start + 50)])
        if fail:
            yield hw.At(start + 100, [*((n, "x" * 100_000) for n in range(start + 50, start + 99)), ("?", 1)])

    def ids() -> list[int]:
        return [row[0] for row in checkpoint.sink.rows]

    assert "row 99" in checkpoint.failure(log_heavy())
    checkpoint.drain(log_heavy(fail=False))
    assert ids() == list(range(100))


def test_the_first_start_can_be_given_a_cursor(checkpoint: Checkpointed) -> None:
    assert checkpoint.drain(log_counted(count=9), start_cursor={"last": 5}) == counted(9)[6:]
    assert checkpoint.drain(log_counted(count=12), start_cursor={"last": 1}) == counted(12)[6:]
    assert SINCE == [{"last": 5}, {"last": 8}]


def test_a_start_cursor_for_a_source_that_is_not_resumable_is_refused(spark_session: SparkSession) -> None:
    with pytest.raises(
        Exception, match=r"'startCursor' of source 'log_live' is .*takes no parameter 'since'"
    ):
        hw.stream(spark_session, log_live(), start_cursor=7)


def test_each_of_several_feeds_goes_on_at_its_own_cursor(checkpoint: Checkpointed) -> None:
    seen: list[Any] = []

    @hw.source("shard INT, n LONG")
    def log_shards(count: int, *, since: Any = None) -> Iterator[Any]:
        index = hw.shard().index
        seen.append((index, since))
        for n in range(since or 0, count + index):
            yield hw.At(n + 1, (index, n))

    checkpoint.drain(log_shards(count=5), concurrency=3)
    rows = checkpoint.drain(log_shards(count=9), concurrency=3)
    for index in range(3):
        assert [n for shard, n in rows if shard == index] == list(range(9 + index))
    assert sorted(seen[3:]) == [(0, 5), (1, 6), (2, 7)]
    told = checkpoint.failure(log_shards(count=9), concurrency=2)
    assert "the option concurrency was 3 and is 2 now" in told


def test_an_author_is_told_once_rows_are_durable(checkpoint: Checkpointed) -> None:
    told: list[Any] = []

    class LogAcked(hw.Source, name="log_acked", schema="n LONG"):
        def read(self, since: Any) -> Iterator[Any]:
            for n in range(since or 0, 500):
                yield hw.At(n + 1, n)

        def ack(self, cursor: Any) -> None:
            told.append((cursor, threading.current_thread().name))

    with checkpoint.running(LogAcked()) as query:
        wait_until(lambda: bool(told) and told[-1][0] == 500, "the last acknowledgement")
        checkpoint.until(query, 500)
    cursors = [cursor for cursor, _ in told]
    assert cursors == sorted(set(cursors))
    assert all(name.endswith("-ack") for _, name in told)


def test_a_source_that_has_caught_up_ends_an_available_now_run_at_once(checkpoint: Checkpointed) -> None:
    @hw.source("n LONG")
    def log_caught_up(*, since: Any = None) -> Iterator[Any]:
        first = since or 0
        yield hw.At(first + 10, list(range(first, first + 10)))
        yield hw.CAUGHT_UP
        while True:  # until it is stopped
            time.sleep(0.01)

    began = time.monotonic()
    assert checkpoint.drain(log_caught_up(), available_now_wait="50m") == [(n,) for n in range(10)]
    assert checkpoint.drain(log_caught_up(), available_now_wait="50m") == [(n,) for n in range(20)]
    assert time.monotonic() - began < 600


def test_an_available_now_run_reads_more_than_the_buffer_would_hold(checkpoint: Checkpointed) -> None:
    @hw.source("n LONG, filler STRING")
    def log_large() -> Iterator[Any]:
        for n in range(800):
            yield n, "x" * 100_000

    checkpoint.sink.columns = ["n"]
    assert checkpoint.drain(log_large()) == [(n,) for n in range(800)]


def test_nothing_of_a_finished_batch_is_kept_for_ever(checkpoint: Checkpointed) -> None:
    with checkpoint.running(
        log_counted(count=40_000), max_rows_per_trigger=4000, log_retain_batches=0, batch_rows=100
    ) as query:
        checkpoint.until(query, 40_000)
    first = checkpoint.segments()
    checkpoint.drain(log_counted(count=40_003), log_retain_batches=0)
    checkpoint.drain(log_counted(count=40_006), log_retain_batches=0)
    assert not set(first) & set(checkpoint.segments()), "segments whose rows were committed are gone"
    assert checkpoint.sink.rows == counted(40_006)


def test_options_marked_as_identity_must_stay_as_they_are(checkpoint: Checkpointed) -> None:
    @hw.source("n LONG", identity=("url",))
    def log_of_url(url: str, size: int = 1) -> Iterator[int]:
        yield size

    checkpoint.drain(log_of_url(url="one"))
    checkpoint.drain(log_of_url(url="one", size=2))
    assert "its option 'url' was 'one' and is 'two' now" in checkpoint.failure(log_of_url(url="two"))


def test_identity_names_options_and_no_secret(spark_session: SparkSession) -> None:
    @hw.source("n LONG", identity=("key",))
    def log_of_key(key: hw.Secret) -> Iterator[int]:
        yield 1

    @hw.source("n LONG", identity=("nothing",))
    def log_of_nothing() -> Iterator[int]:
        yield 1

    with pytest.raises(Exception, match="'key' of source 'log_of_key' is a secret"):
        hw.stream(spark_session, log_of_key(key=hw.Secret("s3cret")))
    with pytest.raises(Exception, match=r"identity=\('nothing',\), but no option 'nothing'"):
        hw.stream(spark_session, log_of_nothing())


def with_columns(schema: str, row: Any) -> Any:
    @hw.source(schema)
    def log_columns() -> Iterator[Any]:
        yield row

    return log_columns()


def test_a_column_that_may_be_null_can_be_added(checkpoint: Checkpointed) -> None:
    """The row before waits in the log, in a batch that failed: it is read with the new columns."""

    def fail(batch: int) -> None:
        raise RuntimeError("the sink is broken")

    checkpoint.sink.after = fail
    assert "the sink is broken" in checkpoint.failure(with_columns("a INT, b STRING", (1, "x")))
    checkpoint.sink = Sink()
    rows = checkpoint.drain(with_columns("a INT, c MAP<STRING, INT>, b STRING", (2, {"k": 1}, "y")))
    assert rows == [(1, None, "x"), (2, {"k": 1}, "y")]


@pytest.mark.parametrize(
    ("schema", "row", "told"),
    [
        ("a INT", (1,), "the column 'b' is gone"),
        ("a LONG, b STRING", (1, "x"), "the column 'a' was INT and is BIGINT now"),
        ("a INT, b STRING, c INT NOT NULL", (1, "x", 2), "the column 'c' is new and cannot be null"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(
    checkpoint: Checkpointed, schema: str, row: Any, told: str
) -> None:
    checkpoint.drain(with_columns("a INT, b STRING", (1, "x")))
    assert told in checkpoint.failure(with_columns(schema, row))


def test_a_checkpoint_goes_on_from_memory_to_the_log(checkpoint: Checkpointed) -> None:
    checkpoint.drain(log_live(count=5), durability="memory")
    checkpoint.drain(log_live(count=3), durability="log", fail_on_data_loss=False)
    checkpoint.drain(log_live(count=0))
    assert checkpoint.sink.rows == [(n,) for n in (0, 1, 2, 3, 4, 0, 1, 2)]


def test_offsets_without_their_log_and_a_log_without_its_offsets_are_refused(
    checkpoint: Checkpointed,
) -> None:
    checkpoint.drain(log_counted(count=30))
    checkpoint.drain(log_counted(count=60))
    for name in ("offsets", "commits"):
        (checkpoint.folder / name).rename(checkpoint.folder / f"{name}-away")
    assert "The checkpoint's offsets are gone" in checkpoint.failure(log_counted())
    for name in ("offsets", "commits"):
        for left in (checkpoint.folder / name).glob("*"):
            left.unlink()
        (checkpoint.folder / name).rmdir()
        (checkpoint.folder / f"{name}-away").rename(checkpoint.folder / name)
    (checkpoint.folder / "sources").rename(checkpoint.folder / "sources-away")
    assert "the log that it speaks of is gone" in checkpoint.failure(log_counted())


def test_a_flipped_bit_fails_the_query_with_file_and_place_and_there_is_a_way_past_it(
    checkpoint: Checkpointed,
) -> None:
    with checkpoint.running(log_live(count=50_000), max_rows_per_trigger=10) as query:
        wait_until(lambda: query.lastProgress and int(rows_read(query)) == 50_000, "all rows in the log")
    segment = checkpoint.segments()[0]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 16
    segment.write_bytes(data)
    told = checkpoint.failure(log_live(count=0))
    assert segment.name in told
    assert "is damaged at byte" in told
    assert "failOnDataLoss" in told
    rows = checkpoint.drain(log_live(count=0), fail_on_data_loss=False)
    assert 10 < len(rows) < 50_000
    assert rows == sorted(rows)


def test_the_log_of_a_second_driver_is_refused_while_the_first_lives(checkpoint: Checkpointed) -> None:
    program = f"""
import fcntl, sys
lock = open({str(checkpoint.folder / "sources" / "0" / "lock")!r}, "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""
    checkpoint.drain(log_counted(count=3))
    other = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None
    assert other.stdout is not None
    with other:
        assert other.stdout.readline() == "locked\n"
        assert "is locked by another process" in checkpoint.failure(log_counted())
        other.kill()
    assert checkpoint.drain(log_counted(count=6)) == counted(6)


def forged(position: int, *, cursor: Any) -> str:
    """ASCII text that has the bytes of a frame with a cursor, in both formats.

    Who writes rows knows neither the key of the log nor, in general, the position.
    """
    for filler in range(10_000):
        frame = log_writer.frame(3, 0, group=True, cursor={**cursor, "filler": filler}, payload=b"")
        first = frame.at(0, 1)
        if first.isascii():
            break
    key = 0
    while not (second := frame.at(position + len(first), key=f"{key:032x}")).isascii():
        key += 1
    return (first + second).decode("ascii")


def test_a_frame_in_the_text_of_a_row_is_never_read_behind_a_torn_tail(checkpoint: Checkpointed) -> None:
    checkpoint.drain(log_counted(count=3))
    segment = checkpoint.segments()[-1]
    torn = segment.read_bytes() + bytes(60)  # of the frame of the row only the text has reached the disk
    segment.write_bytes(torn + forged(len(torn), cursor={"last": 90}).encode() + bytes(8))
    checkpoint.drain(log_counted(count=6))
    assert SINCE == [None, {"last": 2}]
    assert checkpoint.sink.rows == counted(6)


def test_a_newest_segment_that_is_gone_is_refused_though_spark_does_not_know_its_rows(
    checkpoint: Checkpointed,
) -> None:
    checkpoint.drain(log_live(count=5))
    stopped = threading.Event()
    checkpoint.sink.after = lambda batch: wait_until(stopped.is_set, "the query is being stopped")
    with checkpoint.running(log_live(count=1000), max_rows_per_trigger=1) as query:
        wait_until(lambda: len(checkpoint.segments()) > 1, "rows in the log")
        wait_until(lambda: len(checkpoint.sink.batches) > 1, "a batch is running")
        stopped.set()
        query.stop()
    checkpoint.segments()[-1].unlink()
    checkpoint.sink.after = lambda batch: None
    told = checkpoint.failure(log_live(count=0))
    assert "are lost. Set the option failOnDataLoss" in told


def test_a_foreign_file_among_the_segments_does_not_poison_a_later_start(checkpoint: Checkpointed) -> None:
    checkpoint.drain(log_counted(count=3))
    foreign = checkpoint.folder / "sources" / "0" / "99999999-000000000000.segment"
    foreign.write_bytes(b"not a segment")
    for count in (6, 9, 12):
        assert checkpoint.drain(log_counted(count=count)) == counted(count)
    foreign.write_bytes(checkpoint.segments()[0].read_bytes())
    assert f"{foreign.name} is not a segment of this log" in checkpoint.failure(log_counted())


def test_a_damaged_manifest_is_said_to_be_damaged(checkpoint: Checkpointed) -> None:
    checkpoint.drain(log_counted(count=3))
    (manifest,) = (checkpoint.folder / "sources" / "0").glob("manifest-*.json")
    manifest.write_text(manifest.read_text().replace('"shards":1', '"shards":2'))
    assert f"{manifest.name} is damaged: " in checkpoint.failure(log_counted())


def test_frames_have_the_shard_and_the_arrival_time_of_their_rows(checkpoint: Checkpointed) -> None:
    before = time.time_ns() // 1000
    checkpoint.drain(log_sharded(), concurrency=3)
    after = time.time_ns() // 1000
    (segment,) = checkpoint.segments()
    data = segment.read_bytes()
    at = 16 + struct.unpack_from("<I", data, 8)[0]
    assert before <= json.loads(data[16:at])["arrived"] <= after
    shards = set()
    while at < len(data):
        kind, shard, rows, arrived, stored, noted = struct.unpack_from("<12xB3xii8xqi8xi", data, at)
        if kind == 1 and rows:
            assert before <= arrived <= after
            shards.add(shard)
        at += 60 + noted + stored
    assert shards == {0, 1, 2}


def test_no_log_is_kept_where_there_is_no_checkpoint(spark_session: SparkSession) -> None:
    query = hw.stream(spark_session, log_live()).writeStream.format("noop").start()
    try:
        wait_until(lambda: query.lastProgress and int(rows_read(query)) == 1000, "all rows")
        assert (
            json.loads(query.lastProgress["sources"][0]["endOffset"].replace("'", '"'))["durability"] == "log"
        )
    finally:
        query.stop()


def test_the_checkpoint_tool_agrees_with_what_the_jvm_has_written(checkpoint: Checkpointed) -> None:
    checkpoint.drain(log_counted(count=300), log_compression="lz4")
    checkpoint.drain(log_counted(count=600))
    command = [sys.executable, "-m", "headwater", "checkpoint"]
    verify = subprocess.run([*command, "verify", str(checkpoint.folder)], capture_output=True, text=True)
    assert verify.returncode == 0, verify.stdout + verify.stderr
    show = subprocess.run(
        [*command, "show", "--json", str(checkpoint.folder)], capture_output=True, text=True, check=True
    )
    assert '"last": 599' in show.stdout or '"last":599' in show.stdout
    segment = checkpoint.segments()[0]
    data = bytearray(segment.read_bytes())
    data[-20] ^= 1
    segment.write_bytes(data)
    verify = subprocess.run([*command, "verify", str(checkpoint.folder)], capture_output=True, text=True)
    assert verify.returncode == 1
    assert segment.name in verify.stdout


CURSORS: list[Any] = []


@hw.source("n LONG")
def log_with_cursors(*, since: Any = None) -> Iterator[Any]:
    """A row for each cursor, then nothing until it is stopped."""
    SINCE.append(since)
    for n, cursor in enumerate(CURSORS):
        yield hw.At(cursor, (n,))


@pytest.mark.parametrize(
    ("cursor", "limit"),
    [
        (10**1500, "it has a number of more than 1000 digits"),
        ("x" * (9 << 20), "has 9,437,186 bytes; the limit is 8,388,608"),
        ({"deep": eval("[" * 90 + "[" * 90 + "]" * 180)}, "nested more than 100 levels deep"),
    ],
    ids=["digits", "bytes", "levels"],
)
def test_a_cursor_that_no_start_could_read_is_refused_and_the_checkpoint_starts_again(
    checkpoint: Checkpointed, cursor: Any, limit: str
) -> None:
    CURSORS[:] = [1, cursor]
    message = checkpoint.failure(log_with_cursors())
    assert "source 'log_with_cursors' failed" in message
    assert limit in message
    before = len(checkpoint.sink.rows)
    assert before in (0, 1)  # both rows may have come in one batch, with the cursor of the second
    CURSORS[:] = [2, 3]
    checkpoint.drain(log_with_cursors())
    assert SINCE[-1] in (None, 1)
    assert len(checkpoint.sink.rows) >= before + 2
