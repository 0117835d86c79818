"""`headwater peek`: the first rows of a source without Spark, and its error messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import default_sigint

from headwater import registry
from headwater.cli.main import main

HEAD = """
import asyncio, datetime, decimal
import headwater as hw
"""

FEEDS = """
@hw.source("n INT, word STRING")
def letters(length: int = 2, count: int = 12, *, token: hw.Secret | None = None):
    '''Letters.'''
    for n in range(count):
        yield n, chr(97 + n) * length

class Closing(hw.Source, name="closing", schema="n INT"):
    def read(self):
        try:
            yield [1, 2, 3]
        finally:
            print("end of read")

    def close(self):
        print("closed")

@hw.source("n INT")
async def waiting():
    try:
        yield 1
        yield 2
        await asyncio.Event().wait()
    finally:
        print("ended")
"""


class Done:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def table(self) -> list[list[str]]:
        """The rows, without names and rule."""
        return [line.split() for line in self.out.splitlines()[2:]]

    @property
    def objects(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def message(self) -> str:
        """The one line of an error."""
        assert self.status == 1
        (line,) = self.err.splitlines()
        assert line.startswith("headwater: ")
        return line.removeprefix("headwater: ")


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in an empty folder, where `feeds.py` has the code that is given."""
    monkeypatch.setattr(registry, "_listeners", [])
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", os.getcwd())])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)

    def run_main(*arguments: str, code: str = FEEDS, file: str = "feeds.py") -> Done:
        monkeypatch.setattr(registry, "_sources", {})
        for name in ("feeds", "inner", "inner.feeds"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(HEAD + textwrap.dedent(code), encoding="utf-8")
        status = main(["peek", *arguments])
        captured = capsys.readouterr()
        return Done(status, captured.out, captured.err)

    return run_main


# Rows


def test_the_first_rows_are_printed_as_a_table(run: Run) -> None:
    done = run("feeds:letters", "-n", "2", "-o", "length=3")
    assert (done.status, done.err) == (0, "")
    assert done.out == "n  word\n-  ----\n0  aaa\n1  bbb\n"


def test_ten_rows_are_shown_by_default(run: Run) -> None:
    assert len(run("feeds:letters").table) == 10


def test_a_source_that_ends_early_is_reported(run: Run) -> None:
    done = run("feeds:letters", "-o", "count=3")
    assert (done.status, len(done.table)) == (0, 3)
    assert done.err == "headwater: letters(count=3) ended after 3 rows\n"
    empty = run("feeds:letters", "-o", "count=0")
    assert (empty.status, empty.out) == (0, "n  word\n-  ----\n")
    assert empty.err == "headwater: letters(count=0) ended after 0 rows\n"


def test_json_is_one_object_per_line(run: Run) -> None:
    done = run("feeds:letters", "-n", "2", "--json")
    assert done.objects == [{"n": 0, "word": "aa"}, {"n": 1, "word": "bb"}]


@pytest.mark.parametrize("target", ["feeds:letters", "feeds.py:LETTERS", "./feeds.py:letters"])
def test_a_module_is_a_name_or_a_file(run: Run, target: str) -> None:
    assert run(target, "-n", "1").table == [["0", "aa"]]


def test_a_file_in_another_folder_may_import_modules_beside_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "beside_it.py").write_text("WORD = 'x'")
    code = """
        from beside_it import WORD
        @hw.source("word STRING")
        def words():
            yield WORD
    """
    assert run("inner/feeds.py:words", code=code, file="inner/feeds.py").table == [["x"]]
    assert run("inner.feeds:words", code=code, file="inner/feeds.py").table == [["x"]]


def test_a_file_may_have_the_name_of_a_standard_module(run: Run) -> None:
    assert run("queue.py:letters", "-n", "1", file="queue.py").table == [["0", "aa"]]


def test_the_source_is_closed_after_the_last_row(run: Run) -> None:
    assert run("feeds:closing", "-n", "2", "--json").out == '{"n": 1}\n{"n": 2}\nend of read\nclosed\n'


ITEMS = """
import pandas, pyarrow
@hw.source("n INT")
def items(*, since=None):
    yield hw.At("a", 1)
    yield hw.CAUGHT_UP
    yield hw.At("b", [2, 3])
    yield hw.At("c", pyarrow.RecordBatch.from_pydict({"n": [4, 5]}))
    yield hw.At("d", pandas.DataFrame({"n": [6, 7]}))
@hw.source("n INT")
async def later():
    yield [1, 2]
    await asyncio.sleep(0)
    yield pyarrow.table({"n": [3, 4]})
@hw.source("xs ARRAY<INT>")
def arrays():
    yield [1, 2]
"""


def test_items_of_every_kind_are_rows(run: Run) -> None:
    rows = [{"n": n} for n in range(1, 8)]
    for limit in range(1, 8):
        assert run("feeds:items", "-n", str(limit), "--json", code=ITEMS).objects == rows[:limit]
    assert run("feeds:later", "--json", code=ITEMS).objects == rows[:4]
    assert run("feeds:arrays", "--json", code=ITEMS).objects == [{"xs": [1, 2]}]


def test_values_of_every_type_are_printed(run: Run) -> None:
    code = """
        @hw.source('''b BOOLEAN, d DOUBLE, m MAP<INT, STRING>, s STRUCT<a: INT, l: ARRAY<STRING>>,
                      x DECIMAL(4, 2), t TIMESTAMP, y DATE, i INTERVAL DAY TO SECOND, z BINARY, u STRING''')
        def types():
            at = datetime.datetime(2024, 5, 31, 12, tzinfo=datetime.timezone.utc)
            yield (True, float("inf"), {1: "a"}, {"a": 1, "l": ["x", None]}, decimal.Decimal("1.5"), at,
                   at.date(), datetime.timedelta(hours=1), b"xx", "é\\n\\x1b[2J")
            yield (None,) * 10
    """
    first, second = run("feeds:types", "--json", code=code).objects
    assert first == {
        "b": True,
        "d": "Infinity",
        "m": {"1": "a"},
        "s": {"a": 1, "l": ["x", None]},
        "x": "1.50",
        "t": "2024-05-31T12:00:00+00:00",
        "y": "2024-05-31",
        "i": "1:00:00",
        "z": "eHg=",
        "u": "é\n\x1b[2J",
    }
    assert set(second.values()) == {None}
    lines = run("feeds:types", code=code).out.splitlines()
    assert len(lines) == 4
    assert lines[2].endswith("é\\n\\x1b[2J")  # a terminal is not moved by it


def test_bytes_that_are_text_are_shown_as_text(run: Run) -> None:
    code = r"""
        @hw.source("b BINARY, s STRUCT<b: BINARY>")
        def binary():
            yield "Grüße".encode(), {"b": b"ab"}
            yield b"\xff\x00z", {"b": b"\xff"}
            yield b"\x1b[2J\xc2\x9b", {"b": None}
    """
    assert run("feeds:binary", code=code).table == [
        ["Grüße", '{"b":', '"ab"}'],
        [r"b'\xff\x00z'", '{"b":', r""""b'\\xff'"}"""],
        [r"\x1b[2J\x9b", '{"b":', "null}"],
    ]
    rows = run("feeds:binary", "--json", code=code).objects  # as in Spark's to_json, and without loss
    assert [row["b"] for row in rows] == ["R3LDvMOfZQ==", "/wB6", "G1sySsKb"]


UNPRINTABLE = "\x1b]0;title\x07 \x9b31m \u202e \u2066 \u200b"
ESCAPED = r"\x1b]0;title\x07 \x9b31m \u202e \u2066 \u200b"


def test_nothing_that_a_source_says_reaches_the_terminal_unescaped(run: Run) -> None:
    code = f"""
        @hw.source("word STRING, words ARRAY<STRING>")
        def evil():
            yield {UNPRINTABLE!r}, [{UNPRINTABLE!r}]
        @hw.source("word STRING")
        def failing():
            raise OSError({UNPRINTABLE!r} + "\\nsecond line")
            yield
        @hw.source("n INT")
        def bad():
            yield {UNPRINTABLE!r}
    """
    done = run("feeds:evil", "-n", "1", code=code)
    assert done.out.splitlines()[2].startswith(f"{ESCAPED}  [")
    done = run("feeds:evil", "-n", "1", "--json", code=code)
    assert done.objects == [{"word": UNPRINTABLE, "words": [UNPRINTABLE]}]
    assert done.out.rstrip("\n").isprintable()
    failed = run("feeds:failing", code=code)
    assert failed.err.endswith(f"OSError: {ESCAPED}\nsecond line\n")
    for done in (failed, run("feeds:bad", code=code)):
        assert all(line.isprintable() for line in done.err.splitlines())


def test_the_only_source_of_a_file_needs_no_name(run: Run) -> None:
    one = """
        from headwater.sources import sse
        @hw.source("n INT")
        def one():
            yield 1
    """
    assert run("feeds.py", code=one).table == [["1"]]
    assert run("./feeds.py", code=one).table == [["1"]]
    message = run("feeds.py", code="from headwater.sources import random_alpha").message()
    assert message.startswith("the rows of source 'random_alpha' are made in Spark's JVM")
    assert run("feeds.py", code="").message().startswith("there is no source in feeds.py. Fix: define one")


USES_SPARK = """
from pyspark.sql import SparkSession
{session}
@hw.source("n INT")
def above():
    yield 1
{use}
@hw.source("n INT")
def below():
    yield 2
"""


@pytest.mark.parametrize("file", ["feeds", "feeds.py"])
@pytest.mark.parametrize(
    "session",
    [
        "spark = hw.session()",
        "spark = SparkSession.builder.master('local').getOrCreate()",
        "spark = hw.session(SparkSession.builder.master('local[1]'))",
        "spark = hw.attach(SparkSession.builder.getOrCreate())",
    ],
)
@pytest.mark.parametrize("use", ["spark.sql('SELECT 1')", "hw.stream(spark, above())"])
def test_a_module_that_starts_spark_is_read_up_to_where_it_uses_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, file: str, session: str, use: str
) -> None:
    monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", None)  # it would start a JVM
    monkeypatch.setattr("headwater.spark.attach._driver", None)  # of other tests
    code = USES_SPARK.format(session=session, use=use)
    assert run(f"{file}:above", code=code).table == [["1"]]
    message = run(f"{file}:below", code=code).message()
    assert message.startswith(
        f"there is no source 'below' in what was read of {file}: it was read up to line"
    )
    assert "10 of " in message
    assert "feeds.py, where it uses Spark. Fix: put the code of the program below `if __name__" in message
    assert run(f"{file}:below", code=USES_SPARK.format(session=session, use="")).table == [["2"]]


def test_the_columns_of_a_table_are_aligned(run: Run) -> None:
    code = """
        @hw.source("number INT, word STRING, last STRING")
        def wide():
            yield 1, "日本", "a" * 100
            yield 200, "x", None
    """
    lines = run("feeds:wide", code=code).out.splitlines()
    assert lines == [
        "number  word  last",
        f"------  ----  {'-' * 60}",
        f"     1  日本  {'a' * 59}…",
        "   200  x     null",
    ]


# Errors


def test_a_bad_row_is_reported_after_the_rows_before_it(run: Run) -> None:
    code = """
        @hw.source("n INT, word STRING")
        def bad():
            yield [(0, "a"), (1, "b")]
            yield [(2, "c"), ("x", "d")]
    """
    for form in ([], ["--json"]):
        done = run("feeds:bad", *form, code=code)
        assert done.message() == (
            "bad(): row 3, field 'n': str does not fit; INT accepts an int from -2147483648 to 2147483647 "
            "(found: 'x')"
        )
        assert len(done.out.splitlines()) == (3 if form else 5)
    assert run("feeds:bad", "-n", "3", code=code).status == 0  # it was not asked for


@pytest.mark.parametrize(
    ("read", "message"),
    [
        ("yield (1, 2)", "broken(): row 0: the row has 2 values for 1 column: n (found: (1, 2))"),
        (
            "return None",
            "broken(): read of broken() returned None of type NoneType, not rows: make it a generator",
        ),
        (
            "yield hw.At(1, 1)",
            "broken(): a source that yields hw.At(cursor, rows) is resumable: add a parameter `since`",
        ),
    ],
)
def test_what_would_fail_a_feed_is_reported_on_one_line(run: Run, read: str, message: str) -> None:
    code = f"""
        @hw.source("n INT")
        def broken():
            {read}
    """
    assert run("feeds:broken", code=code).message().startswith(message)


def test_a_resumable_source_without_cursors_is_an_error(run: Run) -> None:
    code = """
        @hw.source("n INT")
        def forgetful(*, since=None):
            yield 5
    """
    message = run("feeds:forgetful", code=code).message()
    assert "only yield hw.At(cursor, row_or_rows); it yielded 5. Wrap its rows in hw.At, or remove" in message


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_error_in_read_shows_the_authors_traceback_alone_and_no_secret(run: Run, kind: str) -> None:
    code = f"""
        def connect(token):
            raise OSError("refused " + token.reveal())
        @hw.source("n INT")
        {kind} broken(token: hw.Secret):
            yield 1
            connect(token)
    """
    done = run("feeds:broken", "-o", "token=hush", code=code)
    assert (done.status, done.table) == (1, [["1"]])
    lines = done.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "OSError: refused ***"
    frames = [line.strip() for line in lines if line.strip().startswith("File ")]
    assert [frame.rpartition(" in ")[2] for frame in frames] == ["broken", "connect"]
    assert all("feeds.py" in frame for frame in frames)
    assert "hush" not in done.out + done.err


@pytest.mark.parametrize("ending", ["sys.exit(3)", "raise SystemExit"])
def test_a_read_that_exits_is_an_error_of_the_source(run: Run, ending: str) -> None:
    code = f"""
        import sys
        @hw.source("n INT")
        def leaving():
            yield 1
            {ending}
    """
    done = run("feeds:leaving", code=code)
    assert (done.status, done.table) == (1, [["1"]])
    assert "SystemExit" in done.err


def test_an_error_in_init_or_in_the_schema_is_reported_as_the_authors(run: Run) -> None:
    code = """
        class Picky(hw.Source, name="picky"):
            def __init__(self, columns: str = "n INT"):
                if not columns:
                    raise ValueError("columns must not be empty")
                self.columns = columns
            @property
            def schema(self):
                return self.columns
            def read(self):
                yield 1
    """
    done = run("feeds:picky", "-o", "columns=", code=code)
    assert done.status == 1
    assert done.err.startswith("Traceback ")
    assert done.err.endswith("ValueError: columns must not be empty\n")
    assert "headwater" not in done.err.replace("feeds.py", "")
    message = run("feeds:picky", "-o", "columns=n INTT", code=code).message()
    assert message.startswith("the schema of picky(columns='n INTT'): unknown type 'INTT'; a type is one of ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["fedes:letters"],
            "there is no module 'fedes', neither in {here} nor on Python's path. Fix: check its",
        ),
        (["feeds.inner:letters"], "there is no module 'feeds.inner', neither in "),
        (["no.such:letters"], "there is no module 'no.such' (there is no 'no'), neither in "),
        (["fedes.py:letters"], "there is no file {here}/fedes.py. Fix: write the path of a Python file"),
        (["feeds.txt:letters"], "there is no module 'feeds.txt'"),
        (["a/b:letters"], "'a/b' is neither a Python module nor a Python file. Fix: write a dotted name"),
        ([":letters"], "'' is neither a Python module nor a Python file. Fix: "),
        (
            ["feeds:lettres"],
            "there is no source 'lettres' in feeds; its sources are: closing, letters, waiting. Fix: ",
        ),
        (["json:letters"], "there is no source in json. Fix: define one with @hw.source(…) or class "),
        (["letters"], "there is no source 'letters'; the sources are: "),
        (
            ["feeds.py"],
            "feeds.py has 3 sources: closing, letters, waiting. Fix: name one of them, as in feeds",
        ),
        (["fedes.py"], "there is no file {here}/fedes.py. Fix: write the path of a Python file"),
        (["feeds:letters", "-n", "0"], "-n is '0', it must be an integer from 1. Fix: write -n 10"),
        (["feeds:letters", "-n", "ten"], "-n is 'ten', it must be an integer from 1"),
        (
            ["feeds:letters", "-o", "length=x"],
            "option 'length' of source 'letters' is 'x', it must be an integer",
        ),
        (
            ["feeds:letters", "-o", "lenght=1"],
            "source 'letters' has no option 'lenght'. Did you mean 'length'? Its op",
        ),
        (
            ["feeds:letters", "-o", "linger=1s"],
            "source 'letters' has no option 'linger'. linger is an option of every source",
        ),
        (
            ["feeds:letters", "-o", "length"],
            "an option after -o is not of the form KEY=VALUE. Fix: write -o length=8",
        ),
        (
            ["feeds:letters", "-o", "count=1", "-o", "count=2"],
            "option 'count' is set twice. Fix: keep one -o count",
        ),
        (
            ["feeds:letters", "-o", "count=1", "-o", "COUNT=2"],
            "source 'letters' got 'count' and 'COUNT', which are one option",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_reported_on_one_line(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    assert run(*arguments).message().startswith(message.format(here=tmp_path))


@pytest.mark.parametrize("target", ["random_alpha", "headwater.sources:random_alpha"])
def test_peek_cannot_show_the_rows_of_a_jvm_source(run: Run, target: str) -> None:
    message = run(target).message()
    assert message.startswith(
        "the rows of source 'random_alpha' are made in Spark's JVM, so there are none to show"
    )
    assert "Fix: read it in Spark with hw.stream(hw.session(), random_alpha(…))" in message


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("hw.source('n INTT')(len)", "ValueError: the schema of source 'len': unknown type 'INTT'"),
    ],
)
def test_an_error_of_the_module_itself_shows_its_traceback_alone(run: Run, code: str, message: str) -> None:
    for target in ("feeds:letters", "feeds.py:letters"):
        done = run(target, code=code)
        assert done.status == 1
        assert message in done.err
        files = [line for line in done.err.splitlines() if line.strip().startswith("File ")]
        assert len(files) == 1
        assert "feeds.py" in files[0]


def test_a_module_that_exits_is_an_error_with_a_remedy(run: Run) -> None:
    message = run("feeds:letters", code="import sys; sys.exit(3)").message()
    assert message.startswith(
        "importing feeds ended the program (exit status 3). Fix: put the code of the program below"
    )


# In its own process


def start(folder: Path, *arguments: str, code: str = FEEDS) -> subprocess.Popen[str]:
    (folder / "feeds.py").write_text(HEAD + textwrap.dedent(code), encoding="utf-8")
    command = [sys.executable, "-m", "headwater", "peek", *arguments]
    pipe = subprocess.PIPE
    with default_sigint():
        return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, encoding="utf-8")


BLOCKED = """
import threading
class Blocked(hw.Source, name="waiting", schema="n INT"):
    def read(self):
        yield 1
        yield 2
        threading.Event().wait()
    def close(self):
        print("ended")
"""


@pytest.mark.parametrize("code", [FEEDS, BLOCKED], ids=["async", "blocking"])
@pytest.mark.parametrize("form", ["table", "json"])
def test_an_interrupt_prints_the_rows_so_far_and_exits_cleanly(tmp_path: Path, code: str, form: str) -> None:
    waiting = "print('is waiting', flush=True); "
    for wait in ("await asyncio.Event()", "threading.Event()"):
        code = code.replace(wait, waiting + wait)
    process = start(tmp_path, "feeds:waiting", *(["--json"] if form == "json" else []), code=code)
    killer = threading.Timer(60, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        before = [process.stdout.readline() for _ in range(3 if form == "json" else 1)]
        assert before == ['{"n": 1}\n', '{"n": 2}\n', "is waiting\n"][-len(before) :]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    finally:
        killer.cancel()
        process.kill()
    assert (process.returncode, err) == (130, "headwater: interrupted\n")
    assert out == ("ended\n" if form == "json" else "ended\nn\n-\n1\n2\n")


ASYNC_ENDS = """
import functools

async def numbers(last):
    try:
        for n in range(100):
            await asyncio.sleep(0 if n < last else 3600)
            yield n
    finally:
        await asyncio.sleep(0.01)

@hw.source("n INT")
async def nested():
    async for n in numbers(3):
        yield n

@hw.source("n INT")
async def polled():
    rows, step = numbers(3), None
    while True:
        step = step or asyncio.ensure_future(rows.__anext__())
        done, _ = await asyncio.wait({step}, timeout=0.01)
        if done:
            yield step.result()
            step = None

@hw.source("n INT")
async def pumped():
    queue = asyncio.Queue()
    async def pump():
        async for n in numbers(3):
            await queue.put(n)
    task = asyncio.create_task(pump())
    while True:
        yield await queue.get()

@hw.source("n INT")
async def goes_on():
    for n in range(100):
        try:
            await asyncio.sleep(0 if n < 3 else 3600)
        except asyncio.CancelledError:
            pass
        yield n

@hw.source("n INT")
async def never_ends():
    for n in range(3):
        yield n
    asyncio.get_running_loop().call_soon(functools.partial(print, "is waiting", flush=True))
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("was cancelled", flush=True)
"""


@pytest.mark.parametrize("source", ["nested", "polled", "pumped", "goes_on"])
@pytest.mark.parametrize("end", ["count", "interrupt"])
def test_an_async_source_ends_without_a_word_from_asyncio(tmp_path: Path, source: str, end: str) -> None:
    process = start(
        tmp_path, f"feeds:{source}", "--json", "-n", "3" if end == "count" else "9", code=ASYNC_ENDS
    )
    killer = threading.Timer(60, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [f'{{"n": {n}}}\n' for n in range(3)]
        if end == "interrupt":
            process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    finally:
        killer.cancel()
        process.kill()
    status, message = (0, "") if end == "count" else (130, "headwater: interrupted\n")
    assert (process.returncode, out, err) == (status, "", message)


def test_an_interrupt_within_a_task_is_not_an_error_of_that_task(tmp_path: Path) -> None:
    code = """
        import signal

        async def interrupted():
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(3600)

        @hw.source("n INT")
        async def waits_for_tasks():
            yield 0
            await asyncio.wait({asyncio.ensure_future(interrupted())})
    """
    process = start(tmp_path, "feeds:waits_for_tasks", "--json", code=textwrap.dedent(code))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, '{"n": 0}\n', "headwater: interrupted\n")


def test_a_second_interrupt_ends_an_async_source_that_goes_on(tmp_path: Path) -> None:
    process = start(tmp_path, "feeds:never_ends", code=ASYNC_ENDS)
    killer = threading.Timer(60, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        for line in ("is waiting", "was cancelled"):
            assert process.stdout.readline() == f"{line}\n"
            process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    finally:
        killer.cancel()
        process.kill()
    assert (process.returncode, out, err) == (130, "n\n-\n0\n1\n2\n", "headwater: interrupted\n")


def test_the_reader_of_the_output_may_stop_early(tmp_path: Path) -> None:
    endless = """
        @hw.source("n INT")
        def endless():
            while True:
                yield 1
    """
    process = start(tmp_path, "feeds:endless", "-n", "1000000000", "--json", code=endless)
    killer = threading.Timer(60, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == '{"n": 1}\n'
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1
    finally:
        killer.cancel()
        process.kill()
        process.stderr.close()  # type: ignore[union-attr]
