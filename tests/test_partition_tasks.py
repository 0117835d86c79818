"""Reading on executors: ranges in, Arrow messages and reports out; and how a source gets there.

Imports private modules: what a task does is tested without Spark, and with faults that Spark would hide.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import PACKAGE, Run, fork
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater import registry
from headwater._version import __version__
from headwater.definition import schema_of_source
from headwater.runtime.protocol import WatchRequest
from headwater.runtime.tasks import TASK_BYTES, RangeReader, ReaderSpec, task_function
from headwater.schema import arrow_schema

Ranges = list[tuple[Any, int, int]]

ANSWER = pa.schema([("report", pa.string()), ("rows", pa.binary())])


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test defines is gone after it, and no Spark hears of it."""
    monkeypatch.setattr(registry, "_sources", {})
    monkeypatch.setattr(registry, "_listeners", [])


def define(
    read: Callable[..., Any] | None = None,
    *,
    schema: str = "p STRING, o LONG",
    earliest: Callable[..., Any] = lambda self, p: 0,
    close: Callable[..., Any] = lambda self: None,
) -> Any:
    """A source whose rows are (partition, offset), or what `read` gives."""

    def rows(self: Any, p: Any, start: int, end: int) -> Iterator[Any]:
        for offset in range(start, end):
            yield str(p), offset

    def init(self: Any, token: hw.Secret | None = None) -> None:
        self.token = token

    body = {
        "__init__": init,
        "partitions": lambda self: ["a"],
        "earliest": earliest,
        "latest": lambda self, p: 1000,
        "read": read or rows,
        "close": close,
    }
    registry._sources.clear()
    kind: Any = type(hw.PartitionedSource)
    return kind("Made", (hw.PartitionedSource,), body, name="made", schema=schema)


def request(**policies: Any) -> WatchRequest:
    fields = {"onError": "fail", "onBadRow": "fail", "batchRows": 8192, "failOnDataLoss": True, **policies}
    message = {"feed": "7", "source": "made", "options": {}, "startFrom": {"kind": "earliest"}, "known": []}
    return WatchRequest.parse({**message, **fields})


def tasks(*each: Ranges) -> Iterator[pa.RecordBatch]:
    """A batch with a row for each task."""
    texts = [
        json.dumps(
            {
                "ranges": [
                    {
                        "i": number,
                        "p": str(p),
                        "kind": "int" if isinstance(p, int) else "text",
                        "start": s,
                        "end": e,
                    }
                    for number, (p, s, e) in enumerate(ranges)
                ]
            }
        )
        for ranges in each
    ]
    return iter([pa.record_batch({"task": pa.array(texts, pa.string())})])


class Answers:
    """What came of tasks."""

    def __init__(self, source: Any, batches: Iterator[pa.RecordBatch]) -> None:
        self.rows: list[Any] = []
        self.messages: list[pa.RecordBatch] = []
        self.reports: list[dict[str, Any]] = []
        schema = arrow_schema(schema_of_source(source))
        for batch in batches:
            assert batch.schema == ANSWER
            for report, rows in zip(*batch.columns, strict=True):
                assert report.is_valid != rows.is_valid
                if rows.is_valid:
                    message = pa.ipc.read_record_batch(rows.as_buffer(), schema)
                    message.validate(full=True)
                    self.messages.append(message)
                    self.rows += [tuple(row.values()) for row in message.to_pylist()]
                else:
                    self.reports.append(json.loads(report.as_py()))


def run(
    source: Any, *each: Ranges, sleep: Callable[[float], None] = lambda s: None, **policies: Any
) -> Answers:
    return Answers(source, RangeReader(ReaderSpec.of(source, request(**policies)), sleep).read(tasks(*each)))


def failure(source: Any, *each: Ranges, **policies: Any) -> str:
    with pytest.raises(RuntimeError) as caught:
        run(source, *each, **policies)
    assert caught.value.__suppress_context__, "Spark would print what led to it first"
    return str(caught.value)


# What comes out


def test_each_range_has_its_rows_in_order_and_then_a_report() -> None:
    answers = run(define()(), [("a", 0, 3), ("b", 7, 7), (5, 2, 4)], [("a", 3, 4)])
    assert answers.rows == [("a", 0), ("a", 1), ("a", 2), ("5", 2), ("5", 3), ("a", 3)]
    assert answers.reports == [
        {"i": i, "rows": rows, "bad": 0, "samples": [], "lost": 0}
        for i, rows in ((0, 3), (1, 0), (2, 2), (0, 1))
    ]


def test_read_receives_the_name_as_a_string_or_an_integer() -> None:
    seen: list[Any] = []

    def read(self: Any, p: Any, start: int, end: int) -> Iterator[Any]:
        seen.append(p)
        return iter(())

    run(define(read)(), [("7", 0, 1), (7, 0, 1)])
    assert seen == ["7", 7]


def test_a_task_has_one_instance_which_is_closed_even_if_the_task_is_cut_short() -> None:
    closed: list[Any] = []
    source = define(close=lambda self: closed.append(id(self)))()
    run(source, [("a", 0, 3), ("b", 0, 3)])
    assert len(closed) == 1
    batches = RangeReader(ReaderSpec.of(source, request())).read(tasks([("a", 0, 3)]))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert len(closed) == 2


def test_an_error_in_close_does_not_fail_the_task(caplog: pytest.LogCaptureFixture) -> None:
    def close(self: Any) -> None:
        raise OSError("hush-hush")

    assert len(run(define(close=close)(hw.Secret("hush-hush")), [("a", 0, 3)]).rows) == 3
    assert "close failed: OSError: ***" in caplog.text
    assert "hush" not in caplog.text


def mixed(seed: int, faults: list[int]) -> Any:
    """Rows in all the forms that there are, and errors at some offsets, each of them once."""
    left = list(faults)

    def read(self: Any, p: Any, start: int, end: int) -> Iterator[Any]:
        dice, offset = random.Random(seed), start
        while offset < end:
            many = min(dice.choice([1, 1, 1, 2, 7, 40]), end - offset)
            rows = [(str(p), o) for o in range(offset, offset + many)]
            table = pa.table({"o": [o for _, o in rows], "p": [name for name, _ in rows]})
            if dice.random() < 0.5:
                yield from rows
            else:
                yield dice.choice(
                    [rows, table, table.to_pandas(), *table.to_batches(), [{"p": n, "o": o} for n, o in rows]]
                )
            offset += many
            for fault in [fault for fault in left if fault < offset]:
                left.remove(fault)
                raise OSError(f"fault at {fault}")

    return define(read)()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(1, 199), max_size=6, unique=True),
    faults=st.lists(st.integers(0, 199), max_size=3),
    batch_rows=st.sampled_from([1, 3, 64, 8192]),
)
def test_rows_are_the_same_however_ranges_are_cut_and_reads_fail(
    seed: int, cuts: list[int], faults: list[int], batch_rows: int
) -> None:
    edges = [0, *sorted(cuts), 200]
    ranges = [("a", start, end) for start, end in pairwise(edges)]
    answers = run(mixed(seed, faults), ranges, onError="restart", maxRestarts=3, batchRows=batch_rows)
    assert answers.rows == [("a", offset) for offset in range(200)]
    assert [report["rows"] for report in answers.reports] == [end - start for _, start, end in ranges]
    assert [report["i"] for report in answers.reports] == list(range(len(ranges)))


# The size of messages


def table_of(rows: int, width: int = 12) -> pa.RecordBatch:
    return pa.record_batch({"p": pa.array(["x" * width] * rows), "o": pa.array(range(rows), pa.int64())})


def yielding(*items: Any) -> Any:
    return define(lambda self, p, start, end: iter(items))()


def test_single_rows_are_collected_into_batches() -> None:
    sizes = [message.num_rows for message in run(define()(), [("a", 0, 30_000)]).messages]
    assert sum(sizes) == 30_000
    assert len(sizes) < 10
    assert max(sizes) <= 8192 + 512


def test_small_tables_are_joined_and_larger_ones_stay_as_they_are() -> None:
    small = run(yielding(*[table_of(10)] * 2000), [("a", 0, 20_000)])
    assert len(small.messages) < 8, "the first are smaller, until it is known what rows weigh"
    assert len(small.rows) == 20_000
    good = run(yielding(*[table_of(9000)] * 3), [("a", 0, 27_000)])
    assert [message.num_rows for message in good.messages] == [9000, 9000, 9000]


def test_large_tables_are_cut_but_a_row_stays_whole() -> None:
    answers = run(yielding(table_of(100_000)), [("a", 0, 100_000)])
    assert len(answers.rows) == 100_000
    assert max(message.nbytes for message in answers.messages) <= TASK_BYTES
    heavy = run(yielding(("x" * 3 * TASK_BYTES, 1), ("y", 2)), [("a", 0, 2)])
    assert [message.num_rows for message in heavy.messages] == [1, 1]


def test_batches_of_large_rows_have_few_rows() -> None:
    most = 0

    def read(self: Any, p: Any, start: int, end: int) -> Iterator[Any]:
        for offset in range(start, end):
            yield "x" * 20_000, offset

    for message in run(define(read)(), [("a", 0, 2000)]).messages[1:]:
        most = max(most, message.num_rows)
    assert most <= TASK_BYTES // 20_000


# What a source may not do


def test_more_rows_than_offsets_are_an_error_before_they_are_sent() -> None:
    source = yielding(*[("a", n) for n in range(5)])
    batches = RangeReader(ReaderSpec.of(source, request(batchRows=1))).read(tasks([("a", 5, 9)]))
    batches_read: list[pa.RecordBatch] = []
    with pytest.raises(RuntimeError) as caught:
        batches_read.extend(batches)
    assert str(caught.value) == (
        "source 'made', read('a', 5, 9): read('a', 5, 9) yielded 5 rows or more; offsets increase, so there "
        "can be at most 4"
    )
    assert len(batches_read) <= 4
    assert "at most 4" in failure(yielding(table_of(5)), [("a", 5, 9)])


def test_a_row_with_a_cursor_is_refused() -> None:
    for items in ([hw.At(1, ("a", 1))], [("a", 0), ("a", 1), hw.At(1, ("a", 2))]):
        message = failure(yielding(*items), [("a", 0, 9)], onError="restart")
        assert message.startswith(
            "source 'made', read('a', 0, 9): a partitioned source yields rows, not hw.At"
        )


def test_read_must_return_rows() -> None:
    source = define(lambda self, p, start, end: 7)()
    assert "TypeError: read of made() returned 7 of type int, not rows" in failure(source, [("a", 0, 9)])


def test_an_invalid_earliest_is_named() -> None:
    message = failure(define(earliest=lambda self, p: "x")(), [("a", 0, 9)])
    assert message.startswith(
        "source 'made', read('a', 0, 9): earliest('a') returned 'x' of type str; an offset is"
    )


def test_bad_rows_fail_or_are_dropped_or_nulled_and_are_counted() -> None:
    rows = [("a", 0), ("a", "no"), ("a", 2), hw.BadRow("?", "no row"), (None, 4)]
    message = failure(yielding(*rows), [("a", 0, 9)], onError="restart")
    assert message.startswith(
        "source 'made', read('a', 0, 9): BadRowError: row 1, field 'o': str does not fit"
    )
    assert "Set the option onBadRow to drop, null or keep" in message
    dropped = run(yielding(*rows), [("a", 0, 9)], onBadRow="drop")
    assert dropped.rows == [("a", 0), ("a", 2), (None, 4)]
    assert (dropped.reports[0]["rows"], dropped.reports[0]["bad"]) == (3, 2)
    assert [sample[:5] for sample in dropped.reports[0]["samples"]] == ["row 1", "row 3"]
    nulled = run(yielding(*rows), [("a", 0, 9)], onBadRow="null")
    assert nulled.rows == [("a", 0), ("a", None), ("a", 2), (None, 4)]
    many = run(yielding(*[("a", "hush-hush")] * 50), [("a", 0, 99)], onBadRow="drop")
    assert (many.reports[0]["bad"], len(many.reports[0]["samples"])) == (50, 10)


def test_samples_contain_no_secrets() -> None:
    source = define(lambda self, p, start, end: iter([("a", self.token.reveal())]))(hw.Secret("hush-hush"))
    answers = run(source, [("a", 0, 9)], onBadRow="drop")
    assert "***" in answers.reports[0]["samples"][0]
    assert "hush" not in json.dumps(answers.reports)


# Errors


def failing(times: int, at: int = 3) -> Any:
    """Raises so often when it comes to an offset, and tells which instances have read."""
    state: dict[str, Any] = {"left": times, "instances": [], "closed": 0}

    def read(self: Any, p: Any, start: int, end: int) -> Iterator[Any]:
        state["instances"].append(id(self))
        state.setdefault("kept", []).append(self)
        for offset in range(start, end):
            if offset == at and state["left"]:
                state["left"] -= 1
                raise OSError(f"no route with {self.token.reveal()}")
            yield str(p), offset

    def close(self: Any) -> None:
        state["closed"] += 1

    source = define(read, close=close)(hw.Secret("hush-hush"))
    type(source)._state = state
    return source


def test_an_error_fails_the_task_with_its_place_a_remedy_and_the_traceback() -> None:
    message = failure(failing(1), [("a", 0, 9)])
    first, _, traceback = message.partition("\n\n")
    assert re.fullmatch(
        r"source 'made', read\('a', 0, 9\): OSError: no route with \*\*\* \(test_partition_tasks\.py:\d+, in "
        r"read\)\. Set the option onError to restart to read a range again after an error\.",
        first,
    )
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert traceback.endswith("OSError: no route with ***")
    assert "hush" not in message
    assert "headwater/runtime" not in message


def test_with_restart_a_range_is_read_again_on_a_new_instance_without_repeating_rows() -> None:
    source, pauses = failing(3), list[float]()
    answers = run(source, [("a", 0, 9)], onError="restart", sleep=pauses.append)
    assert answers.rows == [("a", offset) for offset in range(9)]
    assert len(set(source._state["instances"])) == source._state["closed"] == 4
    assert len(pauses) == 3
    assert pauses[0] < pauses[2]


def test_after_max_restarts_the_task_fails() -> None:
    source = failing(99)
    assert "OSError: no route" in failure(source, [("a", 0, 9)], onError="restart", maxRestarts=2)
    assert len(source._state["instances"]) == source._state["closed"] == 3
    for policy in ("fail", "end"):
        source = failing(99)
        failure(source, [("a", 0, 9)], onError=policy)
        assert len(source._state["instances"]) == 1


def test_a_range_that_gives_fewer_rows_than_before_is_an_error() -> None:
    tries: list[int] = []

    def read(self: Any, p: Any, start: int, end: int) -> Iterator[Any]:
        tries.append(1)
        yield "a", 0
        if len(tries) == 1:
            yield "a", 1
            raise OSError("gone")

    message = failure(define(read)(), [("a", 0, 9)], onError="restart")
    assert "yielded 1 rows, and 2 before it failed; the same range must yield the same rows" in message


def test_earliest_is_called_again_after_a_failure() -> None:
    left = [OSError("gone"), OSError("gone")]

    def earliest(self: Any, p: Any) -> int:
        if left:
            raise left.pop()
        return 0

    assert len(run(define(earliest=earliest)(), [("a", 0, 9)], onError="restart").rows) == 9


# Data loss


def test_lost_offsets_fail_the_task_or_are_counted() -> None:
    source = define(earliest=lambda self, p: 5)()
    assert failure(source, [("a", 3, 9)]) == (
        "source 'made', read('a', 3, 9): offsets 3 to 4 of partition 'a' are gone, and were not read yet. "
        "Set the option failOnDataLoss to false to continue without them"
    )
    assert "offsets 0 to 3 of partition 'a' are gone" in failure(source, [("a", 0, 4)])
    answers = run(source, [("a", 3, 9), ("a", 0, 4), ("a", 5, 6)], failOnDataLoss=False)
    assert answers.rows == [("a", 5), ("a", 6), ("a", 7), ("a", 8), ("a", 5)]
    assert [(report["lost"], report["rows"]) for report in answers.reports] == [(2, 4), (4, 0), (0, 1)]


# From the driver to the executors


DRIVER = """
import sys
import headwater as hw
from headwater.runtime.protocol import WatchRequest
from headwater.runtime.tasks import task_function
from pyspark import cloudpickle
{imports}
message = {{"feed": "7", "source": "x", "options": {{}}, "startFrom": {{"kind": "earliest"}}, "known": [],
           "onError": "fail", "onBadRow": "fail", "batchRows": 10, "failOnDataLoss": True}}
function = task_function(Letters(token=hw.Secret("hush"), words=["x", "y"]), WatchRequest.parse(message))
with open("function", "wb") as file:
    file.write(cloudpickle.dumps(function))
"""

SOURCE = """
import headwater as hw

HELPER = "by a global"

class Letters(hw.PartitionedSource, name="letters", schema="word STRING, secret STRING, how STRING"):
    def __init__(self, token: hw.Secret, words: list[str]):
        super().__init__()
        self.token, self.words = token, words
    def partitions(self): return [0]
    def earliest(self, p): return 0
    def latest(self, p): return 2
    def read(self, p, start, end):
        for offset in range(start, end):
            yield self.words[offset], self.token.reveal(), HELPER
"""

WORKER = """
import json, pickle, sys
import pyarrow as pa
with open("function", "rb") as file:
    read = pickle.load(file)
task = {"ranges": [{"i": 0, "p": "0", "kind": "int", "start": 0, "end": 2}]}
try:
    batches = list(read(iter([pa.record_batch({"task": [json.dumps(task)]})])))
except RuntimeError as error:
    print("RuntimeError:", error)
else:
    schema = pa.schema([("word", pa.string()), ("secret", pa.string()), ("how", pa.string())])
    rows = [b.column(1)[0].as_buffer() for b in batches if b.column(1)[0].is_valid]
    print([tuple(r.values()) for m in rows for r in pa.ipc.read_record_batch(m, schema).to_pylist()])
    import headwater
    print("letters" in [source.name for source in headwater.registered()])
"""


def python(script: str, folder: Path, *arguments: str, path: str = "") -> str:
    (folder / "script.py").write_text(textwrap.dedent(script))
    done = subprocess.run(
        [sys.executable, *arguments, "script.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_class_of_the_main_program_is_pickled_by_value_and_not_registered(tmp_path: Path) -> None:
    python(DRIVER.format(imports=SOURCE), tmp_path)
    message = python(WORKER, tmp_path)
    assert message == "[('x', 'hush', 'by a global'), ('y', 'hush', 'by a global')]\nFalse\n"


def test_a_class_of_a_module_is_pickled_by_name(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "letters.py").write_text(SOURCE)
    python(DRIVER.format(imports="from letters import Letters"), tmp_path, path=str(tmp_path / "here"))
    assert b"by a global" not in (tmp_path / "function").read_bytes()
    assert python(WORKER, tmp_path, path=str(tmp_path / "here")).endswith("\nTrue\n")
    message = python(WORKER, tmp_path)
    assert message.startswith(
        "RuntimeError: source 'letters' cannot be read here: its module 'letters' cannot "
        f"be loaded by {sys.executable}, the Python of Spark's workers (ModuleNotFoundError: No module named "
        "'letters'). Install it there, or send its file with spark-submit --py-files or "
        "sparkContext.addPyFile"
    )


def test_a_worker_without_headwater_reports_it(tmp_path: Path) -> None:
    python(DRIVER.format(imports=SOURCE), tmp_path)
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for module in ("pyarrow", "pyspark", "numpy", "py4j"):
        package = Path(__import__(module).__file__ or "").parent
        for folder in (package, package.with_name(f"{module}.libs")):
            if folder.exists():
                (libraries / folder.name).symlink_to(folder)
    message = python(WORKER, tmp_path, "-S", path=str(libraries))
    assert message.startswith(
        f"RuntimeError: source 'letters' cannot be read here: {sys.executable}, the Python of Spark's "
        f"workers, has no headwater (No module named 'headwater'). Install headwater=={__version__} for it, "
        "or set PYSPARK_PYTHON to a Python that has it, before Spark is started"
    )


def test_a_worker_with_another_version_of_headwater_reports_it(tmp_path: Path, copy_of_package: Path) -> None:
    python(DRIVER.format(imports=SOURCE), tmp_path)
    version = copy_of_package / "headwater" / "_version.py"
    version.write_text(version.read_text().replace(__version__, "99.0.0"))
    message = python(WORKER, tmp_path, path=str(copy_of_package))
    assert message.startswith(
        f"RuntimeError: source 'letters' cannot be read here: {sys.executable}, the Python of Spark's "
        f"workers, has headwater 99.0.0, and the driver has {__version__}. Install headwater=={__version__} "
        "for it"
    )


def test_a_source_that_cannot_be_pickled_is_an_error_on_the_driver() -> None:
    import threading

    lock = threading.Lock()

    def read(self: Any, p: Any, start: int, end: int) -> Iterator[Any]:
        with lock:
            yield "a", 1

    source = define(read)()
    with pytest.raises(
        hw.HeadwaterError, match=r"^source 'made' cannot be sent to Spark's executors: TypeError"
    ) as e:
        task_function(source, request())
    assert "create what cannot be pickled, such as connections and locks, in __init__" in str(e.value)


def test_importing_the_tasks_module_does_not_import_pyspark(tmp_path: Path) -> None:
    script = """
        import sys, headwater.runtime.tasks
        print(sorted(name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j")))
    """
    assert python(script, tmp_path, path=str(PACKAGE)) == "[]\n"


def test_the_task_function_holds_only_bytes_and_strings() -> None:
    function = task_function(define()(hw.Secret("hush")), request())
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    assert {type(value) for value in held} == {bytes, str}
    assert "hush" not in repr([value for value in held if isinstance(value, str)])
    assert cloudpickle.dumps(function)


# In Spark


def frame(spark: SparkSession, source: Any, *each: Ranges, **policies: Any) -> DataFrame:
    """As the JVM makes it: a row for each task, and a task for each row."""
    rows = [(task,) for batch in tasks(*each) for task in batch.column(0).to_pylist()]
    tasks_frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, len(rows)), "task STRING")
    return tasks_frame.mapInArrow(task_function(source, request(**policies)), "report STRING, rows BINARY")


@pytest.mark.usefixtures("by_value")
def test_spark_runs_the_task_function_over_a_frame_of_tasks(spark_session: SparkSession) -> None:
    source = define()(hw.Secret("hush"))
    results = frame(spark_session, source, [("a", 0, 3), (1, 5, 6)], [("b", 0, 20_000)])
    assert results.schema.simpleString() == "struct<report:string,rows:binary>"
    batches = (pa.RecordBatch.from_pylist([row.asDict()], ANSWER) for row in results.collect())
    answers = Answers(source, batches)
    assert answers.rows == [("a", 0), ("a", 1), ("a", 2), ("1", 5), *(("b", o) for o in range(20_000))]
    assert [report["rows"] for report in answers.reports] == [3, 1, 20_000]


@pytest.mark.usefixtures("by_value")
def test_spark_shows_the_error_of_a_task(spark_session: SparkSession) -> None:
    results = frame(spark_session, define(earliest=lambda self, p: 5)(), [("a", 3, 9)])
    with pytest.raises(Exception, match="offsets 3 to 4 of partition 'a' are gone, and were not read yet"):
        results.collect()


def test_the_workers_of_a_new_local_session_run_this_python_unless_another_is_set(run: Run) -> None:
    pythons = run("""
        import os, sys
        del os.environ["PYSPARK_PYTHON"]
        pythons = {"this": sys.executable}

        def look(case, session_builder):
            spark = hw.session(session_builder)
            pythons[case] = [spark.sparkContext.pythonExec, os.environ.get("PYSPARK_PYTHON")]
            return spark

        spark = look("nothing", builder())
        workers = spark.sparkContext.parallelize([1]).map(lambda _: __import__("sys").executable)
        pythons["worker"] = workers.first()
        os.environ["PYSPARK_PYTHON"] = "python3.99"
        look("running", builder())
        spark.stop()
        look("variable", builder()).stop()
        del os.environ["PYSPARK_PYTHON"]
        look("setting", builder().config("spark.pyspark.python", "other")).stop()
        report(pythons)
    """)
    this = pythons["this"]
    assert pythons["nothing"] == [this, this]
    assert pythons["worker"] == this
    assert pythons["running"] == [this, "python3.99"]
    assert pythons["variable"] == ["python3.99"] * 2
    assert pythons["setting"] == ["python3", None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("way", ["yield", "raise", "return"])
def test_a_forked_child_that_goes_on_reading_is_ended_and_yields_nothing(way: str) -> None:
    def read(self: Any, p: str, start: int, end: int) -> Iterator[Any]:
        yield "before", 0
        child = fork()
        if child:
            yield "after", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        elif way == "raise":
            raise ValueError("in the child")
        elif way == "yield":
            yield "child", 1

    test = os.getpid()
    try:
        answers = run(define(read)(), [("a", 0, 5)])
    finally:
        if os.getpid() != test:
            os._exit(0)
    assert answers.rows == [("before", 0), ("after", 1)]
