"""JSON that may be anything, and texts for people: one line, not too long, nothing that moves a cursor."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

__all__ = ["as_json", "counted", "parsed", "schema_text", "shortened", "span", "table"]

_WIDEST = 60
_NAMES = {"integer": "INT", "long": "BIGINT", "short": "SMALLINT", "byte": "TINYINT"}


def parsed(data: bytes) -> Any:
    """ValueError for whatever is not JSON. A number that no float holds stays a text."""
    try:
        return json.loads(data.decode("utf-8"), parse_float=_number, parse_constant=_refused)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _number(text: str) -> float | str:
    return value if math.isfinite(value := float(text)) else text


def _refused(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def shortened(value: Any, widest: int = _WIDEST) -> str:
    """A text as it is, anything else as JSON; cut, and on one line."""
    text = value if isinstance(value, str) else as_json(value)
    cut = text if len(text) <= widest else f"{text[: widest - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply to be shown)"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def span(first: int, last: int | None) -> str:
    """How rows are named: by their seq."""
    if last is None:
        return f"rows from {first} on"
    return f"row {first}" if first == last else f"rows {first} to {last}"


def schema_text(schema: Any) -> str:
    """Spark's JSON of a struct type, as in a CREATE TABLE."""
    try:
        return _columns(schema, " ")
    except (KeyError, TypeError, AttributeError, RecursionError):
        return f"not understood: {shortened(schema)}"


def _columns(struct: Any, between: str) -> str:
    return ", ".join(
        f"{field['name']}{between}{_type(field['type'])}{'' if field.get('nullable', True) else ' NOT NULL'}"
        for field in struct["fields"]
    )


def _type(kind: Any) -> str:
    if isinstance(kind, str):
        return _NAMES.get(kind, kind.upper())
    name = kind["type"]
    if name == "array":
        return f"ARRAY<{_type(kind['elementType'])}>"
    if name == "map":
        return f"MAP<{_type(kind['keyType'])}, {_type(kind['valueType'])}>"
    if name == "udt":
        return _type(kind["sqlType"])
    return f"STRUCT<{_columns(kind, ': ')}>"


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column on the left, the others, which are numbers, on the right."""
    cells = [names, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    lines = [[f"{row[0]:<{widths[0]}}", *map(str.rjust, row[1:], widths[1:])] for row in cells]
    lines.insert(1, ["-" * width for width in widths])
    return ["  ".join(line) for line in lines]
