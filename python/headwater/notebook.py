"""How sources and lists of them look in a notebook: as HTML tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any, TypeVar

from headwater.errors import shorten
from headwater.escaping import escape_unprintable
from headwater.options import Option

__all__ = ["HtmlList", "html_table"]

T = TypeVar("T")


class HtmlList(list[T]):
    """A list of dataclass instances that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return _instances(self) or "<i>none</i>"


def html_table(names: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> str:
    """A table of any values. `title` is text, too."""
    caption = f"<caption>{_text(title)}</caption>" if title else ""
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _instances(values: Sequence[Any]) -> str:
    """Columns are the fields in the repr that have a value in some row."""
    if not values:
        return ""
    names = [field.name for field in fields(values[0]) if field.repr]
    used = [name for name in names if any(getattr(value, name) not in (None, "", ()) for value in values)]
    return html_table(used, ([getattr(value, name) for name in used] for value in values))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, str | Option):
        return _text(
            value if isinstance(value, str) else value.text
        )  # which hides a default that is a secret
    if isinstance(value, tuple):
        is_table = value and is_dataclass(value[0]) and not isinstance(value[0], Option)
        return _instances(value) if is_table else "<br>".join(map(_cell, value))
    return _text(shorten(value))


def _text(text: str) -> str:
    return "<br>".join(escape(escape_unprintable(line, keep="\t")) for line in text.splitlines())
