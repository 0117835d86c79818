"""Tables in a terminal."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from headwater.escaping import escape_unprintable

__all__ = ["format_table"]

_MAX_WIDTH = 60


def format_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The lines of a table: names, a rule, and the rows. Numbers are right-aligned, long values are cut.

    >>> print(*format_table(["n", "word"], [(1, "one"), (10, "ten")]), sep="\\n")
     n  word
    --  ----
     1  one
    10  ten
    """
    values = [list(row) for row in rows]
    cells = [[_cell(name) for name in names], *([_cell(value) for value in row] for row in values)]
    widths = [max(_width(row[i]) for row in cells) for i in range(len(names))]
    right = [all(_is_number(row[i]) for row in values) and bool(values) for i in range(len(names))]
    cells.insert(1, ["-" * width for width in widths])
    for row in cells:
        yield "  ".join(map(_pad, row, widths, right)).rstrip()


def _cell(value: Any) -> str:
    """The value on one line, without characters that would move a terminal's cursor."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = escape_unprintable(text)
    if _width(text) <= _MAX_WIDTH:
        return text
    text = text[: _MAX_WIDTH - 1]
    while _width(text) >= _MAX_WIDTH:
        text = text[:-1]
    return f"{text}…"


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _pad(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(text))
    return f"{blanks}{text}" if right else f"{text}{blanks}"


def _width(text: str) -> int:
    """Columns of a terminal."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))
