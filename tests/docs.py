"""Pages of Markdown taken apart: code blocks, headings, links. As a program, it runs the Python of a page.

A block says by its language how it is checked, and an HTML comment on the line before its fence may say more:

    <!-- from path/in/the/repository -->   the block's lines stand in that file, one after the other
    <!-- output -->                        the block is what the python or shell block before it printed;
                                           `…` in it stands for any text within a line
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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


def run_python(page: Path, answer: Path) -> None:
    """Runs the page's python blocks in order, in one namespace. Leaves what each printed, by its line."""
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
        except BaseException:
            traceback.print_exc()
            sys.exit(f"{block} failed; it had printed:\n{out.getvalue()}")
        printed[block.line] = out.getvalue()
    answer.write_text(json.dumps(printed), encoding="utf-8")


if __name__ == "__main__":
    run_python(Path(sys.argv[1]), Path(sys.argv[2]))
