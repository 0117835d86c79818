"""Every message that headwater can raise is on the page wiki/Troubleshooting.md, or here with a reason.

A message is what a `raise` in Python or a `new …Exception(…)` in Scala is given: the fixed words of its
texts, without what is filled in. It is on the page if four words in a row are, that no other message has.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
from processes import ROOT

PAGE = ROOT / "wiki" / "Troubleshooting.md"
PYTHON = ROOT / "python" / "headwater"
SCALA = ROOT / "jvm" / "src" / "main" / "scala"
RUN = 4


@dataclass(frozen=True)
class Message:
    """`texts`: its fixed words, a list for each piece between what is filled in."""

    file: str
    raised: str
    texts: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"{self.file}: {self.raised}: {' … '.join(map(' '.join, self.texts))}"


def runs(texts: tuple[tuple[str, ...], ...]) -> Iterator[tuple[str, ...]]:
    """Some words in a row; as many as the longest text has, where none is as long as that."""
    size = min(RUN, max(map(len, texts)))
    for text in texts:
        yield from (text[i : i + size] for i in range(len(text) - size + 1))


def words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text))


def message(file: Path, root: Path, raised: str, texts: list[str]) -> list[Message]:
    """None, if it has no words of its own: it passes on those of another."""
    kept = tuple(found for found in map(words, texts) if len(found) > 1)
    return [Message(str(file.relative_to(root)), raised, kept)] if kept else []


class Module(ast.NodeVisitor):
    """The messages of a file in Python. A name stands for all that is assigned to it or returned from it."""

    def __init__(self, file: Path, root: Path) -> None:
        self.file, self.root = file, root
        self.found: list[Message] = []
        self.means: dict[str, list[ast.expr]] = {}
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.means.setdefault(node.targets[0].id, []).append(node.value)
            elif isinstance(node, ast.FunctionDef):
                returned = [
                    part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value
                ]
                self.means.setdefault(node.name, []).extend(returned)
        self.visit(tree)

    def visit_Raise(self, node: ast.Raise) -> None:
        if isinstance(node.exc, ast.Call):
            texts = [text for given in node.exc.args for text in self.texts(given, frozenset())]
            self.found += message(self.file, self.root, ast.unparse(node.exc.func), texts)

    def texts(self, node: ast.AST, seen: frozenset[str]) -> Iterator[str]:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.split(r"\{\w*\}", node.value)
        elif isinstance(node, ast.Name) and node.id not in seen:
            for meant in self.means.get(node.id, []):
                yield from self.texts(meant, seen | {node.id})
        elif isinstance(
            node, ast.Call | ast.JoinedStr | ast.FormattedValue | ast.BinOp | ast.IfExp | ast.Attribute
        ):
            for child in ast.iter_child_nodes(node):
                yield from self.texts(child, seen)


def python_messages() -> Iterator[Message]:
    for file in sorted(PYTHON.rglob("*.py")):
        yield from Module(file, PYTHON).found


# By class, and by the helpers that throw what they are given. `require` is for mistakes of our own.
THROWN = re.compile(r"new (\w+(?:Exception|Error))\(|(?<!def )\b(fail|invalid|refuse|lost)\(")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def scala_messages() -> Iterator[Message]:
    for file in sorted(SCALA.rglob("*.scala")):
        code = COMMENT.sub("", file.read_text(encoding="utf-8"))
        for match in THROWN.finditer(code):
            yield from message(file, SCALA, match[1] or match[2], list(scala_texts(code, match.end())))


def scala_texts(code: str, start: int) -> Iterator[str]:
    """The texts up to the bracket that closes, cut where something is filled in: `$name` or `${…}`."""
    depth, quoted, text = 1, False, ""
    i = start
    while depth:
        if quoted and code.startswith("${", i):
            i = closing_brace(code, i + 2)
            text += "\0"
        elif code[i] == '"' and code[i - 1] != "\\":
            quoted = not quoted
        elif quoted:
            text += code[i]
        else:
            depth += {"(": 1, ")": -1}.get(code[i], 0)
            text += "" if code[i].isspace() or code[i] in '+s"' else "\0"
        i += 1
    yield from re.split(r"\0|\$\w+", text)


def closing_brace(code: str, i: int) -> int:
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(code[i], 0)
        i += 1
    return i - 1


@cache
def messages() -> list[Message]:
    return list(dict.fromkeys([*python_messages(), *scala_messages()]))


GROUPS = {
    "A source cannot be defined": [
        "source.py: TypeError*",
        "definition.py: TypeError*",
        "definition.py: type(error)*",
        "options.py: TypeError*",
        "options.py: ValueError*",
        "options.py: error_type*",
        "options.py: AttributeError*",
        "reading.py: TypeError*",
        "reading.py: ValueError*",
        "reading.py: RuntimeError*",
        "registry.py: TypeError*",
        "registry.py: ValueError*",
        "schema.py: TypeError*",
        "schema.py: ValueError*",
        "ddl.py: ValueError*",
    ],
    "An option is refused": [
        "*: OptionError*",
        "*: InvalidOptionException*",
        "*: invalid: *",
        "decode/*: ValueError*",
        "decode/metadata.py: TypeError*",
        "http/*: ValueError*",
        "sources/*: ValueError*",
        "spark/stream.py: [TV]*Error*",
        "rows/converter.py: ValueError*",
        "rows/kept.py: ValueError*",
        "trust.py: ValueError*",
    ],
    "A row does not fit": ["*: InvalidValueError: *"],
    "Not a headwater offset, or damaged": [
        "headwater/core/OffsetJson.scala: fail*",
        "headwater/core/VectorOffset.scala: fail*",
        "headwater/partition/StartPositions.scala: I[lOn]*",
        "headwater/log/Manifest.scala: Illegal*",
        "headwater/log/SegmentFile.scala: IOException: its *",
    ],
    "It is tried again": [
        "http/*: RetryableError*",
        "http/*: NewConnectionError*",
        "http/connection.py: HttpError*",
        "http/chunked.py: *",
    ],
    "A library is missing": ["sources/*: *needs*", "decode/*: *needs*"],
    "A webhook answers with an error": [
        "sources/webhook_requests.py: RequestError*",
        "sources/webhook_server.py: *",
    ],
    "A response cannot be polled": ["sources/poll.py: HttpError*"],
    "A simulator refuses": ["sim/*: *"],
}
"""Messages of one form, by file and class: what the page says below that heading holds for each, and it shows
some of them. A new message of such a form needs no entry of its own; any other does."""

NOT_ON_THE_PAGE = {
    "headwater/bridge/ArrowStream.scala: *": "both sides are of one release",
    "headwater/bridge/BridgeServer.scala: *": "the same; an unknown client is refused, and the log says so",
    "headwater/bridge/PythonConnection.scala: IllegalStateException: *": "the same",
    "headwater/task/HeapColumns.scala: *": "Spark asks a column for what its type does not have",
    "*: NoSuchElementException: no more *": "an iterator that is asked beyond its end",
    "*: UnsupportedOperationException: *asks for*": "a call that Spark has and does not make",
    "*/PartitionFrames.scala: *frame over an RDD*": "a Spark that plans as none of the four lines does",
    "*: rows that are not in memory": "a kind of rows that this code never gets",
    "headwater/log/Codec.scala: *": "behind a checksum that was right",
    "headwater/log/Frame.scala: *": "behind a checksum that was right",
    "*: IllegalStateException: is stopped": "Spark asks a source that it has stopped",
    "http/transport.py: OSError: *": "ends a wait in close(), and goes no further",
    "runtime/protocol.py: EOFError: *": "ends a thread when Spark has ended",
    "runtime/*: WatchFailed: the watch is over": "the same",
    "runtime/protocol.py: ValueError: unknown request*": "both sides are of one release",
    "runtime/protocol.py: ValueError: a message of*": "the same",
    "references.py: HeadwaterError: name a module that is trusted": "the cure of one that is on the page",
    "*/StreamAdapter.scala: InterruptedException: *": "Spark takes it for the stop that it is",
    "*: TaskKilledException: *": "the same, of a task",
    "*: InvalidOffsetException: was asked for a batch without an end": "its offsets are never without one",
    "*/V2*.scala: UnsupportedOperationException: Spark calls*": "a call that Spark has and does not make",
    "*/V2Table.scala: IllegalStateException: *became partitioned": "it changed while its query started",
    "headwater/core/OptionTable.scala: *": "options.json is in the jar and tested",
    "headwater/bridge/BatchValidator.scala: fail: *": "the page has the words before it",
    "headwater/core/SourceOptions.scala: *has no default": "the same",
    "headwater/log/CheckpointTool.scala: *": "called by the command only, with these words",
    "*: IllegalStateException: is not open": "Spark opens a source before it reads it",
    "*: UnsupportedOperationException: is partitioned *": "a call that no adapter makes",
}
"""Messages that no user meets, and why."""


def belongs(found: Message, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(str(found), pattern) for pattern in patterns)


@cache
def on_the_page() -> str:
    return f" {' '.join(words(PAGE.read_text(encoding='utf-8')))} "


@cache
def shared() -> frozenset[tuple[str, ...]]:
    """Words that more than one message has: they tell nothing of which it is."""
    times = Counter(run for texts in {one.texts for one in messages()} for run in set(runs(texts)))
    return frozenset(run for run, count in times.items() if count > 1)


def is_on_the_page(found: Message) -> bool:
    """By words of its own; one that has none needs all that it has."""
    all_runs = set(runs(found.texts))
    own = all_runs - shared()
    there = {run for run in all_runs if f" {' '.join(run)} " in on_the_page()}
    return bool(own & there) if own else all_runs == there


def test_every_message_is_on_the_page_or_belongs_to_a_group_that_is() -> None:
    known = [*NOT_ON_THE_PAGE, *(pattern for patterns in GROUPS.values() for pattern in patterns)]
    missing = [str(one) for one in messages() if not belongs(one, known) and not is_on_the_page(one)]
    assert missing == [], f"add these to {PAGE.name}, with cause and cure"


@pytest.mark.parametrize("heading", GROUPS)
def test_a_group_has_its_heading_and_shows_some_of_its_messages(heading: str) -> None:
    assert re.search(rf"^##+ {heading}$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    shown = [one for one in messages() if belongs(one, GROUPS[heading]) and is_on_the_page(one)]
    assert len(shown) >= 2, shown


@pytest.mark.parametrize(
    "pattern", [*NOT_ON_THE_PAGE, *(pattern for patterns in GROUPS.values() for pattern in patterns)]
)
def test_each_exception_from_the_rule_is_still_needed(pattern: str) -> None:
    assert any(belongs(one, [pattern]) for one in messages())


def quoted_messages() -> list[str]:
    """What stands as code in the first column of the tables of messages."""
    tables = re.findall(r"^\| message \|.*\n(?:\|.*\n)+", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    cells = [row.split("|")[1] for table in tables for row in table.splitlines()[2:]]
    return [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]


OF_SPARK = {
    "getSubject is not supported",
    "Module jdk.incubator.vector not found",
    "[DATA_SOURCE_NOT_FOUND]",
    "'JavaPackage' object is not callable",
    "Python worker failed to connect back",
    "[PYTHON_VERSION_MISMATCH]",
    "ConcurrentModificationException",
    "[CONCURRENT_QUERY]",
    "[CONCURRENT_STREAM_LOG_UPDATE]",
    "Queries with streaming sources must be executed with writeStream.start()",
    "[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY]",
}
"""Messages in the tables that are not headwater's."""


@cache
def all_code() -> str:
    """Every text of the code; texts that are written on several lines are whole."""
    files = [*PYTHON.rglob("*.py"), *SCALA.rglob("*.scala")]
    code = "\n".join(file.read_text(encoding="utf-8") for file in sorted(files))
    joined = re.sub(r'"\s*\+?\s*(?:\b[fs]{1,2})?"', "", code)
    return f" {' '.join(words(joined))} "


@pytest.mark.parametrize("quoted", quoted_messages())
def test_what_the_tables_quote_is_in_the_code(quoted: str) -> None:
    if quoted not in OF_SPARK:
        pieces = [words(piece) for piece in quoted.split("…")]
        longest = " ".join(max(pieces, key=len))
        assert f" {longest} " in all_code()


def test_the_collectors_see_what_is_raised(tmp_path: Path) -> None:
    python = tmp_path / "a.py"
    python.write_text(
        'WHY = "the reason is told"\n'
        'def f(x):\n    raise ValueError(f"first {x} and " f"then some {WHY}")\n'
        "def g(x):\n    raise TypeError(told(x)) from None\n"
        'def told(x):\n    return "it is told elsewhere"\n'
    )
    found = [(one.raised, one.texts) for one in Module(python, tmp_path).found]
    assert found == [
        ("ValueError", (("and", "then", "some"), ("the", "reason", "is", "told"))),
        ("TypeError", (("it", "is", "told", "elsewhere"),)),
    ]
    code = (
        'fail(\n s"it is ${list.mkString("a, b")} here, " +\n  s"and not $there but elsewhere") "other text"'
    )
    assert [words(text) for text in scala_texts(code, 5) if words(text)] == [
        ("it", "is"),
        ("here", "and", "not"),
        ("but", "elsewhere"),
    ]
