"""Writes wiki/API-reference.md: all public names, from their docstrings, and the help of each command.

With `--check` it writes nothing, and exits with status 1 where the page is not what the docstrings give.

Examples are doctests that print what they show. On the page they are code and its output, which the tests of
all pages run. The standard library is enough for that; generators such as griffe and pdoc would be one more
dependency, and make HTML where one page of Markdown is wanted.
"""

from __future__ import annotations

import argparse
import doctest
import importlib
import itertools
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

from api_names import MODULES, Name, gaps, names_in

__all__ = ["PAGE", "page", "section"]

PAGE = Path(__file__).parent.parent / "wiki" / "API-reference.md"

GIVEN = {
    "hw.feeds": ("headwater.runtime.status:FeedStatus", "headwater.runtime.status:PartitionStatus"),
    "hw.registered": ("headwater.registry:Registered", "headwater.options:Option"),
    "hw.shard": ("headwater.source:Shard",),
}
"""What functions give and nobody makes: no public names, but with fields and methods to use."""

_WIDTH = 120
_HEAD = """\
# API reference

What is each public name, what does it take, and how is it called? A section for each module, then the
[commands](#commands). [Writing a source](Writing-a-source.md) and the other pages tell how they go together.

This page is made from the docstrings, by `project/api_reference.py`. Its examples are run by the tests, one
after the other. They share the session that this one makes:

```python
import headwater as hw

spark = hw.session()
```
"""


def page() -> str:
    modules = [importlib.import_module(name) for name in MODULES]
    if lacking := [gap for module in modules for gap in gaps(module)]:
        sys.exit("\n".join(lacking))
    body = "\n".join(itertools.chain(*map(section, modules), _commands())).rstrip()
    return "\n".join([_HEAD, *_contents(body), "", body, ""])


def _contents(body: str) -> Iterator[str]:
    """A line of links for each section. Of headings with the same anchor, GitHub numbers the later ones."""
    seen: Counter[str] = Counter()
    lines: list[str] = []
    for level, heading in re.findall(r"^(##+) (.*)$", body, re.MULTILINE):
        anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        link = f"[{heading}](#{anchor}{f'-{seen[anchor]}' if seen[anchor] else ''})"
        seen[anchor] += 1
        if level == "##":
            lines.append(f"- {link}")
        elif level == "###":
            lines[-1] += f"{',' if ': ' in lines[-1] else ':'} {link}"
    return map(_wrapped, lines, itertools.repeat("  "))


def section(module: ModuleType) -> Iterator[str]:
    yield from (f"## {module.__name__}", "", _wrapped((module.__doc__ or "").partition("\n\n")[0]), "")
    if module.__name__ != "headwater":
        yield from _block("python", [_import(module)])
    for found in names_in(module):
        yield from _entry(found, "###")
        for home, name in (place.split(":") for place in GIVEN.get(found.shown, ())):
            yield from _entry(Name(importlib.import_module(home), name), "####")


def _import(module: ModuleType) -> str:
    names = ", ".join(module.__all__)
    line = f"from {module.__name__} import {names}"
    if len(line) <= _WIDTH:
        return line
    return f"from {module.__name__} import (\n{textwrap.indent(textwrap.fill(f'{names},', 110), ' ' * 4)}\n)"


def _entry(found: Name, heading: str) -> Iterator[str]:
    yield from (f"{heading} `{found.shown}`", "")
    if found.signature:
        yield from (_wrapped(f"`{found.signature}`"), "")
    yield from _body(found)
    members = [_wrapped(f"- `{member}`: {doc}", "  ") for member, doc in found.members()]
    yield from [*members, ""] if members else []


def _body(found: Name) -> Iterator[str]:
    """Prose, and examples as code and its output."""
    code: list[str] = []
    for part in [*found.parts, "\n"]:
        if isinstance(part, doctest.Example):
            if not _is_above(part.source, found.module):
                code += _spaced(code, part.source)
            if part.want:
                yield from (*_block("python", code), "<!-- output -->", *_block("text", [part.want]))
                code = []
        elif part:
            yield from _block("python", code) if code else ()
            code = []
            yield from (line for text in part.strip().split("\n\n") if text for line in (_wrapped(text), ""))


def _is_above(source: str, module: ModuleType) -> bool:
    """Whether it is an import that the page or the section begins with."""
    return source.strip() == "import headwater as hw" or source.startswith(f"from {module.__name__} import ")


def _spaced(before: list[str], source: str) -> list[str]:
    """With a blank line after imports, and after what has lines of its own."""
    is_import, was_import = (
        text.startswith(("from ", "import ")) for text in (source, before[-1] if before else source)
    )
    ends = before and "\n" in before[-1]
    return [*([""] if ends or is_import != was_import else []), source.rstrip()]


def _block(language: str, texts: list[str]) -> Iterator[str]:
    yield from (f"```{language}", "\n".join(texts).strip("\n"), "```", "")


def _wrapped(text: str, indent: str = "") -> str:
    words = " ".join(text.split())
    return textwrap.fill(
        words, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _commands() -> Iterator[str]:
    from headwater.cli.main import _parser

    yield from ("## Commands", "", "The exit status is 0 when all is well.", "")
    for parser in _parsers(_parser()):
        parser.formatter_class = partial(argparse.HelpFormatter, width=78)  # as where there is no terminal
        yield from (f"### `{parser.prog}`", "", *_block("shell", [f"{parser.prog} --help"]))
        yield from ("<!-- output -->", *_block("text", [parser.format_help()]))


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _parsers(below)


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes wiki/API-reference.md from the docstrings.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if it is outdated")
    given, text = parser.parse_args(), page()
    if given.check:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
