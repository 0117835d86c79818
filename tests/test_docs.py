"""What README and wiki show is run or compared here: code, output, quotations, options, metrics, links."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import docs
import pytest
from docs import Block, PageError
from processes import JAR, PACKAGE, ROOT, SPARK_HOME, Process, running, spark_environment, wait_until
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

import headwater as hw
from headwater.sources import random_alpha

sys.path.append(str(ROOT / "project"))
import option_tables

README = ROOT / "README.md"
OPTIONS = ROOT / "wiki" / "Options-and-metrics.md"
OTHERS = [
    ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "python/README.md", "examples/README.md")
]
PAGES = [README, *OTHERS, *sorted((ROOT / "wiki").glob("*.md"))]
TIMEOUT = 300

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def name(item: object) -> str:
    return str(item.relative_to(ROOT)) if isinstance(item, Path) else str(item)


def by_language(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in docs.blocks(page) if block.language in languages]


def output_after(block: Block) -> str | None:
    """What the page says that this block prints."""
    rest = [other for other in docs.blocks(block.page) if other.line > block.line]
    return rest[0].text if rest and rest[0].is_output else None


def compare(block: Block, printed: str) -> None:
    expected = output_after(block)
    assert expected is None or docs.matches(expected, printed), (
        f"{block} printed\n\n{printed}\n\nand the page says\n\n{expected}"
    )


def environment(**more: str) -> dict[str, str]:
    env = spark_environment(**more)
    return env | {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}


def has_python(page: Path) -> bool:
    return any(block.language == "python" and not block.quoted for block in docs.blocks(page))


PYTHON_PAGES = [page for page in PAGES if has_python(page)]

# Pages that must start Spark themselves. The others share one JVM, each with a session of its own.
OWN_JVM = {
    README,  # runs as a reader runs it, from the first line
    ROOT / "wiki" / "Class-loaders-and-jars.md",  # starts without the jar
    ROOT / "wiki" / "Registering-a-format.md",  # starts without the jar
    ROOT / "wiki" / "Security.md",  # sets options of the JVM
}


class PageRunner:
    """A process that runs the Python of pages. It starts with the first page, and after one that hung."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        (folder / "cwd").mkdir()
        self._command = [sys.executable, str(ROOT / "tests" / "docs.py"), str(folder / "cwd"), *arguments]
        self._running = ExitStack()
        self._process: Process | None = None
        self._count = 0

    def run(self, page: Path) -> dict[str, str]:
        """Returns what each block printed, by its line."""
        process = self._process or self._start()
        self._count += 1
        logged, reply = len(process.output), self._folder / f"{self._count}.json"
        request = {"page": str(page), "reply": str(reply)}
        try:
            assert process.popen.stdin is not None
            process.popen.stdin.write(json.dumps(request).encode() + b"\n")
            process.popen.stdin.flush()
            process.until(f"the end of {page}", reply.exists, TIMEOUT)
        except (AssertionError, OSError):
            self.close()
            raise
        outcome = json.loads(reply.read_text(encoding="utf-8"))
        assert "error" not in outcome, f"{outcome['error']}\n{process.output[logged:][-8000:]}"
        return outcome["printed"]

    def _start(self) -> Process:
        env = environment(PYSPARK_SUBMIT_ARGS="--conf spark.ui.enabled=false pyspark-shell")
        log = self._folder / "pages.log"
        self._process = self._running.enter_context(running(self._command, log, env, stdin=subprocess.PIPE))
        return self._process

    def close(self) -> None:
        self._process = None
        self._running.close()


@pytest.fixture(scope="module")
def shared_runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageRunner]:
    runner = PageRunner(tmp_path_factory.mktemp("pages"), "--share-session")
    yield runner
    runner.close()


def check_page(page: Path, printed: dict[str, str]) -> None:
    for block in docs.blocks(page):
        if str(block.line) in printed:
            compare(block, printed[str(block.line)])


@pytest.mark.spark
@pytest.mark.parametrize("page", [page for page in PYTHON_PAGES if page not in OWN_JVM], ids=name)
def test_the_python_of_a_page_runs_and_prints_what_the_page_says(
    page: Path, shared_runner: PageRunner
) -> None:
    check_page(page, shared_runner.run(page))


LEAVES = """```python
import os, sys, logging
from pathlib import Path
import headwater as hw
import headwater.sources
from pyspark.sql import SparkSession

@hw.source("n LONG")
def left_behind():
    yield 1

spark = hw.session(SparkSession.builder.config("spark.sql.shuffle.partitions", 3))
spark.range(1).createOrReplaceTempView("left_view")
os.environ["LEFT"] = "1"
Path("left.py").write_text("")
sys.path.insert(0, ".")
import left
logging.getLogger().setLevel(1)
left_name = 1
```
"""
LOOKS = """```python
import os, sys, logging
from pathlib import Path
import headwater as hw

spark = hw.session()
print("left_name" in globals(), "LEFT" in os.environ, [str(file) for file in Path().iterdir()])
print("left" in sys.modules, "." in sys.path, "headwater.sources.sse" in sys.modules)
print(spark.catalog.listTables(), spark.conf.get("spark.sql.shuffle.partitions"), logging.getLogger().level)
print([source.name for source in hw.registered() if source.name == "left_behind"])
```
"""

RUNS_ON = """
import headwater as hw
hw.session().readStream.format("rate").load().writeStream.format("noop").queryName("left").start()
"""


@pytest.mark.spark
def test_a_page_sees_nothing_of_the_one_before_it(shared_runner: PageRunner, tmp_path: Path) -> None:
    pages = {name: tmp_path / f"{name}.md" for name in ("before", "leaves", "looks")}
    pages["before"].write_text(LOOKS)
    pages["leaves"].write_text(LEAVES)
    pages["looks"].write_text(LOOKS)
    before = shared_runner.run(pages["before"])
    shared_runner.run(pages["leaves"])
    assert shared_runner.run(pages["looks"]) == before
    (printed,) = before.values()
    assert printed.startswith("False False []\nFalse False False\n[] ")


@pytest.mark.spark
def test_a_page_that_leaves_a_query_running_fails(shared_runner: PageRunner, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```python\n{RUNS_ON}\n```\n")
    with pytest.raises(AssertionError, match=r"the page leaves queries running: \['left'\]"):
        shared_runner.run(page)


@pytest.mark.process
@pytest.mark.parametrize("page", sorted(OWN_JVM), ids=name)
def test_a_page_that_starts_spark_itself_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    runner = PageRunner(tmp_path)
    try:
        check_page(page, runner.run(page))
    finally:
        runner.close()


STARTS_SPARK = re.compile(r"spark-submit|headwater doctor$|python examples/", re.MULTILINE)


def shell_blocks(*, start_spark: bool) -> list[Block]:
    blocks = [block for block in by_language("shell") if not block.quoted]
    return [block for block in blocks if bool(STARTS_SPARK.search(block.text)) == start_spark]


@pytest.mark.parametrize("block", shell_blocks(start_spark=False), ids=name)
def test_shell_commands_run(block: Block, tmp_path: Path) -> None:
    run_shell(block, tmp_path)


@pytest.mark.process
@pytest.mark.parametrize("block", shell_blocks(start_spark=True), ids=name)
def test_shell_commands_that_start_spark_run(block: Block, tmp_path: Path) -> None:
    run_shell(block, tmp_path)


def run_shell(block: Block, folder: Path) -> None:
    lines = []
    for line in block.text.splitlines():
        target = re.match(r"make +([a-z-]+)", line)
        if target and target[1] != "help":  # it could start this very test again: that it exists is enough
            assert target[1] in TARGETS, f"{block}: the Makefile has no target '{target[1]}'"
        else:
            lines.append(line)
    script = folder / "block.sh"
    script.write_text("\n".join([f"cd '{ROOT}'", *lines]), encoding="utf-8")
    with running(["bash", "-e", str(script)], folder / "block.log", environment()) as process:
        compare(block, process.wait(TIMEOUT))


@pytest.mark.process
@pytest.mark.parametrize("block", [b for b in by_language("scala") if not b.quoted], ids=name)
def test_scala_runs_in_the_spark_shell(block: Block, tmp_path: Path) -> None:
    script = tmp_path / "block.scala"
    script.write_text(f'{block.text}\nprintln("ran to its " + "end")\nSystem.exit(0)\n', encoding="utf-8")
    shell = [str(SPARK_HOME / "bin" / "spark-shell"), "--master", "local[2]", "--jars", str(JAR)]
    command = [*shell, "--conf", "spark.ui.enabled=false", "-i", str(script)]
    with running(command, tmp_path / "shell.log", environment()) as process:
        assert "ran to its end" in process.wait(TIMEOUT), process.ending


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_run_or_compared(page: Path) -> None:
    before: Block | None = None
    for block in docs.blocks(page):
        if block.quoted:
            file = ROOT / block.quoted
            assert file.is_file(), f"{block}: there is no file {block.quoted}"
            assert docs.is_quote(block.text, file), f"{block}: these lines are not in {block.quoted}"
        elif block.is_output:
            assert before, f"{block}: output of nothing"
            assert before.language in ("python", "shell"), f"{block}: output of a {before.language} block"
            assert not before.quoted, f"{block}: output of a quotation"
        elif block.language == "mermaid":
            assert list(docs.drawing_errors(block.text)) == [], f"{block}: not in our part of mermaid"
        else:
            assert block.language in ("python", "shell", "scala"), f"{block}: nothing would check this block"
        before = block


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(docs.broken_links(page, ROOT)) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    assert set(re.findall(r"`make ([a-z-]+)", docs.prose(page))) <= TARGETS


def test_every_page_of_the_wiki_is_on_its_reading_path() -> None:
    listed = {link.partition("#")[0] for link in docs.links(ROOT / "wiki" / "Home.md")}
    assert {page.name for page in (ROOT / "wiki").glob("*.md")} <= listed | {"Home.md"}


def names_in_table(heading: str) -> list[str]:
    """The names in backticks in the first column of the tables below a heading of that page."""
    section = re.split(r"^#+ ", OPTIONS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (text,) = [part for part in section if part.partition("\n")[0] == heading]
    cells = re.findall(r"^\| *(`[^|]*)\|", text, re.MULTILINE)
    return [found for cell in cells for found in re.findall(r"`(\w+)`", cell)]


def test_the_wiki_lists_the_options_that_there_are(spark_session: SparkSession) -> None:
    with pytest.raises(IllegalArgumentException) as caught:
        spark_session.readStream.format("random_alpha").option("nonesuch", 1).load()
    known = re.search(r"Its options are: ([\w, ]+)\.", str(caught.value))
    assert known, caught.value
    listed = [*names_in_table("Options of random_alpha"), *names_in_table("Options of every source")]
    assert listed == known[1].split(", ")


def test_the_wiki_lists_the_options_of_sources_in_python() -> None:
    @hw.source("n LONG")
    def in_python() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="nonesuch") as caught:
        in_python(nonesuch=1)
    known = re.search(r"Those of every source: ([\w, ]+)", str(caught.value))
    assert known, caught.value
    listed = [*names_in_table("Options of every source"), *names_in_table("Options of sources in Python")]
    assert listed == known[1].split(", ")
    keywords = [name for name in inspect.signature(hw.stream).parameters if name not in ("spark", "source")]
    assert [name.lower() for name in listed] == [keyword.replace("_", "") for keyword in keywords]


def test_the_tables_of_options_in_the_wiki_are_up_to_date() -> None:
    written = OPTIONS.read_text(encoding="utf-8")
    assert written.splitlines() == option_tables.page(written).splitlines(), "run make reference"


def test_the_wiki_names_the_options_that_a_partitioned_source_has() -> None:
    table = json.loads((PACKAGE / "headwater" / "options.json").read_text(encoding="utf-8"))
    sentence = re.search(
        r"^A partitioned source has ([^;]+);", OPTIONS.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sentence
    names = re.findall(r"`(\w+)`", sentence[1])
    assert names == [option["name"] for option in table if "partitioned" in option["sources"]]


def test_tables_of_options_that_are_out_of_date_fail_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = OPTIONS.read_text(encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(written.replace("| `linger` | `10ms` |", "| `linger` | `1h` |"), encoding="utf-8")
    monkeypatch.setattr(option_tables, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["option_tables.py", "--check"])
    assert option_tables.main() == 1
    monkeypatch.setattr(sys, "argv", ["option_tables.py"])
    assert option_tables.main() == 0
    assert page.read_text(encoding="utf-8") == written


def test_the_wiki_lists_the_metrics_that_there_are(spark_session: SparkSession, tmp_path: Path) -> None:
    writer = hw.stream(spark_session, random_alpha(len=5)).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        wait_until(lambda: query.lastProgress is not None, lambda: query.status)
        assert sorted(names_in_table("Metrics")) == sorted(query.lastProgress["sources"][0]["metrics"])
    finally:
        query.stop()


def test_the_wiki_lists_the_metrics_of_partitions(spark_session: SparkSession, tmp_path: Path) -> None:
    class OnePartition(hw.PartitionedSource, name="one_partition", schema="n LONG"):
        def partitions(self) -> list[int]:
            return [0]

        def earliest(self, p: int) -> int:
            return 0

        def latest(self, p: int) -> int:
            return 1

        def read(self, p: int, start: int, end: int) -> Iterator[int]:
            yield from range(start, end)

    writer = hw.stream(spark_session, OnePartition()).writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    assert query.awaitTermination(90), query.status
    of_feeds_too = {"rowsInBatch", "rowsRead", "rowsLost", "waitingRows", "rowsPerSecond"}
    of_feeds_too |= {"state", "restarts", "badRows"}
    listed = {*of_feeds_too, *names_in_table("Metrics of partitions")}
    assert listed == set(query.lastProgress["sources"][0]["metrics"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```rust\nx\n```", "'rust' is none of"),
        ("```\nx\n```", "'' is none of"),
        ("```python\nx", "not closed"),
        ("- a list\n  ```python\n  x\n  ```", "at the margin"),
        ("~~~python\nx\n~~~", "at the margin"),
        ("some text\n\n    print(1)", "indented"),
    ],
)
def test_code_that_would_slip_by_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(PageError, match=re.escape(said)):
        docs.blocks(page)


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading, *here*\n## Twice\n## Twice\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#a-heading-here) [c](other.md#twice-1) `[d](code)`\n"
        "[e](none.md) [f](other.md#none) [g](https://example.org) [h](../../x) [i](#none)\n"
    )
    assert [said.split()[0] for said in docs.broken_links(page, tmp_path)] == [
        "none.md",
        "other.md#none",
        "https://example.org",
        "../../x",
        "#none",
    ]


def test_a_quotation_must_be_whole_and_in_one_piece(tmp_path: Path) -> None:
    file = tmp_path / "file.scala"
    file.write_text("object A {\n  def one = 1\n\n  def two = 2\n}\n", encoding="utf-8")
    assert docs.is_quote("  def one = 1\n\n  def two = 2", file)
    assert docs.is_quote("def one = 1\n\ndef two = 2", file)
    assert not docs.is_quote("def one = 1\ndef two = 2", file)
    assert not docs.is_quote("def one", file)


def test_output_is_compared_to_the_letter_but_for_the_gaps() -> None:
    assert docs.matches('{"run":"…","seq":2}\nend', '{"run":"00ff","seq":2}  \nend\n')
    assert not docs.matches('{"run":"…","seq":2}', '{"run":"00ff","seq":22}')
    assert not docs.matches("…", "two\nlines")
    assert not docs.matches("one", "")


def test_a_line_that_mermaid_would_not_draw_is_found() -> None:
    assert not list(docs.drawing_errors('flowchart LR\n  a["A"] -->|"by"| b[("B")]\n  b -.-> a'))
    assert list(docs.drawing_errors("flowchart LR\n  a -> b")) == ["a -> b"]
    assert not list(docs.drawing_errors("sequenceDiagram\n  participant S as Spark\n  S->>B: getBatch"))
    assert list(docs.drawing_errors("pie\n  a: 1")) == ["pie"]
