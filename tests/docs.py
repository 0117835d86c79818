"""Parses Markdown pages into code blocks, headings and links. As a program, it runs the Python of pages.

The language of a block says how it is checked, and an HTML comment on the line before its fence may say more:

    <!-- from path/in/the/repository -->   the block's lines stand in that file, one after the other
    <!-- output -->                        the block is what the python or shell block before it printed;
                                           `…` in it stands for any text within a line
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater import registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LANGUAGES = {"python", "shell", "scala", "text", "json", "makefile", "mermaid"}

_FENCE = re.compile(r"```(.*)")
_MARKER = re.compile(r"<!-- *(?:from +(?P<file>\S+)|(?P<output>output)) *-->")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]*)\)|^\[[^\]]+\]: *(\S+)", re.MULTILINE)


class PageError(Exception):
    """A page that cannot be taken for what it says."""


@dataclass(frozen=True)
class Block:
    """A fenced block. `line` is the line of the page on which its text begins, from 1."""

    page: Path
    line: int
    language: str
    text: str
    quoted: str | None = None
    is_output: bool = False

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All code of a page, in order. What could slip by unseen is an error."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    start = None
    for number, line in enumerate(lines, 1):
        where = f"{page.name}:{number}"
        fence = _FENCE.fullmatch(line)
        if start is None and fence:
            start = number
        elif start is not None and line == "```":
            found.append(_block(page, lines, start, number))
            start = None
        elif start is None and line.lstrip().startswith(("```", "~~~")):
            raise PageError(f"{where}: begin a code block with ``` at the margin")
        elif start is None and line.startswith(("    ", "\t")):
            raise PageError(f"{where}: indented text is shown as code; use a fenced block")
    if start is not None:
        raise PageError(f"{page.name}:{start}: the block is not closed")
    return found


def _block(page: Path, lines: list[str], start: int, end: int) -> Block:
    language = lines[start - 1].removeprefix("```").strip()
    if language not in LANGUAGES:
        raise PageError(f"{page.name}:{start}: '{language}' is none of {', '.join(sorted(LANGUAGES))}")
    marker = _MARKER.fullmatch(lines[start - 2]) if start > 1 else None
    return Block(
        page,
        start + 1,
        language,
        "\n".join(lines[start : end - 1]),
        quoted=marker["file"] if marker else None,
        is_output=bool(marker and marker["output"]),
    )


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What `#…` can lead to: each heading as GitHub writes it."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        name, n = slug, 0
        while name in found:
            n += 1
            name = f"{slug}-{n}"
        found.add(name)
    return found


def links(page: Path) -> list[str]:
    without_code = re.sub(r"`[^`\n]*`", "", prose(page))
    return [inline or reference for inline, reference in _LINK.findall(without_code)]


def broken_links(page: Path, root: Path) -> Iterator[str]:
    """Links that lead nowhere. Those out of the repository cannot be checked here, so there are none."""
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link or not target.is_relative_to(root):
            yield f"{link} leads out of the repository"
        elif not target.exists():
            yield f"{link} does not exist"
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
            yield f"{link} has no such heading"


def is_quote(text: str, file: Path) -> bool:
    """Whether the lines of `text` stand in the file, whole, one after the other; indentation may be less."""
    wanted, lines = text.splitlines(), file.read_text(encoding="utf-8").splitlines()
    for at in range(len(lines) - len(wanted) + 1):
        here = lines[at : at + len(wanted)]
        shift = len(here[0]) - len(here[0].lstrip())
        unindented = [line[shift:] if line[:shift].isspace() else line for line in here]
        if wanted in (here, unindented):
            return True
    return False


def matches(expected: str, printed: str) -> bool:
    """Line by line; trailing blanks do not count."""
    wanted, got = ([line.rstrip() for line in text.strip().splitlines()] for text in (expected, printed))
    return len(wanted) == len(got) and all(
        re.fullmatch(".*".join(re.escape(part) for part in want.split("…")), line)
        for want, line in zip(wanted, got, strict=True)
    )


_ID = r"\w+"
_NODE = rf'{_ID}(?:\["[^"]+"\]|\[\("[^"]+"\)\]|\{{"[^"]+"\}})?'
_MERMAID = {
    "flowchart": re.compile(
        rf'{_NODE}(?: (?:-->|-\.->)(?:\|"[^"]+"\|)? {_NODE})*|subgraph {_ID} \["[^"]+"\]|end'
    ),
    "sequenceDiagram": re.compile(
        rf"participant {_ID}(?: as .+)?|{_ID}-?->>{_ID}: [^;#]+|Note over {_ID}: [^;#]+|loop .+|end"
    ),
}


def drawing_errors(text: str) -> Iterator[str]:
    """Lines that are not in the small part of mermaid's language that our drawings keep to."""
    first, *rest = text.splitlines()
    kind = first.partition(" ")[0]
    if kind not in _MERMAID:
        yield first
        return
    yield from (line for line in map(str.strip, rest) if line and not _MERMAID[kind].fullmatch(line))


class BlockError(Exception):
    """A block of a page raised an error."""


def run_python(page: Path) -> dict[int, str]:
    """Runs the page's python blocks in order, in one namespace. Returns what each printed, by its line."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed: dict[int, str] = {}
    for block in blocks(page):
        if block.language != "python" or block.quoted:
            continue
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")  # so that tracebacks are true
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(code, namespace)
        except BaseException as error:
            raise BlockError(f"{block} failed; it had printed:\n{out.getvalue()}") from error
        printed[block.line] = out.getvalue()
    return printed


def serve(requests: Iterable[str], spark: SparkSession | None) -> None:
    """Runs one page for each line of `requests`: a JSON object with the page and the file for the reply.

    With a session, the pages share its JVM, and none of them sees what the others did.
    """
    for line in requests:
        request = json.loads(line)
        reply = Path(request["reply"])
        outcome: dict[str, object]
        try:
            with isolated(spark):
                outcome = {"printed": run_python(Path(request["page"]))}
        except BaseException:
            outcome = {"error": traceback.format_exc()}
        unfinished = reply.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(outcome), encoding="utf-8")
        unfinished.replace(reply)


@contextlib.contextmanager
def isolated(spark: SparkSession | None) -> Iterator[None]:
    """Undoes what a page does to its process, its folder and Spark. Fails if the page leaves a query running.

    The folder is the same for all pages: a JVM cannot change the one to which relative paths belong.
    """
    folder = Path.cwd()
    environment, path, modules = dict(os.environ), list(sys.path), set(sys.modules)
    logger = logging.getLogger()
    logging_state = logger.level, list(logger.handlers)
    sources, schemes = dict(registry._sources), dict(registry._schemes)
    page_session = _become_default(spark.newSession()) if spark else None
    try:
        yield
        if page_session is not None:
            _check_nothing_runs(page_session)
    finally:
        if spark is not None and page_session is not None:
            for query in page_session.streams.active:
                query.stop()
            for table in page_session.catalog.listTables():  # sessions share the catalog
                page_session.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} {table.name}")
            _become_default(spark)
        os.chdir(folder)
        for file in folder.iterdir():
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        _forget(folder, set(sys.modules) - modules)
        logger.level, logger.handlers[:] = logging_state
        registry._sources.clear()
        registry._sources.update(sources)
        registry._schemes.clear()
        registry._schemes.update(schemes)


def _forget(folder: Path, modules: set[str]) -> None:
    """Forgets modules of the page's folder, and the built-in sources, which register when imported."""
    for name in modules:
        file = getattr(sys.modules[name], "__file__", None)
        if name.startswith("headwater.sources") or (file and Path(file).resolve().is_relative_to(folder)):
            del sys.modules[name]
    if "headwater.sources" in modules:
        del sys.modules["headwater"].sources  # type: ignore[attr-defined]


def _become_default(spark: SparkSession) -> SparkSession:
    """Makes this the session that `getOrCreate` returns. Each has its own views, settings and formats."""
    session: Any = spark
    type(session)._instantiatedSession = type(session)._activeSession = session
    java = type(session)._get_j_spark_session_class(session._jvm)
    java.setDefaultSession(session._jsparkSession)
    java.setActiveSession(session._jsparkSession)
    return spark


def _check_nothing_runs(spark: SparkSession) -> None:
    active = [query.name or query.id for query in spark.streams.active]
    assert not active, f"the page leaves queries running: {active}"
    end = time.monotonic() + 15
    while feeds := [t.name for t in threading.enumerate() if t.name.startswith("headwater-feed")]:
        assert time.monotonic() < end, f"the page leaves threads running: {feeds}"
        time.sleep(0.05)


if __name__ == "__main__":
    from headwater import session

    requests = os.fdopen(os.dup(sys.stdin.fileno()), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())  # for the programs that a page starts
    os.chdir(sys.argv[1])
    serve(requests, session() if "--share-session" in sys.argv else None)
