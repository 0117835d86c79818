"""What an author writes, without Spark: both forms of a source, its schema, name, rows and errors.

Private modules are imported to look at the registry and at schemas without a session.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
import threading
import types
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import headwater as hw
from headwater import registry
from headwater.ddl import to_ddl
from headwater.definition import schema_of_class, schema_of_source
from headwater.options import RESERVED, OptionError


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test defines is gone after it, and no Spark hears of it."""
    monkeypatch.setattr(registry, "_sources", {})
    monkeypatch.setattr(registry, "_listeners", [])


def define(name: str = "numbers", schema: Any = "n INT") -> Any:
    @hw.source(schema, name=name)
    def numbers(count: int = 3) -> Iterator[Any]:
        yield from range(count)

    return numbers


def described(name: str) -> Any:
    (found,) = [found for found in hw.registered() if found.name == name]
    return found


# The two forms


def test_a_function_is_a_source_with_its_name_its_parameters_and_its_doc() -> None:
    @hw.source("n INT, square INT")
    def squares(count: int = 3, *, start: int = 0) -> Any:
        """Numbers and their squares."""
        for n in range(start, start + count):
            yield n, n * n

    assert list(squares(2)) == list(squares(count=2)) == [(0, 0), (1, 1)]
    assert list(squares(1, start=5)) == [(5, 25)]
    made: Any = squares
    assert issubclass(made, hw.Source)
    assert isinstance(squares(), hw.Source)
    found = described("squares")
    assert [option.text for option in found.options] == [
        "count: an integer, default 3",
        "start: an integer, default 0",
    ]
    assert (found.doc, found.schema, found.resumable) == (
        "Numbers and their squares.",
        "n INT, square INT",
        False,
    )
    assert found.origin == f"{__name__}:{squares.__qualname__}"


def test_a_class_is_a_source_with_its_options_in_init() -> None:
    class Countdown(hw.Source, name="countdown", schema="n INT"):
        """Down to one."""

        def __init__(self, start: int = 3) -> None:
            self.start = start

        def read(self) -> Any:
            yield from range(self.start, 0, -1)

    assert list(Countdown()) == [3, 2, 1]
    assert list(Countdown(start=1)) == [1]
    assert Countdown._name == "countdown"
    assert described("countdown").options[0].text == "start: an integer, default 3"


def test_a_dataclass_is_a_source_frozen_or_not() -> None:
    for frozen in (False, True):

        @dataclass(frozen=frozen)  # type: ignore[literal-required]
        class Ticks(hw.Source, name="ticks", schema="n INT"):
            count: int
            step: int = 1

            def read(self) -> Any:
                yield from range(0, self.count * self.step, self.step)

        assert list(Ticks(2)) == list(Ticks(count=2)) == [0, 1]
        assert list(Ticks(2, step=5)) == [0, 5]
        assert described("ticks").options[0].text == "count: an integer, required"
        assert list(registry.find("ticks", {"COUNT": "1"})) == [0]


def test_the_docstrings_of_headwater_and_dataclass_are_not_the_authors() -> None:
    @dataclass
    class Plain(hw.Source, name="plain", schema="n INT"):
        count: int = 1

        def read(self) -> Any:
            yield 1

    class Undescribed(hw.Source, name="undescribed", schema="n INT"):
        def read(self) -> Any:
            yield 1

    define("nothing_said")
    for name in ("plain", "undescribed", "nothing_said"):
        assert described(name).doc == ""


def test_a_class_without_a_name_is_a_base_class_and_not_a_format() -> None:
    class Base(hw.Source, schema="n INT"):
        def __init__(self, count: int = 2) -> None:
            self.count = count

    class Up(Base, name="up"):
        def read(self) -> Any:
            yield from range(self.count)

    assert list(Up(count=1)) == [0]
    assert "Base" not in repr([found.name for found in hw.registered()])
    assert list(registry.all_sources()) == ["up"]


def test_a_parameter_since_makes_either_form_resumable() -> None:
    @hw.source("n INT")
    def events(first: int = 0, *, since: int | None = None) -> Any:
        for n in range(first if since is None else since + 1, 4):
            yield hw.At(n, n)

    class Events(hw.Source, name="class_events", schema="n INT"):
        def read(self, since: int | None) -> Any:
            return events().read(since=since)  # type: ignore[attr-defined]

    both: list[Any] = [events(), Events()]
    for made in both:
        assert list(made) == [0, 1, 2, 3]
        assert [item.cursor for item in made.read(since=1)] == [2, 3]
        found = described(type(made)._name)
        assert found.resumable
        assert "since" not in [option.name for option in found.options]


# The schema

EXPECTED = StructType([StructField("id", IntegerType(), False), StructField("word", StringType())])


@pytest.mark.parametrize("schema", ["id INT NOT NULL, word STRING", EXPECTED], ids=["ddl", "StructType"])
def test_a_schema_is_ddl_or_a_struct_type(schema: Any) -> None:
    source = define(schema=schema)
    assert schema_of_class(source) == schema_of_source(source()) == EXPECTED
    assert described("numbers").schema == "id INT NOT NULL, word STRING"


def test_a_schema_may_depend_on_the_options() -> None:
    class Wide(hw.Source, name="wide"):
        def __init__(self, columns: list[str]) -> None:
            self.columns = columns

        @property
        def schema(self) -> str:
            return ", ".join(f"{name} INT" for name in self.columns)

        def read(self) -> Any:
            yield tuple(range(len(self.columns)))

    assert schema_of_class(Wide) is None
    assert described("wide").schema is None
    assert schema_of_source(Wide(["a", "b"])).names == ["a", "b"]


@dataclass
class Tick:
    at: int
    word: str | None = None


class Pair(NamedTuple):
    left: int
    right: list[str]


def test_a_schema_comes_from_the_return_annotation_of_read() -> None:
    @hw.source()
    def ticks() -> Iterator[Tick]:
        yield Tick(1)

    @hw.source()
    async def pairs() -> AsyncIterator[Pair]:
        yield Pair(1, [])

    class Ticks(hw.Source, name="class_ticks"):
        def read(self) -> Iterator[list[Tick]]:
            yield [Tick(1), Tick(2, "b")]

    found: list[tuple[Any, str]] = [
        (ticks, "at BIGINT NOT NULL, word STRING"),
        (pairs, "left BIGINT NOT NULL, right ARRAY<STRING> NOT NULL"),
        (Ticks, "at BIGINT NOT NULL, word STRING"),
    ]
    for source, wanted in found:
        assert to_ddl(schema_of_source(source())) == wanted
        assert described(source._name).schema == wanted
    assert list(Ticks()) == [Tick(1), Tick(2, "b")]


def test_a_source_without_a_schema_fails_at_its_definition() -> None:
    with pytest.raises(
        TypeError, match=r"^the schema of source 'bare': there is none\. Pass a DDL string such "
    ):

        @hw.source()
        def bare() -> Any:
            yield 1

    with pytest.raises(TypeError, match=r"^the schema of source 'bare': .* define a property `schema`, or "):

        class Bare(hw.Source, name="bare"):
            def read(self) -> Any:
                yield 1

    assert registry.all_sources() == {}


@pytest.mark.parametrize(
    ("schema", "error", "message"),
    [
        ("n INTT", ValueError, "unknown type 'INTT'; a type is one of "),
        ("n", ValueError, "a type"),
        ("n INT, N INT", ValueError, "the name 'N' appears twice; names must differ, ignoring case"),
        (StructType([]), ValueError, "the schema has no columns"),
        (["n INT"], TypeError, "the schema is of type list; it must be a str such as 'id LONG, name STRING'"),
    ],
)
def test_a_wrong_schema_fails_at_its_definition(schema: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=r"^the schema of source 'numbers': ") as caught:
        define(schema=schema)
    assert message in str(caught.value)
    assert registry.all_sources() == {}


def test_an_annotation_that_cannot_be_evaluated_is_an_error_that_names_it() -> None:
    def words() -> Any: ...

    words.__annotations__["return"] = "Iterator[Nowhere]"
    with pytest.raises(
        TypeError, match=r"^the schema of source 'words': .* cannot be evaluated: name 'Nowhere'"
    ):
        hw.source()(words)


# Rows, one by one


def test_lists_tables_and_at_yield_their_rows_and_caught_up_yields_none() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1, 2]})
    frame = pd.DataFrame({"n": [7]})

    @hw.source("n INT")
    def mixed(*, since: Any = None) -> Any:
        yield hw.At(1, 0)
        yield hw.At(2, batch)
        yield hw.CAUGHT_UP
        yield hw.At(3, [3, 4])
        yield hw.At(4, pa.Table.from_batches([batch]))
        yield hw.At(5, [])
        yield hw.At(6, frame)
        yield hw.At(7, None)

    rows = [{"n": 1}, {"n": 2}]
    assert list(mixed()) == [0, *rows, 3, 4, *rows, {"n": 7}, None]


def test_a_list_is_one_row_if_the_only_column_is_an_array() -> None:
    """As it is for a feed."""

    @hw.source("xs ARRAY<INT>")
    def arrays() -> Any:
        yield [1, 2]

    @hw.source("n INT, xs ARRAY<INT>")
    def two_columns() -> Any:
        yield [(1, [2]), (3, [4])]

    assert list(arrays()) == [[1, 2]]
    assert list(two_columns()) == [(1, [2]), (3, [4])]


def test_each_iteration_reads_a_new_instance_and_closes_it() -> None:
    calls: list[Any] = []

    class Watched(hw.Source, name="watched", schema="n INT"):
        def on_start(self) -> None:
            calls.append(("start", self))

        def read(self) -> Any:
            try:
                yield 1
                yield 2
            finally:
                calls.append(("end of read", self))

        def on_stop(self) -> None:
            calls.append(("stop", self))

        def close(self) -> None:
            calls.append(("close", self))

    source = Watched()
    first = iter(source)
    assert next(first) == 1
    assert list(source) == [1, 2]
    first.close()  # type: ignore[attr-defined]
    wanted = ["start", "start", *["end of read", "stop", "close"] * 2]
    assert [what for what, _ in calls] == wanted
    (one, other) = dict.fromkeys(id(instance) for _, instance in calls)
    assert id(source) not in (one, other)


def test_an_error_of_read_is_raised_and_passed_to_on_failure() -> None:
    heard: list[object] = []

    class Failing(hw.Source, name="failing", schema="n INT"):
        def read(self) -> Any:
            yield 1
            raise OSError("gone")

        def on_failure(self, error: BaseException) -> None:
            heard.append(error)

        def close(self) -> None:
            heard.append("closed")

    rows = iter(Failing())
    assert next(rows) == 1
    with pytest.raises(OSError, match=r"^gone$") as caught:
        next(rows)
    assert heard == [caught.value, "closed"]


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def waiting(ended: list[str]) -> Any:
    @hw.source("n INT")
    async def waiting(count: int = 2) -> Any:
        try:
            for n in range(count):
                await asyncio.sleep(0)
                yield [n]
            yield hw.CAUGHT_UP
        finally:
            await asyncio.sleep(0)
            ended.append("ended")

    return waiting


def test_an_async_source_can_be_iterated_by_code_that_is_not_async(waiting: Any, ended: list[str]) -> None:
    assert list(waiting()) == [0, 1]
    rows = iter(waiting(count=9))
    assert next(rows) == 0
    rows.close()
    assert ended == ["ended", "ended"]


def test_async_for_iterates_a_source_of_either_kind(waiting: Any, ended: list[str]) -> None:
    async def read(source: Any) -> list[object]:
        return [row async for row in source]

    assert asyncio.run(read(waiting())) == [0, 1]
    assert asyncio.run(read(define()(count=2))) == [0, 1]
    assert ended == ["ended"]


def test_an_async_source_is_closed_when_its_iteration_stops_early(waiting: Any, ended: list[str]) -> None:
    async def read() -> None:
        rows = aiter(waiting(count=9))
        assert await anext(rows) == 0
        await rows.aclose()

    asyncio.run(read())
    assert ended == ["ended"]


def test_in_a_running_event_loop_an_async_source_asks_for_async_for(waiting: Any) -> None:
    async def read() -> None:
        list(waiting(count=5))

    message = r"^waiting\(count=5\) is async and an event loop runs in this thread: use `async for`, or read"
    with pytest.raises(RuntimeError, match=message):
        asyncio.run(read())


def test_an_async_source_is_read_in_one_task() -> None:
    """As in a feed. A time limit that spans a `yield` belongs to the task that entered it."""
    tasks: list[Any] = []

    @hw.source("n INT")
    async def in_one_task() -> Any:
        try:
            for n in range(5):
                tasks.append(asyncio.current_task())
                await asyncio.sleep(0)
                yield n
        finally:
            tasks.append(asyncio.current_task())

    assert list(itertools.islice(in_one_task(), 2)) == [0, 1]
    assert len(tasks) == 3
    assert len(set(tasks)) == 1


def test_tasks_that_an_async_source_leaves_behind_are_cancelled() -> None:
    seen: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @hw.source("n INT")
    async def careless() -> Any:
        task = asyncio.create_task(background())
        await asyncio.sleep(0)
        yield 1
        assert not task.done()

    assert list(careless()) == [1]
    assert seen == ["cancelled"]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "None of type NoneType, not rows: make it a generator, which yields rows one by one"),
        (5, "5 of type int, not rows"),
        ("abc", "'abc' of type str, not rows"),
        ({"n": 1}, "{'n': 1} of type dict, not rows"),
        (hw.At(1, 2), "At(cursor=1, rows=2) of type At, not rows"),
        (pd.DataFrame({"n": [1]}), "   n 0  1 of type DataFrame, not rows"),
        (pa.table({"n": [1]}), "pyarrow.Table n: int64 ---- n: [[1]] of type Table, not rows"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_read_that_does_not_return_rows_is_an_error(returned: Any, message: str) -> None:
    @hw.source("n INT")
    def returns(count: int = 1) -> Any:
        return returned

    with pytest.raises(TypeError, match=rf"^read of returns\(count=2\) returned {re.escape(message)}"):
        list(returns(count=2))


def test_a_read_that_is_a_coroutine_is_an_error() -> None:
    @hw.source("n INT")
    async def coroutine() -> Any:
        return [1]

    with pytest.raises(
        TypeError,
        match=r"^read of coroutine\(\) is a coroutine that yields nothing: make it an async generator",
    ):
        list(coroutine())


def test_a_read_may_return_a_list_or_any_iterator() -> None:
    @hw.source("n INT")
    def listed() -> Any:
        return [1, 2]

    class Mapped(hw.Source, name="mapped", schema="n INT"):
        def read(self) -> Any:
            return map(abs, [-1, -2])

    assert list(listed()) == list(Mapped()) == [1, 2]


# A source is a value


def test_a_source_shows_its_options_and_no_secrets() -> None:
    @hw.source("n INT")
    def guarded(
        url: str, token: hw.Secret, keys: list[hw.Secret], other: hw.Secret | None = None, wait: int = 5
    ) -> Any:
        yield token.reveal()

    made = guarded("http://x", hw.Secret("hush"), keys=[hw.Secret("hush2")])
    assert repr(made) == "guarded(url='http://x', token=***, keys=***)"
    assert repr(guarded("u", hw.Secret("hush"), [], other=hw.Secret("hush"), wait=6)).endswith(
        ", other=***, wait=6)"
    )
    assert list(made) == ["hush"]


def test_the_secrets_of_a_source_are_known_so_that_messages_can_mask_them() -> None:
    @hw.source("n INT")
    def guarded(keys: list[hw.Secret], token: hw.Secret | None = None, word: str = "message") -> Any:
        yield 1

    held = registry.hold(guarded([hw.Secret("one"), hw.Secret("two")], hw.Secret("three")))
    assert registry.secrets_in(held, {}) == ["one", "two", "three"]
    written = {"KEYS": '["one", "two"]', "token": "three", "word": "message"}
    assert {"one", "two", "three"} <= {*registry.secrets_in("guarded", written)}
    assert "message" not in registry.secrets_in("guarded", written)
    assert registry.secrets_in("guarded", {"token": "three", "wrong": "x"}) == ["three"]


def test_a_copy_of_a_source_has_the_same_options_and_shares_no_list() -> None:
    class Tagged(hw.Source, name="tagged", schema="n INT"):
        def __init__(self, tags: list[str], token: hw.Secret, count: int = 2) -> None:
            self.tags = tags
            tags.append("mine")

        def read(self) -> Any:
            yield len(self.tags)

    given = ["a"]
    made = Tagged(given, token="hush")  # type: ignore[arg-type]
    assert given == ["a"]
    before = repr(made)
    again = made._with_same_options()
    assert type(again) is Tagged
    assert again is not made
    assert again._bound == made._bound
    assert list(made) == list(made)
    assert repr(made) == before


def test_option_strings_of_spark_make_the_same_source() -> None:
    source = define()
    assert repr(registry.find("NUMBERS", {"COUNT": "5"})) == repr(source(count=5))
    with pytest.raises(
        OptionError, match=r"^source 'numbers' has no option 'cuont'\. Did you mean 'count'\?"
    ):
        registry.find("numbers", {"cuont": "5"})
    with pytest.raises(
        OptionError, match=r"^No source 'nubmers' .* Did you mean 'numbers'\? Defined are: numb"
    ):
        registry.find("nubmers", {})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda s: s(cuont=1),
            r"source 'numbers' got an unexpected argument 'cuont'\. Did you mean 'count'\?",
        ),
        (
            lambda s: s(1, 2),
            r"source 'numbers': too many positional arguments\. Its options are: count: an integer",
        ),
        (
            lambda s: s("x"),
            r"option 'count' of source 'numbers' is 'x' of type str, it must be an integer",
        ),
        (
            lambda s: s(linger=1),
            r"source 'numbers' got an unexpected argument 'linger'\. linger is an option of every source",
        ),
    ],
)
def test_the_error_of_a_wrong_call_says_what_is_allowed(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        call(define())


# Names


@pytest.mark.parametrize(
    "name",
    ["../x", "a/b", "a\0b", "x" * 300, "x" * 65, "", "1st", "_x", "a b", "a.b", "é", "a\n", 5, "<lambda>"],
)
def test_a_name_that_cannot_be_a_format_is_an_error(name: Any) -> None:
    with pytest.raises(
        ValueError, match=r"cannot be the name of a source: use a letter, then up to 63 letters"
    ) as caught:
        define(name)
    assert repr(name) in str(caught.value)
    assert registry.all_sources() == {}


@pytest.mark.parametrize("name", ["kafka", "Rate", "PARQUET", "headwater", "random_alpha", "Delta"])
def test_the_name_of_a_spark_format_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^'{name}' is a format of Spark or of .*; choose another name"):
        define(name)


def test_a_name_may_have_64_characters() -> None:
    assert define("x" * 64)._name == "x" * 64


def test_a_definition_that_is_rerun_replaces_itself() -> None:
    first, second = define(), define(schema="n LONG")
    assert first is not second
    assert registry.all_sources() == {"numbers": second}
    assert described("numbers").schema == "n BIGINT"
    renamed = define("Numbers")  # the same function under the same name, but for case
    assert registry.all_sources() == {"Numbers": renamed}


@pytest.mark.parametrize("name", ["numbers", "NUMBERS"])
def test_the_name_of_another_source_is_an_error(name: str) -> None:
    first = define()
    with pytest.raises(
        ValueError, match=rf" define a source '{name}'; choose another name for one of them$"
    ) as caught:

        class Other(hw.Source, name=name, schema="n INT"):
            def read(self) -> Any:
                yield 1

    assert str(caught.value).startswith(f"both {__name__}:{first.__qualname__} and {__name__}:")
    assert registry.all_sources() == {"numbers": first}


def test_the_name_of_a_source_in_another_module_is_an_error() -> None:
    code = "import headwater as hw\n@hw.source('n INT')\ndef words():\n    yield 1\n"
    for module in ("one", "two"):
        scope = types.ModuleType(module).__dict__
        if module == "one":
            exec(code, scope)
            continue
        with pytest.raises(ValueError, match=r"^both one:words and two:words define a source 'words'; "):
            exec(code, scope)


def test_a_listener_may_reject_a_name_and_then_nothing_is_registered() -> None:
    def refuse(name: str) -> None:
        raise ValueError(f"Spark has a format '{name}' already")

    registry.subscribe(refuse)
    with pytest.raises(ValueError, match=r"^Spark has a format 'numbers' already$"):
        define()
    assert registry.all_sources() == {}


# Errors at definition


@pytest.mark.parametrize("reserved", RESERVED)
def test_a_parameter_with_a_reserved_name_is_an_error(reserved: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def words(*, {reserved}=None):\n    yield 1", scope)
    message = rf"^parameter '{reserved}' of source 'words' \(<string>:1\) has the reserved name "
    with pytest.raises(ValueError, match=message):
        hw.source("n INT")(scope["words"])
    assert registry.all_sources() == {}


def test_the_parameters_of_a_class_are_checked_at_its_definition() -> None:
    with pytest.raises(ValueError, match=rf"of source 'classy' \({re.escape(__file__)}:\d+\) .*: rename it$"):

        class Classy(hw.Source, name="classy", schema="n INT"):
            def __init__(self, batch_rows: int = 1) -> None: ...

            def read(self) -> Any:
                yield 1

    with pytest.raises(
        TypeError, match=r"^parameter 'url' of source 'classy' .* has the unsupported option type bytes"
    ):

        class Untyped(hw.Source, name="classy", schema="n INT"):
            def __init__(self, url: bytes) -> None: ...

            def read(self) -> Any:
                yield 1


def test_the_parameters_of_a_dataclass_are_checked_at_first_use() -> None:
    """Python gives it an __init__ only after the class was made."""

    @dataclass
    class Late(hw.Source, name="late", schema="n INT"):
        on_error: str = ""

        def read(self) -> Any:
            yield 1

    with pytest.raises(
        ValueError,
        match=r"^parameter 'on_error' of source 'late' .* has the reserved name onError, .*: rename it$",
    ):
        Late()


def test_a_class_without_read_is_an_error() -> None:
    with pytest.raises(
        TypeError, match=r"^source 'mute' has no method read\(self\): define it as a generator that yields"
    ):

        class Mute(hw.Source, name="mute", schema="n INT"): ...

    assert registry.all_sources() == {}


def test_the_decorator_without_parentheses_is_an_error_that_shows_how_to_write_it() -> None:
    with pytest.raises(
        TypeError, match=r'^write @hw\.source\("column TYPE, …"\) or @hw\.source\(\), not @hw\.so'
    ):

        @hw.source  # type: ignore[arg-type]
        def words() -> Any:
            yield 1


# Threads


def test_sources_can_be_defined_from_several_threads_at_once() -> None:
    barrier = threading.Barrier(8)
    refused: list[str] = []

    def work(number: int) -> None:
        barrier.wait(10)
        for round in range(20):
            define(f"numbers_{number}_{round}")
            define("shared")
        try:
            class_of: Any = type(hw.Source)
            class_of(
                f"Own{number}",
                (hw.Source,),
                {"read": lambda self: iter([1])},
                name="contested",
                schema="n INT",
            )
        except ValueError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert not [thread for thread in threads if thread.is_alive()]
    names = registry.all_sources().keys()
    assert names == {f"numbers_{n}_{r}" for n in range(8) for r in range(20)} | {"shared", "contested"}
    assert len(refused) == 7
    assert all(
        error.endswith("define a source 'contested'; choose another name for one of them")
        for error in refused
    )


# Default factories of a dataclass


def test_a_default_factory_of_a_dataclass_is_an_error_that_names_the_parameter() -> None:
    @dataclass
    class Listed(hw.Source, name="listed", schema="n INT"):
        tags: list[str] = field(default_factory=list)

        def read(self) -> Any:
            yield len(self.tags)

    with pytest.raises(
        TypeError, match=r"^the default of parameter 'tags' of source 'listed' .* is <factory>"
    ):
        Listed()
